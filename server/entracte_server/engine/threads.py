"""What the engine does with threads apart from their runs."""

from entracte_server.domain.errors import Refusal
from entracte_server.store.base import ThreadBusy, ThreadNotYours


def refusal_of_claim(error: ThreadBusy | ThreadNotYours, thread_id: str, room: int) -> Refusal:
    """Why a run cannot have its thread. `room` is how many may wait for one."""
    if isinstance(error, ThreadNotYours):
        return Refusal(
            "THREAD_OF_OTHER_RESOURCE",
            f"The thread {thread_id!r} belongs to another resource than memory.resource says.",
            thread_id=thread_id,
        )
    holder = error.holder
    if error.queued >= room:
        return Refusal(
            "THREAD_QUEUE_FULL",
            f"{error.queued} runs wait for the thread {thread_id!r}; no more may.",
            retry_after=1.0,
            thread_id=thread_id,
            limit=str(room),
        )
    if holder.state == "suspended":
        return Refusal(
            "THREAD_PARKED",
            f"The run {holder.run_id} has the thread {thread_id!r} and waits for people: decide its calls, "
            "cancel it, or set memory.on_parked_thread.",
            thread_id=thread_id,
            run_id=holder.run_id,
            pending_call_ids=",".join(row.pending_call_id for row in error.pending),
        )
    return Refusal(
        "THREAD_BUSY",
        f"The run {holder.run_id} has the thread {thread_id!r}: try again when it has ended, or set "
        "memory.on_busy_thread to wait for it.",
        retry_after=1.0,
        thread_id=thread_id,
        run_id=holder.run_id,
        state=holder.state,
    )
