"""Decisions: naming a call, and the requests of the four verbs."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

from entracte._chunks import Chunk, OpenCall, ToolCallApprovalChunk, ToolCallSuspendedChunk
from entracte._connection import Connection
from entracte._follow import Follower
from entracte._ids import new_id
from entracte._result_codec import decision_of
from entracte._results import PendingCall
from entracte._retry import Deadline
from entracte._stream import Beginning
from entracte.v1 import pending_call_pb2

CallLike = PendingCall | ToolCallApprovalChunk | ToolCallSuspendedChunk | OpenCall | str
"""A waiting call: from a result or the inbox, the chunk that announced it, or its pending call id."""


class DecisionRequest(Protocol):
    """What the requests of the four verbs have in common."""

    wait: bool


Verb = Literal["Resume", "Approve", "Decline", "SubmitToolResult"]


def method_of(connection: Connection, verb: Verb) -> Any:
    """The RPC of a verb."""
    return getattr(connection.agents, verb)


def call_ref(call: CallLike | None, options: Mapping[str, Any]) -> pending_call_pb2.CallRef:
    """Names the call: by its pending call id, else by `run_id` and perhaps `tool_call_id`.

    Raises TypeError when nothing names it.
    """
    run_id, tool_call_id = options.get("run_id") or "", options.get("tool_call_id") or ""
    pending_call_id = "" if call is None else call if isinstance(call, str) else call.pending_call_id
    if not pending_call_id and not run_id:
        raise TypeError("name the call: give the pending call, its id, or run_id and tool_call_id")
    if pending_call_id:
        return pending_call_pb2.CallRef(pending_call_id=pending_call_id)
    return pending_call_pb2.CallRef(run_id=run_id, tool_call_id=tool_call_id)


def args_digest(call: CallLike | None) -> bytes:
    """The digest of what was shown, where it was shown."""
    return b"" if call is None or isinstance(call, str | OpenCall) else call.args_digest


def run_id_of(call: CallLike | None, options: Mapping[str, Any]) -> str:
    """The run of a call, empty where only the server knows it."""
    if isinstance(call, PendingCall | ToolCallApprovalChunk | ToolCallSuspendedChunk):
        return call.run_id
    return options.get("run_id") or ""


def common_fields(options: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that all decisions have, but for the call itself."""
    return {
        "request_id": options.get("request_id") or new_id(),
        "on_behalf_of": options.get("on_behalf_of", ""),
        "comment": options.get("comment", ""),
    }


def decide_and_follow(
    connection: Connection,
    verb: Verb,
    request: DecisionRequest,
    seconds: float | None,
    metadata: Sequence[tuple[str, str]],
) -> Callable[[], Awaitable[Beginning]]:
    """Begins a stream with a decision: makes it, and follows the run from there."""

    async def begin() -> Beginning:
        deadline = Deadline(seconds)
        within = deadline.remaining()
        if within is None or (connection.timeout is not None and within > connection.timeout):
            within = connection.timeout
        response: Any = await connection.call(
            method_of(connection, verb), request, within=within, metadata=metadata
        )
        decision = decision_of(response.decision)
        position = response.run.last_sequence
        skip: Callable[[Chunk], bool] | None = None
        if response.replayed:
            # The answer to the first request was lost, and the run may have gone on since: what came
            # of the decision begins where the decision stands in the log.
            position, skip = 0, _before(decision.decision_id)
        run_id = response.run.run_id
        follower = Follower(connection, deadline, run_id=run_id, position=position, skip=skip)
        return Beginning(follower, decision)

    return begin


def _before(decision_id: str) -> Callable[[Chunk], bool]:
    def is_before(chunk: Chunk) -> bool:
        return chunk.type != "tool-call-resolved" or chunk.decision_id != decision_id

    return is_before
