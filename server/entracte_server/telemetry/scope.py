"""What a model call or a tool is recorded as a part of."""

from contextvars import ContextVar

from opentelemetry.context import Context

from entracte_server.agents.agent import Agent
from entracte_server.domain.data import Data
from entracte_server.domain.results import Usage
from entracte_server.domain.runs import RunRow, RunSpec
from entracte_server.domain.tracing import TracingOptions
from entracte_server.telemetry import names as n
from entracte_server.telemetry.spans import Attributes, Spans


class Policy(Data, frozen=True):
    """What may be recorded of a run. `raw_inputs`, `raw_outputs`: also as it is before processors have
    passed it, which is not wanted where there are any."""

    traced: bool
    inputs: bool
    outputs: bool
    raw_inputs: bool
    raw_outputs: bool
    function_id: str
    tracing: TracingOptions


def policy_of(spec: RunSpec, agent: Agent | None, *, record_content: bool) -> Policy:
    """What the request says, else the agent, else the server: `record_content`."""
    telemetry, tracing = spec.options.telemetry, spec.options.tracing_options
    if agent is not None:
        telemetry = telemetry.over(agent.telemetry)
        tracing = tracing.over(agent.tracing_options)
    inputs = record_content if telemetry.record_inputs is None else telemetry.record_inputs
    outputs = record_content if telemetry.record_outputs is None else telemetry.record_outputs
    asked = spec.options
    processes_inputs, processes_outputs = bool(asked.input_processors), bool(asked.output_processors)
    if agent is not None:
        processes_inputs |= asked.input_processors is None and bool(agent.input_processors)
        processes_outputs |= asked.output_processors is None and bool(agent.output_processors)
    return Policy(
        traced=telemetry.is_enabled is not False,
        inputs=inputs,
        outputs=outputs,
        raw_inputs=inputs and not processes_inputs,
        raw_outputs=outputs and not processes_outputs,
        function_id=telemetry.function_id,
        tracing=tracing,
    )


class Scope:
    """A run, or something that is done for it. Spans are made with `spans`, None where the run is not
    traced, in `context`; `usage` is what models used in it."""

    def __init__(self, run: RunRow, agent_name: str, policy: Policy) -> None:
        self.run = run
        self.agent_name = agent_name
        self.policy = policy
        self.spans: Spans | None = None
        self.context = Context()
        self.usage = Usage()

    def common(self) -> Attributes:
        """What all spans of the run have."""
        found: Attributes = {n.RUN_ID: self.run.run_id, n.AGENT_NAME: self.agent_name}
        if self.run.thread_id:
            found[n.CONVERSATION_ID] = self.run.thread_id
        if self.policy.function_id:
            found[n.FUNCTION_ID] = self.policy.function_id
        return found


current: ContextVar[Scope | None] = ContextVar("entracte_scope", default=None)
"""What this task works on."""
