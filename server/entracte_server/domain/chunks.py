"""The events of a run. One class per chunk type, named after the reference's type.

A model adapter yields these payloads, the engine adds its own, and `entracte_server.wire` turns
each into protobuf bytes once. JSON values are held as text.
"""

from typing import ClassVar, Literal

from entracte_server.domain.data import Data
from entracte_server.domain.results import CheckResult, RunError, Usage
from entracte_server.domain.results import Tripwire as Stopped

FinishReason = Literal[
    "stop",
    "tool-calls",
    "suspended",
    "error",
    "length",
    "content-filter",
    "aborted",
    "tripwire",
    "other",
]

StopCause = Literal[
    "model-finished",
    "max-steps",
    "stop-when",
    "hook",
    "bail",
    "task-incomplete",
    "check-unavailable",
    "client-tool",
    "suspended",
    "timeout",
    "budget",
    "cancelled",
    "tripwire",
    "error",
]

PendingKind = Literal["approval", "suspension", "client-tool", "recovery"]
Verb = Literal["approve", "decline", "resume", "submit", "cancel", "expire"]


class Payload(Data, frozen=True):
    """What a chunk says; `type` is the name clients see."""

    type: ClassVar[str]


class Start(Payload, frozen=True):
    type = "start"
    agent_id: str
    message_id: str


class StepStart(Payload, frozen=True):
    type = "step-start"
    message_id: str
    model: str = ""
    warnings: tuple[str, ...] = ()


class TextStart(Payload, frozen=True):
    type = "text-start"
    id: str
    provider_metadata: str | None = None


class TextDelta(Payload, frozen=True, gc=False):
    type = "text-delta"
    id: str
    text: str


class TextEnd(Payload, frozen=True):
    type = "text-end"
    id: str
    provider_metadata: str | None = None


class ReasoningStart(Payload, frozen=True):
    type = "reasoning-start"
    id: str
    provider_metadata: str | None = None


class ReasoningDelta(Payload, frozen=True, gc=False):
    type = "reasoning-delta"
    id: str
    text: str


class ReasoningEnd(Payload, frozen=True):
    type = "reasoning-end"
    id: str
    provider_metadata: str | None = None


class ReasoningSignature(Payload, frozen=True):
    type = "reasoning-signature"
    id: str
    signature: str


class RedactedReasoning(Payload, frozen=True):
    type = "redacted-reasoning"
    id: str
    data: str


class ToolCallInputStreamingStart(Payload, frozen=True):
    type = "tool-call-input-streaming-start"
    tool_call_id: str
    tool_name: str


class ToolCallDelta(Payload, frozen=True, gc=False):
    type = "tool-call-delta"
    tool_call_id: str
    args_text_delta: str
    tool_name: str


class ToolCallInputStreamingEnd(Payload, frozen=True):
    type = "tool-call-input-streaming-end"
    tool_call_id: str


class ToolCall(Payload, frozen=True):
    """A complete call. `args` is the JSON text of an object; when what the model sent is not one,
    `args` is None, `invalid_args` holds the text as it came and `args_error` says what is wrong:
    such a call is never executed."""

    type = "tool-call"
    tool_call_id: str
    tool_name: str
    args: str | None
    invalid_args: str | None = None
    args_error: str | None = None
    provider_executed: bool = False
    provider_metadata: str | None = None


class ToolResult(Payload, frozen=True):
    type = "tool-result"
    tool_call_id: str
    tool_name: str
    args: str | None
    result: str
    provider_executed: bool = False


class ToolError(Payload, frozen=True):
    """`code` says whose fault it was: `invalid-args`, `unknown-tool`, `exception`, `timeout`,
    `not-executed`, `invalid-result`, `recovery`, `expired`, `hook`, `delegation` (a sub-agent did not come to
    an answer), `unavailable` (no worker took the call)."""

    type = "tool-error"
    tool_call_id: str
    tool_name: str
    args: str | None
    message: str
    code: str


class ToolOutput(Payload, frozen=True):
    type = "tool-output"
    tool_call_id: str
    tool_name: str
    output: str


class ToolOutputDenied(Payload, frozen=True):
    type = "tool-output-denied"
    tool_call_id: str
    tool_name: str
    args: str | None
    reason: str
    reason_json: str | None = None


class ToolCallApproval(Payload, frozen=True):
    type = "tool-call-approval"
    pending_call_id: str
    tool_call_id: str
    tool_name: str
    args: str
    args_digest: bytes
    resume_schema: str | None = None
    expire_time: int | None = None


class ToolCallSuspended(Payload, frozen=True):
    type = "tool-call-suspended"
    pending_call_id: str
    kind: PendingKind
    tool_call_id: str
    tool_name: str
    args: str
    args_digest: bytes
    suspend_payload: str | None = None
    resume_schema: str | None = None
    expire_time: int | None = None


class ToolCallResolved(Payload, frozen=True):
    """Who decided what. `edited_args` is there when a reviewer edited the arguments: what will run."""

    type = "tool-call-resolved"
    pending_call_id: str
    tool_call_id: str
    tool_name: str
    verb: Verb
    principal: str
    decision_id: str
    edited_args: str | None = None


class Source(Payload, frozen=True):
    type = "source"
    id: str
    url: str
    title: str = ""
    provider_metadata: str | None = None


class File(Payload, frozen=True):
    """A file the model made: bytes, or a URL where the provider gave only that."""

    type = "file"
    media_type: str
    data: bytes = b""
    url: str = ""


class Object(Payload, frozen=True):
    """A structured output so far, as JSON text; not validated. `structuring_model` is the second model
    that makes it, empty where the agent's own does."""

    type = "object"
    object: str
    structuring_model: str = ""


class ObjectResult(Payload, frozen=True):
    """The validated structured output, as JSON text."""

    type = "object-result"
    object: str
    is_fallback: bool = False
    structuring_model: str = ""


class IsTaskComplete(Payload, frozen=True):
    """What the checks of completion said of a step. `ends_run`: the run ends with the step, whatever they
    said."""

    type = "is-task-complete"
    iteration: int
    passed: bool
    results: tuple[CheckResult, ...]
    timed_out: bool = False
    reason: str = ""
    max_iteration_reached: bool = False
    suppress_feedback: bool = False
    ends_run: bool = False


class StepFinish(Payload, frozen=True):
    """`usage` is this step's, `total_usage` the run's so far."""

    type = "step-finish"
    message_id: str
    reason: FinishReason
    is_continued: bool
    usage: Usage
    total_usage: Usage
    raw_reason: str = ""
    response_id: str = ""
    response_model: str = ""
    warnings: tuple[str, ...] = ()


class PathElement(Data, frozen=True):
    """One delegation on the way down to a sub-agent."""

    agent_id: str
    tool_call_id: str


AgentPath = tuple[PathElement, ...]
"""The delegations on the way down to an agent; empty for a run's own."""


class OpenCall(Data, frozen=True):
    """One call still waiting when a run parks."""

    pending_call_id: str
    tool_call_id: str
    tool_name: str
    kind: PendingKind
    agent_path: AgentPath = ()


class Finish(Payload, frozen=True):
    type = "finish"
    reason: FinishReason
    stop_cause: StopCause
    usage: Usage
    open_calls: tuple[OpenCall, ...] = ()


class Error(Payload, frozen=True):
    type = "error"
    error: RunError


class Tripwire(Payload, frozen=True):
    """A processor stopped the step, and the run unless the step is tried again."""

    type = "tripwire"
    tripwire: Stopped


class Abort(Payload, frozen=True):
    type = "abort"
    reason: str = ""


class Raw(Payload, frozen=True):
    """What the provider sent, as its JSON text (or a JSON string of it where it is not JSON)."""

    type = "raw"
    value: str


class Custom(Payload, frozen=True):
    """A tool's own event; its `type` on the client's side is `data-NAME`."""

    type = "custom"
    name: str
    data: str
    id: str = ""
    transient: bool = False


ChunkSource = Literal["agent", "user", "system"]


class Chunk(Data, frozen=True):
    """One event with its envelope. `emit_time` is in milliseconds since the epoch."""

    run_id: str
    sequence: int
    emit_time: int
    step: int
    attempt: int
    payload: Payload
    source: ChunkSource = "agent"
    agent_path: AgentPath = ()
    ignorable: bool = False
