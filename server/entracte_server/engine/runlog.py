"""The log of one owned run: numbers and encodes its chunks and hands them, with the changes of state
that belong to them, to the store. Commit, then send: readers are told only what is durable.

What is emitted while a write is in flight goes into the next one, so that batches grow with load.
Everything happens on the event loop, without a task of its own.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence

import structlog

from entracte_server.domain.chunks import FinishReason, Payload, StopCause
from entracte_server.domain.follow_ups import FollowUpRow
from entracte_server.domain.results import RunError
from entracte_server.domain.runs import (
    CallRow,
    DecisionRow,
    PendingRow,
    Processing,
    Remembered,
    RunRow,
    RunState,
    StepRecord,
)
from entracte_server.domain.threads import ThreadMessage
from entracte_server.domain.work import CloseWork, NewWork
from entracte_server.engine.hub import Hub
from entracte_server.engine.lease import Lease
from entracte_server.store.base import (
    ChildWrite,
    ChunkRow,
    End,
    LeaseLost,
    Park,
    Release,
    RunPatch,
    RunWrite,
    Store,
    StoreUnavailable,
    Written,
)
from entracte_server.store.working_memory import Note
from entracte_server.wire.codec import ChunkEncoder

_log = structlog.get_logger(__name__)

_RETRY_DELAYS = (0.05, 0.2, 0.5, 1.0, 2.0, 4.0)
"""Seconds between attempts at a write that the store could not take."""


def now_ms() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def patched(old: RunPatch | None, new: RunPatch) -> RunPatch:
    """Both in one."""
    if old is None:
        return new
    return RunPatch(
        step=old.step if new.step is None else new.step,
        attempt=old.attempt if new.attempt is None else new.attempt,
        usage=old.usage if new.usage is None else new.usage,
    )


class RunLog:
    """See the module. Raises `LeaseLost` or `StoreUnavailable` from any method once a write failed
    for good; nothing is written after that."""

    __slots__ = (
        "_backlog",
        "_buffer",
        "_calls",
        "_children",
        "_closed",
        "_closed_work",
        "_encoder",
        "_end",
        "_error",
        "_first",
        "_hub",
        "_inflight",
        "_lease",
        "_messages",
        "_next",
        "_notes",
        "_opened",
        "_park",
        "_patch",
        "_processing",
        "_release",
        "_remembered",
        "_room",
        "_run",
        "_size",
        "_steps",
        "_store",
        "_taken_output",
        "_tries",
        "_waiter",
        "_work",
        "fence",
        "freed",
        "has_work",
        "key",
        "owner",
    )

    def __init__(self, store: Store, hub: Hub, lease: Lease, run: RunRow, backlog: int) -> None:
        self.key = (run.tenant, run.run_id)
        self.fence = run.fence
        self.owner = run.owner
        self._store = store
        self._hub = hub
        self._lease = lease
        self._backlog = backlog
        self._run = run.run_id
        self._next = self._first = run.last_sequence + 1
        self._buffer: list[bytes] = []
        self._size = 0
        # A run that ends between two steps has no attempt of the next one yet, and attempts count from 1.
        self._encoder = ChunkEncoder(run.run_id, run.step, max(1, run.attempt))
        self._patch: RunPatch | None = None
        self._processing: Processing | None = None
        self._remembered: Remembered | None = None
        self._messages: list[ThreadMessage] = []
        self._notes: dict[tuple[str, str], Note] = {}
        self._steps: list[StepRecord] = []
        self._calls: dict[str, CallRow] = {}
        self._children: dict[str, ChildWrite] = {}
        self._opened: list[PendingRow] = []
        self._closed: list[DecisionRow] = []
        self._park: Park | None = None
        self._end: End | None = None
        self._release: Release | None = None
        self._inflight: RunWrite | None = None
        self._waiter: asyncio.Future[Written] | None = None
        self._room: asyncio.Future[None] | None = None
        self._tries = 0
        self._error: Exception | None = None
        self._work: list[NewWork] = []
        self._closed_work: list[CloseWork] = []
        self._taken_output: dict[str, int] = {}
        self.has_work = False
        """Whether there may be work of the run that is not known here, and is to be closed when it ends."""
        self.freed = False
        """Whether the end of the run let another one have its thread."""

    @property
    def last_sequence(self) -> int:
        """The sequence of the last chunk emitted, durable or not."""
        return self._next - 1

    def begin(self, step: int, attempt: int) -> None:
        """Later chunks belong to this attempt of this step."""
        self._encoder = ChunkEncoder(self._run, step, attempt)

    @property
    def unwritten(self) -> int:
        """How many bytes of chunks wait for the write in flight to end."""
        return self._size

    def emit(self, *payloads: Payload) -> None:
        """Add chunks; they are written with the next `flush` or `commit`."""
        self.extend(payloads)

    def extend(self, payloads: Sequence[Payload] | Iterable[Payload]) -> None:
        """As `emit`."""
        self.append(self._encoder, payloads)

    def append(self, encoder: ChunkEncoder, payloads: Sequence[Payload] | Iterable[Payload]) -> None:
        """As `emit`, for chunks with another header."""
        if self._error is not None:
            raise self._error
        payloads = payloads if isinstance(payloads, (list, tuple)) else list(payloads)
        if not payloads:
            return
        data = encoder.encode(payloads, self._next, now_ms())
        self._next += len(payloads)
        self._size += len(data)
        self._buffer.append(data)

    def stage(
        self,
        *,
        patch: RunPatch | None = None,
        steps: Iterable[StepRecord] = (),
        calls: Iterable[CallRow] = (),
        opened: Iterable[PendingRow] = (),
        closed: Iterable[DecisionRow] = (),
        processing: Processing | None = None,
        messages: Iterable[ThreadMessage] = (),
        remembered: Remembered | None = None,
        note: Note | None = None,
        work: Iterable[NewWork] = (),
        closed_work: Iterable[CloseWork] = (),
        taken_output: Iterable[tuple[str, int]] = (),
    ) -> None:
        """Add changes of state; they are written with the next `commit`, and with a `flush`."""
        if patch is not None:
            self._patch = patched(self._patch, patch)
        self._steps.extend(steps)
        for call in calls:
            self._calls[call.call_id] = call
        self._opened.extend(opened)
        self._closed.extend(closed)
        if processing is not None:
            self._processing = processing
        self._messages.extend(messages)
        if remembered is not None:
            self._remembered = remembered
        if note is not None:
            self._notes[note.resource_id, note.thread_id] = note
        self._work.extend(work)
        self._closed_work.extend(closed_work)
        self._taken_output.update(taken_output)

    def stage_child(self, run_id: str, change: Callable[[ChildWrite], ChildWrite]) -> None:
        """Add changes of a sub-agent's run, as `stage` does, to those that wait to be written."""
        self._children[run_id] = change(self._children.get(run_id) or ChildWrite(run_id))

    def flush(self) -> None:
        """Have what was emitted written, without waiting for it."""
        if self._error is not None:
            raise self._error
        if self._inflight is None:
            self._submit()

    async def room(self) -> None:
        """Wait while the run is too far ahead of its log."""
        while self._size > self._backlog and self._error is None:
            self.flush()
            if self._room is None:
                self._room = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._room)
        if self._error is not None:
            raise self._error

    async def commit(self) -> None:
        """Write what was emitted and staged; returns when it is durable."""
        await self._written()

    async def park(
        self,
        finish: Payload,
        finish_reason: FinishReason,
        stop_cause: StopCause,
        executed_ms: int,
        below: Sequence[tuple[ChunkEncoder, Payload]] = (),
    ) -> bool:
        """Write what was emitted and staged, and in the same transaction suspend the run and give
        it up, with those of `below`, its sub-agents', and `finish` as its last chunks; unless a decision
        or a cancellation waits, or more is emitted before it is written. Says whether it parked."""
        first, now = self._next, now_ms()
        last = [*below, (self._encoder, finish)]
        data = [encoder.encode((payload,), first + i, now) for i, (encoder, payload) in enumerate(last)]
        row = ChunkRow(first, first + len(last) - 1, b"".join(data))
        self._park = Park(row, finish_reason, stop_cause, executed_ms)
        try:
            return (await self._written()).parked
        finally:
            self._park = None  # if it was cut off while it waited for its turn, something else is to come

    async def end(
        self,
        state: RunState,
        finish_reason: FinishReason,
        stop_cause: StopCause,
        executed_ms: int,
        error: RunError | None = None,
        follow_ups: tuple[FollowUpRow, ...] = (),
    ) -> None:
        """Write what was emitted and staged, and in the same transaction end the run."""
        self._end = End(
            state, finish_reason, stop_cause, executed_ms, error, follow_ups, closes_work=self.has_work
        )
        await self._written()

    async def release(self, executed_ms: int) -> None:
        """Write what was emitted and staged, and in the same transaction give the run up while it
        runs, so that another process goes on with it."""
        self._release = Release(executed_ms)
        await self._written()

    def check(self) -> None:
        """Raises `LeaseLost` unless this process may begin what cannot be taken back."""
        if not self._lease.held(self.owner, margin=True):
            raise LeaseLost(f"the lease on run {self.key[1]} may be over")

    @property
    def failed(self) -> bool:
        """Whether nothing more can be written."""
        return self._error is not None

    def abandon(self) -> None:
        """The run may have another owner: nothing more is written."""
        if self._error is None:
            self._fail(LeaseLost(f"the lease on run {self.key[1]} is over"), None)

    async def _written(self) -> Written:
        if self._error is not None:
            raise self._error
        if self._waiter is None:
            self._waiter = asyncio.get_running_loop().create_future()
        waiter = self._waiter
        if self._inflight is None:
            self._submit()
        return await asyncio.shield(waiter)

    def _submit(self) -> None:
        changed = (
            self._patch
            or self._steps
            or self._calls
            or self._opened
            or self._closed
            or self._processing
            or self._messages
            or self._remembered
            or self._children
            or self._notes
            or self._work
            or self._closed_work
            or self._taken_output
        )
        if self._park is not None and self._park.chunks.first != self._next:
            self._park = None  # a sub-agent goes on
        if not (self._buffer or changed or self._waiter):
            return
        chunks = None
        if self._buffer:
            data = self._buffer[0] if len(self._buffer) == 1 else b"".join(self._buffer)
            chunks = ChunkRow(self._first, self._next - 1, data)
        self._first = self._next
        self._inflight = RunWrite(
            tenant=self.key[0],
            run_id=self.key[1],
            fence=self.fence,
            chunks=chunks,
            patch=self._patch,
            steps=tuple(self._steps),
            calls=tuple(self._calls.values()),
            opened=tuple(self._opened),
            closed=tuple(self._closed),
            park=self._park,
            end=self._end,
            release=self._release,
            processing=self._processing,
            messages=tuple(self._messages),
            remembered=self._remembered,
            children=tuple(self._children.values()) if self._children else (),
            notes=tuple(self._notes.values()) if self._notes else (),
            work=tuple(self._work) if self._work else (),
            closed_work=tuple(self._closed_work) if self._closed_work else (),
            taken_output=tuple(self._taken_output.items()) if self._taken_output else (),
        )
        self._buffer = []
        self._size = 0
        if changed:
            self._patch = None
            self._steps = []
            self._calls = {}
            self._children = {}
            self._opened = []
            self._closed = []
            self._processing = None
            self._messages = []
            self._remembered = None
            self._notes = {}
            self._work = []
            self._closed_work = []
            self._taken_output = {}
        self._park = self._end = self._release = None
        waiter, self._waiter = self._waiter, None
        self._tries = 0
        self._send(self._inflight, waiter)

    def _send(self, write: RunWrite, waiter: "asyncio.Future[Written] | None") -> None:
        # Giving up is left to the fence: it takes nothing from whoever owns the run by now.
        if write.release is None and not self._lease.held(self.owner):
            self._fail(LeaseLost(f"the lease on run {self.key[1]} is over"), waiter)
            return
        future = self._store.submit(write)
        future.add_done_callback(lambda done: self._done(done, write, waiter))

    def _done(
        self,
        done: "asyncio.Future[Written]",
        write: RunWrite,
        waiter: "asyncio.Future[Written] | None",
    ) -> None:
        error: BaseException | None = (
            StoreUnavailable("the store was closed") if done.cancelled() else done.exception()
        )
        if isinstance(error, StoreUnavailable) and self._tries < len(_RETRY_DELAYS):
            delay = _RETRY_DELAYS[self._tries]
            self._tries += 1
            _log.warning("write_retried", run_id=write.run_id, delay=delay, error=str(error))
            asyncio.get_running_loop().call_later(delay, self._send, write, waiter)
            return
        if error is not None:
            self._fail(error if isinstance(error, Exception) else RuntimeError(repr(error)), waiter)
            return
        if self._error is not None:  # abandoned meanwhile: what was written is in the log
            if waiter is not None and not waiter.done():
                waiter.set_exception(self._error)
                waiter.exception()
            return
        written = done.result()
        self.freed = self.freed or written.freed
        row = write.chunks
        state: RunState | None = None
        if write.park is not None and written.parked:
            state = "suspended"
            parked = write.park.chunks
            row = parked if row is None else ChunkRow(row.first, parked.last, row.data + parked.data)
            self._next = self._first = parked.last + 1
        elif write.end is not None:
            state = write.end.state
        if row is not None or state is not None:
            self._hub.publish(self.key, row, state)
        if write.opened or write.closed:
            opened = [pending.pending_call_id for pending in write.opened]
            closed = [decision.pending_call_id for decision in write.closed]
            self._hub.inbox.changed(self.key[0], opened + closed)
        if write.has_work:
            self._tell_of_work(write)
        self._inflight = None
        if waiter is not None and not waiter.done():
            waiter.set_result(written)
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        self._room = None
        self._submit()

    def _tell_of_work(self, write: RunWrite) -> None:
        desk, tenant = self._hub.desk, self.key[0]
        if write.work:
            desk.opened(tenant)
        if write.closed_work:
            desk.closed(tenant, write.closed_work)
        if write.end is not None and write.end.closes_work:
            desk.dropped(tenant)

    def _fail(self, error: Exception, waiter: "asyncio.Future[Written] | None") -> None:
        if not isinstance(error, (LeaseLost, StoreUnavailable)):
            _log.error("write_failed", run_id=self.key[1], error=repr(error))
        self._error = error
        self._inflight = None
        for future in (waiter, self._waiter):
            if future is not None and not future.done():
                future.set_exception(error)
                future.exception()  # a waiter that was cancelled must not be reported as forgotten
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
