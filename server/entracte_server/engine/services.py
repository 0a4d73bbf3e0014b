"""What the runs of one process work with."""

from collections.abc import Callable, Sequence

from entracte_server.agents.agent import Agent, App
from entracte_server.agents.processors.base import Processor
from entracte_server.agents.scorers import LlmScorer
from entracte_server.engine.execution import ToolRunner
from entracte_server.engine.hooking import HookRunner
from entracte_server.engine.processor_calls import ProcessorCalls
from entracte_server.engine.scoring import ScorerRunner
from entracte_server.engine.settings import EngineSettings
from entracte_server.models.base import Model
from entracte_server.store.base import Store
from entracte_server.telemetry.base import Telemetry

ModelResolver = Callable[[Agent | LlmScorer | Processor | str], Sequence[Model]]
"""Gives the models of an agent, a scorer or a processor in the order they are tried, or the one named."""


class Services:
    """Shared by all runs of a process."""

    def __init__(
        self,
        app: App,
        store: Store,
        resolve: ModelResolver,
        settings: EngineSettings,
        telemetry: Telemetry,
    ) -> None:
        self.app = app
        self.store = store
        self.resolve = resolve
        self.settings = settings
        self.telemetry = telemetry
        self.tools = ToolRunner(settings, telemetry)
        self.scorers = ScorerRunner(settings, resolve, telemetry)
        self.hooks = HookRunner(settings)
        self.processors = ProcessorCalls(settings)
