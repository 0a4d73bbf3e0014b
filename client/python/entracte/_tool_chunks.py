"""The events around tool calls; see `_chunks`."""

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, ClassVar, Literal

from entracte import _json
from entracte._chunk_base import ChunkHeader, value_of
from entracte._enums import DecisionVerb, PendingCallKind


@dataclass(frozen=True, slots=True)
class ToolCallInputStreamingStartChunk(ChunkHeader):
    """The arguments of a tool call begin to arrive."""

    type: ClassVar[Literal["tool-call-input-streaming-start"]] = "tool-call-input-streaming-start"
    tool_call_id: str
    tool_name: str


@dataclass(frozen=True, slots=True)
class ToolCallDeltaChunk(ChunkHeader):
    """A piece of the arguments' text, not JSON by itself."""

    type: ClassVar[Literal["tool-call-delta"]] = "tool-call-delta"
    tool_call_id: str
    tool_name: str
    args_text_delta: str


@dataclass(frozen=True, slots=True)
class ToolCallInputStreamingEndChunk(ChunkHeader):
    """The arguments are complete."""

    type: ClassVar[Literal["tool-call-input-streaming-end"]] = "tool-call-input-streaming-end"
    tool_call_id: str


@dataclass(frozen=True)
class _WithArgs(ChunkHeader):
    tool_call_id: str
    tool_name: str
    args_json: str | None

    @cached_property
    def args(self) -> Any:
        """The arguments, a dict; None where there are none."""
        return value_of(self.args_json)


@dataclass(frozen=True)
class ToolCallChunk(_WithArgs):
    """A complete tool call. `invalid_args` is what the model sent when that was not a JSON object;
    such a call is not executed."""

    type: ClassVar[Literal["tool-call"]] = "tool-call"
    invalid_args: str | None
    provider_executed: bool
    provider_metadata_json: str | None

    @cached_property
    def provider_metadata(self) -> Any:
        """What the provider attached; None where it attached nothing."""
        return value_of(self.provider_metadata_json)


@dataclass(frozen=True)
class ToolResultChunk(_WithArgs):
    """A tool returned."""

    type: ClassVar[Literal["tool-result"]] = "tool-result"
    result_json: str
    provider_executed: bool

    @cached_property
    def result(self) -> Any:
        """What the tool returned."""
        return _json.parse(self.result_json)


@dataclass(frozen=True)
class ToolErrorChunk(_WithArgs):
    """A tool call failed; the model is told `message` and goes on. `code` is the kind of failure:
    `invalid-args`, `unknown-tool`, `exception`, `timeout`, `not-executed`, `invalid-result`,
    `recovery`, `cancelled`, `expired`, `hook`, `delegation` or `unavailable` (no worker took the call)."""

    type: ClassVar[Literal["tool-error"]] = "tool-error"
    message: str
    code: str


@dataclass(frozen=True)
class ToolOutputChunk(ChunkHeader):
    """A running tool reports."""

    type: ClassVar[Literal["tool-output"]] = "tool-output"
    tool_call_id: str
    tool_name: str
    output_json: str | None

    @cached_property
    def output(self) -> Any:
        """What the tool reports."""
        return value_of(self.output_json)


@dataclass(frozen=True)
class ToolOutputDeniedChunk(_WithArgs):
    """A call was declined; its tool was not entered. `reason` is what the model is told."""

    type: ClassVar[Literal["tool-output-denied"]] = "tool-output-denied"
    reason: str
    reason_json: str | None

    @cached_property
    def reason_data(self) -> Any:
        """Why, as data; None where there is none."""
        return value_of(self.reason_json)


@dataclass(frozen=True)
class _Waiting(_WithArgs):
    pending_call_id: str
    args_digest: bytes
    resume_schema_json: str | None
    expire_time: datetime | None

    @cached_property
    def resume_schema(self) -> Any:
        """The JSON Schema of the answer; None where there is none."""
        return value_of(self.resume_schema_json)


@dataclass(frozen=True)
class ToolCallApprovalChunk(_Waiting):
    """A call waits for approval. `agent.approve` and `agent.decline` take this chunk, until
    `expire_time` where there is one."""

    type: ClassVar[Literal["tool-call-approval"]] = "tool-call-approval"
    kind: ClassVar[PendingCallKind] = "approval"


@dataclass(frozen=True)
class ToolCallSuspendedChunk(_Waiting):
    """A call waits for something other than approval. `agent.resume`, `agent.submit_tool_result`
    and `agent.decline` take this chunk, until `expire_time` where there is one."""

    type: ClassVar[Literal["tool-call-suspended"]] = "tool-call-suspended"
    kind: PendingCallKind
    suspend_payload_json: str | None

    @cached_property
    def suspend_payload(self) -> Any:
        """What the tool asks; None where it asks nothing."""
        return value_of(self.suspend_payload_json)


@dataclass(frozen=True)
class ToolCallResolvedChunk(ChunkHeader):
    """A waiting call was decided, by whom and how."""

    type: ClassVar[Literal["tool-call-resolved"]] = "tool-call-resolved"
    pending_call_id: str
    tool_call_id: str
    tool_name: str
    verb: DecisionVerb
    principal: str
    decision_id: str
    edited_args_json: str | None

    @cached_property
    def edited_args(self) -> Any:
        """The arguments as the reviewer edited them; None where they were not edited."""
        return value_of(self.edited_args_json)
