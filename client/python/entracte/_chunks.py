"""The events of a run: one frozen record per chunk type, told apart by `type`.

    async for chunk in agent.stream("Hello"):
        if chunk.type == "text-delta":
            print(chunk.text)          # type checkers know that this is a TextDeltaChunk

Every record has the header attributes of `ChunkHeader` and those of its own type. A JSON value is
parsed when it is first read (`chunk.args`); its exact text is in the attribute with the suffix
`_json`, which is None where there is no value.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

from entracte._chunk_base import ChunkHeader, PathElement, WithProviderMetadata, value_of
from entracte._enums import FinishReason, PendingCallKind, StopCause
from entracte._outcomes import RunError, Tripwire, Usage
from entracte._tool_chunks import (
    ToolCallApprovalChunk,
    ToolCallChunk,
    ToolCallDeltaChunk,
    ToolCallInputStreamingEndChunk,
    ToolCallInputStreamingStartChunk,
    ToolCallResolvedChunk,
    ToolCallSuspendedChunk,
    ToolErrorChunk,
    ToolOutputChunk,
    ToolOutputDeniedChunk,
    ToolResultChunk,
)


@dataclass(frozen=True, slots=True)
class StartChunk(ChunkHeader):
    """The run began. First chunk of a run, never repeated on a resume."""

    type: ClassVar[Literal["start"]] = "start"
    agent_id: str
    message_id: str


@dataclass(frozen=True, slots=True)
class StepStartChunk(ChunkHeader):
    """A model call begins. With a higher `attempt`, all earlier chunks of the step are void."""

    type: ClassVar[Literal["step-start"]] = "step-start"
    message_id: str
    model: str
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class TextStartChunk(WithProviderMetadata):
    """A text begins."""

    type: ClassVar[Literal["text-start"]] = "text-start"


@dataclass(frozen=True, slots=True)
class TextDeltaChunk(ChunkHeader):
    """A piece of a text."""

    type: ClassVar[Literal["text-delta"]] = "text-delta"
    id: str
    text: str


@dataclass(frozen=True)
class TextEndChunk(WithProviderMetadata):
    """A text is complete."""

    type: ClassVar[Literal["text-end"]] = "text-end"


@dataclass(frozen=True)
class ReasoningStartChunk(WithProviderMetadata):
    """Thinking begins."""

    type: ClassVar[Literal["reasoning-start"]] = "reasoning-start"


@dataclass(frozen=True, slots=True)
class ReasoningDeltaChunk(ChunkHeader):
    """A piece of thinking."""

    type: ClassVar[Literal["reasoning-delta"]] = "reasoning-delta"
    id: str
    text: str


@dataclass(frozen=True)
class ReasoningEndChunk(WithProviderMetadata):
    """Thinking is complete."""

    type: ClassVar[Literal["reasoning-end"]] = "reasoning-end"


@dataclass(frozen=True, slots=True)
class ReasoningSignatureChunk(ChunkHeader):
    """The provider's signature over the thinking."""

    type: ClassVar[Literal["reasoning-signature"]] = "reasoning-signature"
    id: str
    signature: str


@dataclass(frozen=True, slots=True)
class RedactedReasoningChunk(ChunkHeader):
    """Thinking that the provider encrypted."""

    type: ClassVar[Literal["redacted-reasoning"]] = "redacted-reasoning"
    id: str
    data: str


@dataclass(frozen=True)
class SourceChunk(WithProviderMetadata):
    """Something the model cites."""

    type: ClassVar[Literal["source"]] = "source"
    url: str
    title: str


@dataclass(frozen=True, slots=True)
class FileChunk(ChunkHeader):
    """A file the model made: its `data`, or the `url` when the provider gave only that."""

    type: ClassVar[Literal["file"]] = "file"
    media_type: str
    data: bytes
    url: str


@dataclass(frozen=True)
class _WithObject(ChunkHeader):
    object_json: str | None
    structuring_model: str
    """The second model that makes it; empty where the agent's own model does."""

    @cached_property
    def object(self) -> Any:
        """The value."""
        return value_of(self.object_json)


@dataclass(frozen=True)
class ObjectChunk(_WithObject):
    """A partial structured output, not validated. It replaces the one before it."""

    type: ClassVar[Literal["object"]] = "object"


@dataclass(frozen=True)
class ObjectResultChunk(_WithObject):
    """The validated structured output."""

    type: ClassVar[Literal["object-result"]] = "object-result"
    is_fallback: bool


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One completion check: the scorer's name, its score (None where it could not be made) and whether
    that passed."""

    scorer: str
    score: float | None
    passed: bool
    reason: str


@dataclass(frozen=True, slots=True)
class IsTaskCompleteChunk(ChunkHeader):
    """The outcome of a completion check. `ends_run`: the run ends with the step, whatever the outcome."""

    type: ClassVar[Literal["is-task-complete"]] = "is-task-complete"
    iteration: int
    passed: bool
    results: tuple[CheckResult, ...]
    timed_out: bool
    reason: str
    max_iteration_reached: bool
    suppress_feedback: bool
    ends_run: bool = False


@dataclass(frozen=True, slots=True)
class TripwireChunk(ChunkHeader):
    """A processor stopped the run or a step."""

    type: ClassVar[Literal["tripwire"]] = "tripwire"
    tripwire: Tripwire


@dataclass(frozen=True, slots=True)
class StepFinishChunk(ChunkHeader):
    """A step ended. `usage` is the step's, `total_usage` the run's so far."""

    type: ClassVar[Literal["step-finish"]] = "step-finish"
    message_id: str
    reason: FinishReason | None
    is_continued: bool
    usage: Usage
    total_usage: Usage
    raw_reason: str
    response_id: str
    response_model: str
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OpenCall:
    """One waiting call of a parked run, in short. Each was announced in full by its own chunk."""

    pending_call_id: str
    tool_call_id: str
    tool_name: str
    kind: PendingCallKind
    agent_path: tuple[PathElement, ...] = ()


@dataclass(frozen=True, slots=True)
class FinishChunk(ChunkHeader):
    """The run parked (`reason == "suspended"`) or ended. The last chunk before a stream ends."""

    type: ClassVar[Literal["finish"]] = "finish"
    reason: FinishReason | None
    stop_cause: StopCause | None
    usage: Usage
    open_calls: tuple[OpenCall, ...]


@dataclass(frozen=True, slots=True)
class ErrorChunk(ChunkHeader):
    """The run failed; `finish` follows."""

    type: ClassVar[Literal["error"]] = "error"
    error: RunError


@dataclass(frozen=True, slots=True)
class AbortChunk(ChunkHeader):
    """The run was cancelled; `finish` follows."""

    type: ClassVar[Literal["abort"]] = "abort"
    reason: str


@dataclass(frozen=True)
class RawChunk(ChunkHeader):
    """What the provider sent, with `include_raw_chunks`."""

    type: ClassVar[Literal["raw"]] = "raw"
    value_json: str | None

    @cached_property
    def value(self) -> Any:
        """The event, unchanged."""
        return value_of(self.value_json)


@dataclass(frozen=True)
class CustomChunk(ChunkHeader):
    """A tool's own event, named `data-NAME` in the reference. Events with the same `id` replace one
    another in a display; a `transient` one need not be kept."""

    type: ClassVar[Literal["custom"]] = "custom"
    name: str
    data_json: str | None
    id: str
    transient: bool

    @cached_property
    def data(self) -> Any:
        """The event."""
        return value_of(self.data_json)


Chunk = (
    StartChunk
    | StepStartChunk
    | TextStartChunk
    | TextDeltaChunk
    | TextEndChunk
    | ReasoningStartChunk
    | ReasoningDeltaChunk
    | ReasoningEndChunk
    | ReasoningSignatureChunk
    | RedactedReasoningChunk
    | ToolCallInputStreamingStartChunk
    | ToolCallDeltaChunk
    | ToolCallInputStreamingEndChunk
    | ToolCallChunk
    | ToolResultChunk
    | ToolErrorChunk
    | ToolOutputChunk
    | ToolOutputDeniedChunk
    | ToolCallApprovalChunk
    | ToolCallSuspendedChunk
    | ToolCallResolvedChunk
    | SourceChunk
    | FileChunk
    | ObjectChunk
    | ObjectResultChunk
    | IsTaskCompleteChunk
    | TripwireChunk
    | StepFinishChunk
    | FinishChunk
    | ErrorChunk
    | AbortChunk
    | RawChunk
    | CustomChunk
)
"""Any chunk; `chunk.type` tells which."""

__all__ = [
    "AbortChunk",
    "CheckResult",
    "Chunk",
    "CustomChunk",
    "ErrorChunk",
    "FileChunk",
    "FinishChunk",
    "IsTaskCompleteChunk",
    "ObjectChunk",
    "ObjectResultChunk",
    "OpenCall",
    "RawChunk",
    "ReasoningDeltaChunk",
    "ReasoningEndChunk",
    "ReasoningSignatureChunk",
    "ReasoningStartChunk",
    "RedactedReasoningChunk",
    "SourceChunk",
    "StartChunk",
    "StepFinishChunk",
    "StepStartChunk",
    "TextDeltaChunk",
    "TextEndChunk",
    "TextStartChunk",
    "ToolCallApprovalChunk",
    "ToolCallChunk",
    "ToolCallDeltaChunk",
    "ToolCallInputStreamingEndChunk",
    "ToolCallInputStreamingStartChunk",
    "ToolCallResolvedChunk",
    "ToolCallSuspendedChunk",
    "ToolErrorChunk",
    "ToolOutputChunk",
    "ToolOutputDeniedChunk",
    "ToolResultChunk",
    "TripwireChunk",
    "_WithObject",
]
