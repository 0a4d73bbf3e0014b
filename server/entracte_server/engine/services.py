"""What the runs of one process work with."""

from collections.abc import Callable, Sequence

from entracte_server.agents.agent import Agent, App
from entracte_server.agents.processors.base import Processor
from entracte_server.agents.scorers import LlmScorer
from entracte_server.engine.execution import ToolRunner
from entracte_server.engine.hooking import HookRunner
from entracte_server.engine.outside import OutsideWork
from entracte_server.engine.processor_calls import ProcessorCalls
from entracte_server.engine.recall import Recall
from entracte_server.engine.scoring import ScorerRunner
from entracte_server.engine.settings import EngineSettings
from entracte_server.models.base import Model
from entracte_server.models.embedding import Embedder
from entracte_server.store.base import Store
from entracte_server.telemetry.base import Telemetry

ModelResolver = Callable[[Agent | LlmScorer | Processor | str], Sequence[Model]]
"""Gives the models of an agent, a scorer or a processor in the order they are tried, or the one named."""


EmbedderResolver = Callable[[Embedder | str], Embedder]
"""Gives the embedder that is named. Raises `ValueError` where it cannot be had."""


def given_only(embedder: Embedder | str) -> Embedder:
    """An embedder that is an object; of those that are named it knows none."""
    if isinstance(embedder, str):
        raise ValueError(f"there is nothing to find the embedder {embedder!r} with")
    return embedder


class Services:
    """Shared by all runs of a process."""

    def __init__(
        self,
        app: App,
        store: Store,
        resolve: ModelResolver,
        settings: EngineSettings,
        telemetry: Telemetry,
        embedder: EmbedderResolver,
        outside: OutsideWork,
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
        self.embedder = embedder
        self.outside = outside
        self.recall = Recall(store, settings)
