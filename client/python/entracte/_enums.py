"""The enumerations of the contract as strings, named as in the chunks of the reference.

A value that this version does not know reads as `"unknown"`, a value that is not set as None.
"""

from collections.abc import Mapping
from typing import Any, Literal, Protocol

from entracte.v1 import (
    agent_pb2,
    chunk_pb2,
    follow_up_pb2,
    message_pb2,
    pending_call_pb2,
    result_pb2,
    run_pb2,
    thread_pb2,
)

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
    "unknown",
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
    "unknown",
]
PendingCallKind = Literal["approval", "suspension", "client-tool", "recovery", "unknown"]
ExpiryAction = Literal["decline", "fail", "answer", "unknown"]
PendingCallState = Literal["open", "decided", "unknown"]
DecisionVerb = Literal["approve", "decline", "resume", "submit", "cancel", "expire", "unknown"]
RunState = Literal["queued", "running", "suspended", "succeeded", "failed", "cancelled", "unknown"]
FollowUpKind = Literal["score", "title", "unknown"]
FollowUpState = Literal["waiting", "succeeded", "failed", "skipped", "unknown"]
ChunkSource = Literal["agent", "user", "system", "unknown"]
Role = Literal["system", "user", "assistant", "tool", "unknown"]
ToolInvocationState = Literal["pending", "result", "error", "denied", "cancelled", "unknown"]


class _Enum(Protocol):
    def items(self) -> list[tuple[str, Any]]: ...


def _names(enum: _Enum, prefix: str) -> dict[int, Any]:
    return {
        int(number): name.removeprefix(prefix).lower().replace("_", "-")
        for name, number in enum.items()
        if number
    }


FINISH_REASONS: Mapping[int, FinishReason] = _names(result_pb2.FinishReason, "FINISH_REASON_")
STOP_CAUSES: Mapping[int, StopCause] = _names(result_pb2.StopCause, "STOP_CAUSE_")
KINDS: Mapping[int, PendingCallKind] = _names(chunk_pb2.PendingCallKind, "PENDING_CALL_KIND_")
CALL_STATES: Mapping[int, PendingCallState] = _names(pending_call_pb2.PendingCallState, "PENDING_CALL_STATE_")
EXPIRY_ACTIONS: Mapping[int, ExpiryAction] = _names(pending_call_pb2.ExpiryAction, "EXPIRY_ACTION_")
VERBS: Mapping[int, DecisionVerb] = _names(chunk_pb2.DecisionVerb, "DECISION_VERB_")
RUN_STATES: Mapping[int, RunState] = _names(run_pb2.RunState, "RUN_STATE_")
FOLLOW_UP_KINDS: Mapping[int, FollowUpKind] = _names(follow_up_pb2.FollowUpKind, "FOLLOW_UP_KIND_")
FOLLOW_UP_STATES: Mapping[int, FollowUpState] = _names(follow_up_pb2.FollowUpState, "FOLLOW_UP_STATE_")
SOURCES: Mapping[int, ChunkSource] = _names(chunk_pb2.ChunkSource, "CHUNK_SOURCE_")
ROLES: Mapping[int, Role] = _names(message_pb2.Role, "ROLE_")
INVOCATION_STATES: Mapping[int, ToolInvocationState] = _names(
    thread_pb2.ToolInvocationState, "TOOL_INVOCATION_STATE_"
)
AGENT_ORIGINS: Mapping[int, Any] = _names(agent_pb2.Agent.Origin, "ORIGIN_")
VERSION_STATUSES: Mapping[int, Any] = _names(agent_pb2.AgentVersion.Status, "STATUS_")


def number_of(table: Mapping[int, Any], name: str, what: str) -> Any:
    """The number of a named value. Raises ValueError naming the choices."""
    for number, known in table.items():
        if known == name:
            return number
    raise ValueError(f"{what} must be one of {', '.join(table.values())}, not {name!r}")


def finish_reason(value: int) -> FinishReason | None:
    """A finish reason; None while there is none."""
    return FINISH_REASONS.get(value, "unknown") if value else None


def stop_cause(value: int) -> StopCause | None:
    """A stop cause; None while there is none."""
    return STOP_CAUSES.get(value, "unknown") if value else None
