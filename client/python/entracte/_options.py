"""What callers may ask for: the keyword arguments of `generate` and `stream`, and their values.

Every value class may be given as a dict with the same keys: `memory={"thread": "t1"}`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, TypedDict

from entracte._callbacks import Callbacks
from entracte._client_tools import ClientTool, ClientToolLike
from entracte._json import UNSET
from entracte._messages import MessagesLike

Seconds = float | timedelta
"""A duration: a number of seconds, or a timedelta."""


@dataclass(frozen=True, slots=True)
class StopWhen:
    """A condition that ends a run after a step; give exactly one of the fields.

    `step_count` steps were made; a tool named `tool_called` was called in the last step;
    `total_tokens` were used; `cost_micros` millionths of the account's currency were spent; the last
    step's text contains `text_contains`; the `predicate` registered on the server holds.
    """

    step_count: int | None = None
    tool_called: str | None = None
    total_tokens: int | None = None
    cost_micros: int | None = None
    text_contains: str | None = None
    predicate: str | None = None


@dataclass(frozen=True, slots=True)
class ToolApproval:
    """Calls that a person must approve: of tools with these `names`, with names that fit one of
    `patterns` (`*` any characters, `?` one, `[abc]` one of these), of these `toolsets`, for which one of
    `predicates` registered on the server holds, or for which one of `expressions` in CEL holds, given by
    pattern: `{"refund": "args.amount_cents > 5000"}`."""

    names: Sequence[str] = ()
    patterns: Sequence[str] = ()
    predicates: Sequence[str] = ()
    toolsets: Sequence[str] = ()
    expressions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StructuredOutput:
    """An answer that fits a JSON Schema of any kind of value: a dict, or a pydantic model, of which
    `result.object` is then an instance.

    `model` (`provider/model`) turns the first one's prose into the object, with its own
    `instructions` and `provider_options`. `error_strategy`: `strict` fails the run, `warn` gives a
    warning and no object, `fallback` gives `fallback_value`. `json_prompt_injection` says where the
    model is told the schema: `auto` (natively where it can be), `system`, `inline`, `off`, or a bool
    for `system` and `off`.
    """

    schema: Any
    model: str = ""
    error_strategy: Literal["strict", "warn", "fallback"] | None = None
    fallback_value: Any = UNSET
    instructions: str = ""
    json_prompt_injection: Literal["auto", "off", "system", "inline"] | bool | None = None
    provider_options: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Processor:
    """A processor registered on the server, with its parameters."""

    name: str
    parameters: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Thread:
    """A conversation by id, with what to create it with where it does not exist."""

    id: str
    title: str = ""
    metadata: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class SemanticRecall:
    """Search in older messages: `top_k` hits (default 4), each with `message_range` messages around
    it (default 1), in this thread or in all of the resource."""

    top_k: int | None = None
    message_range: int | None = None
    scope: Literal["thread", "resource"] | None = None


@dataclass(frozen=True, slots=True)
class Memory:
    """The conversation a run belongs to.

    `thread` is an id, or a Thread to be created with a title and metadata. `resource` is whose
    memory it is, for example a user's id. `last_messages` of it are shown to the model (0: none), of about
    `max_history_tokens` tokens at most. `on_busy_thread` says what happens while another run has the
    thread: this one is refused (`refuse`, the default) or waits for it (`queue`), up to `queue_timeout`;
    `on_parked_thread` while that run is parked: `refuse` (the default), `cancel` it, or `queue` behind it.
    """

    thread: str | Thread | Mapping[str, Any] | None = None
    resource: str = ""
    last_messages: int | None = None
    save_messages: bool | None = None
    read_only: bool | None = None
    semantic_recall: SemanticRecall | Mapping[str, Any] | None = None
    working_memory: bool | None = None
    filter_incomplete_tool_calls: bool | None = None
    generate_title: bool | None = None
    on_busy_thread: Literal["refuse", "queue"] | None = None
    on_parked_thread: Literal["refuse", "cancel", "queue"] | None = None
    queue_timeout: Seconds | None = None
    max_history_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Telemetry:
    """What telemetry may record of a run: whether it is traced at all, whether spans carry what models and
    tools are given and what they answer, and a name to find the spans under. None: as the agent says,
    else as the server does."""

    is_enabled: bool | None = None
    record_inputs: bool | None = None
    record_outputs: bool | None = None
    function_id: str = ""


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """Sampling and limits of model calls. What is None is left to the provider.

    `temperature` 0 to 2; `top_p` 0 to 1; the penalties -2 to 2; `max_output_tokens` per answer;
    `max_retries` of a call that failed before its answer began (default 2); `headers` are HTTP
    headers added to the call.
    """

    temperature: float | None = None
    max_output_tokens: int | None = None
    max_retries: int | None = None
    top_p: float | None = None
    top_k: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    stop_sequences: Sequence[str] = ()
    seed: int | None = None
    headers: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Whether and which tool the model must call. `auto`: as it likes; `none`: none; `required`: at least
    one; a `tool`: that one.

    What forces a call holds until it was made, and then the model decides; with `every_step` it holds for
    the whole run.
    """

    mode: Literal["auto", "none", "required"] | None = None
    tool: str = ""
    every_step: bool = False


@dataclass(frozen=True, slots=True)
class TracingOptions:
    """How a run appears in traces. `metadata` are attributes of its spans; `request_context_keys` names
    values of the `request_context` that are, too, and may reach nested ones with dots. `trace_id` has 1 to
    32 hexadecimal digits, `parent_span_id` 1 to 16; the caller's span comes before them."""

    metadata: Mapping[str, Any] | None = None
    request_context_keys: Sequence[str] = ()
    trace_id: str = ""
    parent_span_id: str = ""
    tags: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Version:
    """Which version of a data-defined agent: this `version_id`, or the latest with this `status`."""

    version_id: str = ""
    status: Literal["draft", "published"] | None = None


@dataclass(frozen=True, slots=True)
class TaskCompletion:
    """Checks made when the model wants to stop, by the names of scorers registered on the server; a
    score of 1 passes. `timeout` bounds all of them (default 600 s). With `suppress_feedback` the
    model is told nothing about a failed check."""

    scorers: Sequence[str]
    strategy: Literal["all", "any"] | None = None
    parallel: bool | None = None
    timeout: Seconds | None = None
    suppress_feedback: bool = False
    on_complete: str = ""
    """The name of a hook registered on the server that is shown every score."""


@dataclass(frozen=True, slots=True)
class ToolHooks:
    """Hooks around tool calls, by the names under which they are registered on the server: one that is
    asked before a call and may give its result, and one that looks on after it."""

    before_tool_call: str = ""
    after_tool_call: str = ""


@dataclass(frozen=True, slots=True)
class Delegation:
    """Hooks around what the agent delegates to its sub-agents, by the names under which they are registered
    on the server: one that is asked before a sub-agent begins, one that is shown what it came to, and one
    that chooses which turns of the conversation it is given. `hook_error_strategy` says what an error of
    theirs means (None: as the hook declares): `warn` goes on without, `throw` fails the call that
    delegates."""

    on_delegation_start: str = ""
    on_delegation_complete: str = ""
    message_filter: str = ""
    hook_error_strategy: Literal["warn", "throw"] | None = None


@dataclass(frozen=True, slots=True)
class Scorer:
    """How a scorer is run on results: its registered name (the key where empty), and the share of
    runs that are scored, 0 to 1 (None: all). `sampling` says it in words: `none` for all of them, `ratio`
    for that share."""

    scorer: str = ""
    sampling_ratio: float | None = None
    sampling: Literal["none", "ratio"] | None = None


@dataclass(frozen=True, slots=True)
class PendingCallExpiry:
    """How long the run's pending calls may wait for people, and what happens to one that expires: it is
    declined (`decline`, the default), the run fails (`fail`), or it is given its answer out of
    `default_answers`, by tool name (`answer`, the default with answers).

    A tool or agent may have an expiry, too: the earlier time counts, with what was declared with it.
    Nothing is ever approved by an expiry. Answers need the role to decide.
    """

    after: Seconds
    action: Literal["decline", "fail", "answer"] | None = None
    default_answers: Mapping[str, Any] | None = None


class CallOptions(TypedDict, total=False):
    """What every call takes."""

    timeout: float | None
    """The longest to wait for the answer, in seconds; None waits for ever. It bounds the wait and
    never the run. Default: the client's for plain requests, for ever where a run is waited for."""


class GenerateOptions(Callbacks, CallOptions, total=False):
    """The keyword arguments of `generate` and `stream`.

    What is absent or None is left to the agent's own setting, then to the server's default. The
    options are stored with the run and hold over every suspension; only callbacks and client tools
    that are functions live in the caller's process and are given again with a decision.
    """

    run_id: str | None
    """The id of the run: letters, digits, `-`, `_`, `.`, `:`, up to 128. Made by the SDK if absent
    (by the server, if there is a `request_id`)."""
    request_id: str | None
    """Makes the request safe to repeat: given again with the same input and options, it joins the run
    it started. Made by the SDK if absent."""
    max_steps: int | None
    """The most model calls of the whole run. Default 5."""
    stop_when: StopWhen | Mapping[str, Any] | Sequence[StopWhen | Mapping[str, Any]] | None
    """Conditions that end the run after a step; any is enough."""
    active_tools: Sequence[str] | None
    """The tools the model may use. None: all of the agent's; an empty list: none."""
    require_tool_approval: bool | str | Sequence[str] | ToolApproval | Mapping[str, Any] | None
    """Calls a person must approve first: all, or those of tools by name or pattern (`"pay_*"`)."""
    auto_resume_suspended_tools: bool | None
    """Whether a new message on a thread whose run waits for an answer is taken as that answer."""
    tool_call_concurrency: int | None
    """The most tools of one step that run at the same time. Default 10."""
    context: MessagesLike | None
    """Messages added after the system messages and before the input."""
    structured_output: StructuredOutput | type | Mapping[str, Any] | None
    """An answer that fits a schema, in `result.object`: a pydantic model, of which it is then an instance,
    a JSON Schema, or a `StructuredOutput` with more to say (or a dict with its fields)."""
    output: Any
    """Deprecated: the same with nothing but a schema. Use `structured_output`."""
    input_processors: Sequence[str | Processor | Mapping[str, Any]] | None
    """Processors of what goes to the model, replacing the agent's."""
    output_processors: Sequence[str | Processor | Mapping[str, Any]] | None
    """Processors of what the model says, replacing the agent's."""
    max_processor_retries: int | None
    """How often processors may send a step back for another try."""
    instructions: MessagesLike | None
    """System messages that replace the agent's instructions."""
    system: MessagesLike | None
    """System messages added after the instructions."""
    memory: Memory | Mapping[str, Any] | None
    """The conversation the run belongs to."""
    telemetry: Telemetry | Mapping[str, Any] | None
    """What telemetry may record."""
    model_settings: ModelSettings | Mapping[str, Any] | None
    """Sampling and limits of the model calls."""
    tool_choice: Literal["auto", "none", "required"] | ToolChoice | Mapping[str, Any] | None
    """Whether the model must call a tool; `{"tool": name}` names it. It holds until one, or that one, was
    called, or with `every_step` for the whole run: `{"mode": "required", "every_step": True}`."""
    toolsets: Sequence[str] | None
    """Names of toolsets registered on the server, added to the agent's tools."""
    client_tools: Sequence[ClientToolLike] | None
    """Tools that this process executes: functions, or descriptions without a function, whose calls
    are answered with `submit_tool_result`."""
    save_per_step: bool | None
    """Whether messages are saved to the thread after each step rather than at the end."""
    provider_options: Mapping[str, Any] | None
    """Options by provider: `{"openai": {"reasoningEffort": "low"}}`."""
    request_context: Mapping[str, Any] | None
    """Values for tools and hooks; never part of a prompt."""
    tracing_options: TracingOptions | Mapping[str, Any] | None
    """How the run appears in traces."""
    versions: Mapping[str, Literal["draft", "published"] | Version | Mapping[str, Any]] | None
    """Which versions to use of agents made of data, by agent id: of the run's own and of those that it can
    delegate to. None: the published ones. A draft needs the role `author`."""
    include_raw_chunks: bool | None
    """Whether the provider's own events are streamed as `raw` chunks."""
    is_task_complete: TaskCompletion | Mapping[str, Any] | None
    """Checks made when the model wants to stop."""
    scorers: Sequence[str] | Mapping[str, Scorer | Mapping[str, Any] | float | None] | None
    """Scorers that judge the result after the reply, replacing the agent's: names, or by name with a
    share of runs. What they say is in `client.runs.follow_ups(run_id)`."""
    return_scorer_data: bool | None
    """Whether the result carries what scorers see, in `result.scoring_data`."""
    execution_timeout: Seconds | None
    """The longest the run may execute, time spent waiting for people excluded."""
    cancel_on_disconnect: bool | None
    """Whether the run is cancelled when nobody has followed it for 10 seconds."""
    include_request_body: bool | None
    """Whether `result.request` carries the body of the last model call."""
    pending_call_expiry: Seconds | PendingCallExpiry | Mapping[str, Any] | None
    """How long the run's pending calls may wait, and what happens then; just a time declines them.
    None: as the tools and the agent say, else for ever."""
    rate_limit_wait: Seconds | None
    """The longest a model call may wait in all for its provider's rate limit before its answer begins, up to
    a day; a `custom` chunk `rate-limit-wait` shows each wait. None: as the agent says, else not at all."""
    on_iteration_complete: str | None
    """The name of a hook on the server that is called after each step: it may end the run, or tell the model
    something."""
    prepare_step: str | None
    """The name of a hook on the server that is called before each step and may change what it is made
    with."""
    hooks: ToolHooks | Mapping[str, str] | None
    """Hooks around tool calls, by their names on the server."""
    delegation: Delegation | Mapping[str, str] | None
    """Hooks around delegations to sub-agents, by their names on the server."""
    traceparent: str | None
    """The caller's span, as a W3C `traceparent` header. None: the current one, where this process uses
    OpenTelemetry."""


class DecisionOptions(Callbacks, CallOptions, total=False):
    """The keyword arguments that all decisions take."""

    run_id: str | None
    """With `tool_call_id`, or alone while one call waits: names the call in place of its id."""
    tool_call_id: str | None
    """The call, together with `run_id`."""
    request_id: str | None
    """Makes the decision safe to repeat; made by the SDK if absent."""
    on_behalf_of: str
    """For whom the caller decides; kept in the audit, not verified."""
    comment: str
    """A note for the audit; the model does not see it."""
    client_tools: Sequence[ClientToolLike] | None
    """Functions for the run's client tools, should it call them next."""
    traceparent: str | None
    """The span of whoever decides, to which the run's trace links; as in `GenerateOptions`."""


__all__ = [
    "CallOptions",
    "ClientTool",
    "DecisionOptions",
    "Delegation",
    "GenerateOptions",
    "Memory",
    "ModelSettings",
    "PendingCallExpiry",
    "Processor",
    "Scorer",
    "Seconds",
    "SemanticRecall",
    "StopWhen",
    "StructuredOutput",
    "TaskCompletion",
    "Telemetry",
    "Thread",
    "ToolApproval",
    "ToolChoice",
    "ToolHooks",
    "TracingOptions",
    "Version",
]
