"""What the engine does with threads apart from their runs: it says why one cannot be had, or deleted."""

from collections.abc import Iterable

from entracte_server.domain.errors import Refusal, invalid
from entracte_server.domain.runs import PendingRow, RunRow
from entracte_server.store.base import (
    PendingFilter,
    Refused,
    Store,
    ThreadBelow,
    ThreadBusy,
    ThreadNotYours,
)
from entracte_server.store.threads import DeleteThread, ThreadClaim

MAX_NAMED = 20
"""Pending calls that a refusal names: it has to fit into headers."""


def refusal_of_claim(
    error: ThreadBelow | ThreadBusy | ThreadNotYours, thread_id: str, claim: ThreadClaim | None
) -> Refusal:
    """Why a run cannot have the thread that it claimed."""
    if isinstance(error, ThreadNotYours):
        return Refusal(
            "THREAD_OF_OTHER_RESOURCE",
            f"The thread {thread_id!r} belongs to another resource than memory.resource says.",
            thread_id=thread_id,
        )
    if isinstance(error, ThreadBelow):
        return invalid(
            "options.memory.thread.id",
            "is a sub-agent's thread, which only its own runs write to: name another, or set read_only",
        )
    holder = error.holder
    if claim is not None and _may_wait(claim, holder) and error.queued >= claim.room:
        return Refusal(
            "THREAD_QUEUE_FULL",
            f"{error.queued} runs wait for the thread {thread_id!r}; no more may.",
            retry_after=1.0,
            thread_id=thread_id,
            limit=str(claim.room),
        )
    if holder.state == "suspended" and (claim is None or claim.replace is None):
        return _parked(
            thread_id, holder, error.pending, "decide its calls, cancel it, or set memory.on_parked_thread"
        )
    return _busy(
        thread_id, holder, "try again when it has ended, or set memory.on_busy_thread to wait for it"
    )


def _may_wait(claim: ThreadClaim, holder: RunRow) -> bool:
    if holder.state == "suspended":
        return claim.queue_parked or claim.replace is not None
    return claim.queue


async def refusal_of_deletion(store: Store, op: DeleteThread, refused: Refused) -> Refusal:
    """Why a thread is not deleted while a run has it. Raises `StoreUnavailable`."""
    holder = refused.run
    if holder is None:
        raise refused
    if holder.state != "suspended":
        return _busy(op.thread_id, holder, "delete it when the run has ended, or use force")
    where = PendingFilter(run_id=holder.run_id)
    found, _ = await store.list_pending(op.tenant, where, cursor="", limit=MAX_NAMED)
    pending = [row for row, _ in found]
    return _parked(op.thread_id, holder, pending, "decide its calls, cancel it, or use force")


def _parked(thread_id: str, holder: RunRow, pending: Iterable[PendingRow], fix: str) -> Refusal:
    ids = [row.pending_call_id for row in pending]
    return Refusal(
        "THREAD_PARKED",
        f"The run {holder.run_id} has the thread {thread_id!r} and waits for people: {fix}.",
        thread_id=thread_id,
        run_id=holder.run_id,
        pending_call_ids=",".join(ids[:MAX_NAMED]),
    )


def _busy(thread_id: str, holder: RunRow, fix: str) -> Refusal:
    return Refusal(
        "THREAD_BUSY",
        f"The run {holder.run_id} has the thread {thread_id!r}: {fix}.",
        retry_after=1.0,
        thread_id=thread_id,
        run_id=holder.run_id,
        state=holder.state,
    )
