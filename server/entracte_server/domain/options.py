"""The options of a run, as they are stored with it and hold over every suspension."""

from collections.abc import Mapping
from typing import Any, Literal

from entracte_server.domain.data import Data
from entracte_server.domain.expiry import RunExpiry
from entracte_server.domain.memory import MemoryOptions
from entracte_server.domain.messages import Message
from entracte_server.domain.tracing import TelemetryOptions, TracingOptions

DEFAULT_MAX_STEPS = 5
DEFAULT_TOOL_CALL_CONCURRENCY = 10


class ApprovalExpression(Data, frozen=True):
    """A CEL expression over the calls of the tools whose names fit the shell pattern `tool`."""

    tool: str
    expression: str


class ApprovalRules(Data, frozen=True):
    """Which calls need approval beyond what the tools ask for: those that any of the rules covers.

    `all` covers every call; `patterns` are shell patterns over tool names; `predicates` are registered
    with the app. A predicate that is not, and one or an expression that fails, covers the call.
    """

    all: bool = False
    names: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    toolsets: tuple[str, ...] = ()
    predicates: tuple[str, ...] = ()
    expressions: tuple[ApprovalExpression, ...] = ()


class ClientTool(Data, frozen=True):
    """A tool the caller executes. `input_schema` is JSON text."""

    name: str
    description: str
    input_schema: str


class WorkerDefinition(Data, frozen=True):
    """What else is known of a tool that workers execute. `target` tells it from all other definitions;
    `timeout` is in seconds, None as the server says. Schemas are JSON text."""

    version: str
    suspend_schema: str | None = None
    resume_schema: str | None = None
    requires_approval: bool = False
    idempotent: bool = False
    timeout: float | None = None
    target: str = ""


class PinnedTool(Data, frozen=True):
    """A tool of an MCP server as it was listed, or one of workers as it was registered, which has `worker`.
    `name` is its name in the run, `remote` the server's or workers' in the toolset; `input_schema` is JSON
    text."""

    toolset: str
    name: str
    remote: str
    description: str
    input_schema: str
    worker: WorkerDefinition | None = None


class AgentPin(Data, frozen=True):
    """The version of an agent made of data that a run uses, from its beginning to its end."""

    agent_id: str
    version_id: str


class ToolChoice(Data, frozen=True):
    """`mode` `tool` forces the tool called `tool_name`.

    `required` and `tool` hold until a tool, or the tool, was called in the run, and then the model
    decides; with `every_step` they hold for the whole run.
    """

    mode: Literal["auto", "none", "required", "tool"] = "auto"
    tool_name: str = ""
    every_step: bool = False


class ModelSettings(Data, frozen=True):
    """How to sample. None leaves a setting to the provider.

    `max_retries` counts attempts after the first, before anything of the answer was seen.
    """

    temperature: float | None = None
    max_output_tokens: int | None = None
    max_retries: int | None = None
    top_p: float | None = None
    top_k: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    stop_sequences: tuple[str, ...] = ()
    seed: int | None = None
    headers: Mapping[str, str] = {}


class ScorerChoice(Data, frozen=True):
    """A scorer that runs on results. `key` is what it is called in the run, `scorer` the name it is
    registered by, `ratio` the share of runs, from 0 to 1, that it runs on (None: all)."""

    key: str
    scorer: str
    ratio: float | None = None


class StopCondition(Data, frozen=True):
    """Ends a run after a step: `steps`, `tokens` or `cost` (millionths) reached `number`; a tool called
    `text` was called in the step (`tool`), the step's text contains `text` (`text`), or the hook called
    `text` says so (`predicate`)."""

    kind: Literal["steps", "tokens", "cost", "tool", "text", "predicate"]
    number: int = 0
    text: str = ""


class TaskCompletion(Data, frozen=True):
    """Checks made when the model wants to stop. `scorers` and `on_complete` are names; `timeout` is in
    seconds, for all of them."""

    scorers: tuple[str, ...]
    strategy: Literal["all", "any"] = "all"
    parallel: bool = True
    timeout: float = 600.0
    suppress_feedback: bool = False
    on_complete: str = ""


class ToolHooks(Data, frozen=True):
    """Names of the hooks around tool calls; empty: none."""

    before_tool_call: str = ""
    after_tool_call: str = ""


class DelegationHooks(Data, frozen=True):
    """Names of the hooks around delegations; empty: none. `error_strategy` says what an error of theirs
    means: as they declare, that it is logged (`warn`), or that the call fails (`throw`)."""

    on_start: str = ""
    on_complete: str = ""
    message_filter: str = ""
    error_strategy: Literal["", "warn", "throw"] = ""


class StructuredOutput(Data, frozen=True):
    """An answer that fits `schema`, the JSON text of a JSON Schema of any kind of value.

    `model` (`provider/model`) makes the object of the first one's prose in a call of its own, with
    `provider_options` (JSON text); empty: the agent's own model answers with the object. `fallback_value`
    is JSON text that fits the schema. `injection` says where the model that makes the object is told the
    schema: `auto` natively or else as `system`, `off` natively or not at all.
    """

    schema: str
    model: str = ""
    error_strategy: Literal["strict", "warn", "fallback"] = "strict"
    fallback_value: str | None = None
    instructions: str = ""
    injection: Literal["auto", "off", "system", "inline"] = "auto"
    provider_options: str | None = None


class StepOverrides(Data, frozen=True):
    """What is different in one step; None is as ever.

    `model` is `provider/model`. `active_tools` are the only tools offered. `messages` are the conversation
    without its system messages, `system` the system messages, both in place of the run's. `model_settings`
    and `provider_options` go over the run's value by value, as a caller's go over an agent's.
    """

    model: str | None = None
    active_tools: tuple[str, ...] | None = None
    tool_choice: ToolChoice | None = None
    model_settings: ModelSettings | None = None
    provider_options: Mapping[str, Mapping[str, Any]] | None = None
    messages: tuple[Message, ...] | None = None
    system: tuple[str, ...] | None = None


class ProcessorRef(Data, frozen=True):
    """A processor by the name it is registered under. `parameters` is the JSON text of an object."""

    name: str
    parameters: str | None = None


class RunOptions(Data, frozen=True):
    """Everything a caller may say about one run. JSON values are text. Times are in seconds.

    None means "as the agent says, else the default". `active_tools` None means all. `versions` are those of
    the agents made of data in the run's tree of agents, its own among them.
    """

    max_steps: int | None = None
    active_tools: tuple[str, ...] | None = None
    require_tool_approval: ApprovalRules | None = None
    tool_call_concurrency: int | None = None
    context: tuple[Message, ...] = ()
    instructions: tuple[str, ...] | None = None
    system: tuple[str, ...] = ()
    model_settings: ModelSettings = ModelSettings()
    tool_choice: ToolChoice | None = None
    client_tools: tuple[ClientTool, ...] = ()
    provider_options: str | None = None
    request_context: str | None = None
    include_raw_chunks: bool = False
    execution_timeout: float | None = None
    cancel_on_disconnect: bool = False
    include_request_body: bool = False
    pending_call_expiry: RunExpiry | None = None
    rate_limit_wait: float | None = None
    stop_when: tuple[StopCondition, ...] = ()
    on_iteration_complete: str = ""
    prepare_step: str = ""
    hooks: ToolHooks | None = None
    is_task_complete: TaskCompletion | None = None
    structured_output: StructuredOutput | None = None
    input_processors: tuple[ProcessorRef, ...] | None = None
    output_processors: tuple[ProcessorRef, ...] | None = None
    max_processor_retries: int | None = None
    toolsets: tuple[str, ...] = ()
    telemetry: TelemetryOptions = TelemetryOptions()
    tracing_options: TracingOptions = TracingOptions()
    scorers: tuple[ScorerChoice, ...] | None = None
    return_scorer_data: bool = False
    pinned_tools: tuple[PinnedTool, ...] = ()
    memory: MemoryOptions | None = None
    save_per_step: bool = False
    delegation: DelegationHooks | None = None
    versions: tuple[AgentPin, ...] = ()
