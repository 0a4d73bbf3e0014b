"""What a run's owner writes: its creation, its progress, its parking and its end."""

from entracte_server.store.base import (
    ChunkRow,
    Created,
    CreateRun,
    LeaseLost,
    RunExists,
    RunWrite,
    ThreadNotYours,
    Written,
)
from entracte_server.store.postgres import children, requests, turns, work
from entracte_server.store.postgres.connection import Result, Statement
from entracte_server.store.postgres.creation import creation
from entracte_server.store.postgres.programs import Attempt, Program
from entracte_server.store.postgres.progress import packed, progress
from entracte_server.store.postgres.rows import LOCK_RUN, LOCK_RUN_WITHOUT_THREAD, PENDING_WITH_RUN
from entracte_server.store.records import encode

_CREATED = Created()
_WRITTEN = Written()
_PARKED = Written(parked=True)
_FREED = Written(freed=True)

_TAKEN_BY = "SELECT taken_by FROM entracte.runs WHERE tenant = $1 AND run_id = $2"
_RESOURCE = "SELECT resource_id FROM entracte.threads WHERE tenant = $1 AND thread_id = $2 AND deleted = 0"

# Most of the load: one statement that checks the fence and, by changing it, locks the run's row.
_APPEND = (
    "WITH run AS (UPDATE entracte.runs SET update_time = $1, last_sequence = $2, "
    "step = coalesce($3, step), attempt = coalesce($4, attempt), usage = coalesce($5, usage) "
    "WHERE tenant = $6 AND run_id = $7 AND fence = $8 AND owner <> '' AND last_sequence = $9 "
    "RETURNING seq) "
    "INSERT INTO entracte.chunks (run, first, last, size, data) SELECT seq, $10, $2, $11, $12 FROM run"
)
_WHERE_IT_STANDS = (
    "SELECT fence, owner, state, last_sequence FROM entracte.runs WHERE tenant = $1 AND run_id = $2"
)
_OPENED = (
    f"SELECT p.pending_call_id, r.run_id FROM {PENDING_WITH_RUN} "
    "WHERE p.tenant = $1 AND p.pending_call_id = ANY($2::text[])"
)


def create_run(op: CreateRun, at: Attempt) -> Program[Created]:
    """See `Store.create_run`. In a transaction of its own if the run is to have a thread."""
    run, chunks, request = op.run, op.chunks, op.request
    if chunks is not None and chunks.last != run.last_sequence:
        raise ValueError("a new run's last sequence is that of its first chunks")
    if has_thread(op):
        return (yield from turns.create_run(op, at))
    key = (run.tenant, run.run_id)
    *found, done = yield [*requests.find(request), creation(op, at)]
    made = requests.made_by(request, found)
    if done.rows:
        return _CREATED
    # Refused: the request was made before, the run id is taken or the thread another resource's - or this
    # is what made the run.
    taken_by, resource = yield [(_TAKEN_BY, key), (_RESOURCE, (run.tenant, run.thread_id))]
    if taken_by.rows == [(at.token,)]:
        return _CREATED
    if made is not None:
        return Created(made)
    if not taken_by.rows and resource.rows and resource.rows[0][0] != run.resource_id:
        raise ThreadNotYours(f"thread {run.thread_id} is another resource's")
    raise RunExists(f"run {run.run_id} exists")


def has_thread(op: CreateRun | RunWrite) -> bool:
    """Whether an operation is known to change which run has a thread, and gets a transaction of its own."""
    if isinstance(op, CreateRun):
        return op.claim is not None and not op.claim.reads_only
    return op.end is not None and bool(op.messages)


def write_run(op: RunWrite, at: Attempt) -> Program[Written]:
    """See `Store.write`.

    A write that is repeated because nobody knows whether its commit succeeded recognises itself: by
    its chunks, by the pending calls it opened, or by the state it left the run in. What else it holds
    may be written twice, since nobody but the owner writes it while the owner waits.
    """
    chunks = op.chunks
    if chunks is not None and _only_appends(op):
        (done,) = yield [_append(op, chunks, at)]
        if done.count:
            return _WRITTEN
    elif op.end is not None:
        ended = yield from _end(op, at)
        if ended is not None:
            return ended
    else:
        if op.park is not None and chunks is not None:
            _follows(op.park.chunks, chunks.last, op)
        below = _below(op, at)
        _, done, *_ = yield [(LOCK_RUN, (op.tenant, op.run_id)), progress(op, at), *below]
        if done.rows:
            return _PARKED if done.rows[0][0] else _WRITTEN
    return (yield from _not_written(op))


def _only_appends(op: RunWrite) -> bool:
    return not (
        op.steps
        or op.calls
        or op.opened
        or op.closed
        or op.processing
        or op.messages
        or op.remembered
        or op.notes
        or op.park
        or op.end
        or op.release
        or op.children
        or op.has_work
    )


def _below(op: RunWrite, at: Attempt) -> list[Statement]:
    """What is written after the run, in the same transaction."""
    below = children.statements(op, at) if op.children else []
    return [*below, *work.statements(op)] if op.has_work else below


def _end(op: RunWrite, at: Attempt) -> Program[Written | None]:
    """End the run; None if that was refused. One that has a thread, or reads one, is ended in a transaction
    of its own, in which it locks the thread before the run; so is one with sub-agents' runs or work to
    write."""
    key = (op.tenant, op.run_id)
    if not has_thread(op) and not op.children and not op.has_work:
        _, done = yield [(LOCK_RUN_WITHOUT_THREAD, key), progress(op, at, without_thread=True)]
        if done.rows:
            return _WRITTEN
    locks = yield from turns.lock(*key)
    below = _below(op, at)
    results = yield [*locks, progress(op, at), *below, turns.give_up(*key, at)]
    done, freed = results[len(locks)], results[-1]
    if not done.rows:
        return None
    return _FREED if freed.rows else _WRITTEN


def _append(op: RunWrite, chunks: ChunkRow, at: Attempt) -> Statement:
    step = attempt = usage = None
    if (patch := op.patch) is not None:
        step, attempt = patch.step, patch.attempt
        usage = None if patch.usage is None else encode(patch.usage)
    key = (op.tenant, op.run_id, op.fence)
    row = (chunks.first - 1, chunks.first, *packed(chunks.data))
    return _APPEND, (at.now, chunks.last, step, attempt, usage, *key, *row)


def _not_written(op: RunWrite) -> Program[Written]:
    """Tell a repeated write, whose first attempt was committed, from one that must be refused."""
    stands, opened = yield [
        (_WHERE_IT_STANDS, (op.tenant, op.run_id)),
        (_OPENED, (op.tenant, [pending.pending_call_id for pending in op.opened])),
    ]
    if not stands.rows:
        raise LeaseLost(f"run {op.run_id} does not exist any more")
    fence, owner, state, last = stands.rows[0]
    if fence != op.fence:
        raise LeaseLost(f"run {op.run_id} is owned under fence {fence}, not {op.fence}")
    if not owner:
        return _given_up(op, state, last)
    if op.chunks is not None and op.chunks.last <= last:
        return _WRITTEN
    if op.chunks is not None:
        _follows(op.chunks, last, op)
    if _was_opened(op, opened):
        return _WRITTEN
    if op.park is not None:
        _follows(op.park.chunks, last, op)
    raise AssertionError(f"a write of run {op.run_id} was refused without a reason")


def _given_up(op: RunWrite, state: str, last: int) -> Written:
    """The run has no owner any more: was it this write that gave it up?"""
    if op.park is not None and state == "suspended" and last == op.park.chunks.last:
        return _PARKED
    if op.chunks is None or op.chunks.last == last:
        if op.end is not None and state == op.end.state:
            return _WRITTEN
        if op.release is not None and state == "running":
            return _WRITTEN
    raise LeaseLost(f"run {op.run_id} has no owner any more")


def _was_opened(op: RunWrite, opened: Result) -> bool:
    """Whether the pending calls are there, so that the write is a repetition. Raises `ValueError` when
    their ids are those of others."""
    if not opened.rows:
        return False
    runs = dict(opened.rows)
    if runs.get(op.opened[0].pending_call_id) == op.run_id:
        return True
    raise ValueError(f"pending call id {opened.rows[0][0]} is taken")


def _follows(chunks: ChunkRow, last: int, op: RunWrite) -> None:
    if chunks.first != last + 1:
        raise ValueError(f"chunks from {chunks.first} do not follow {last}, the last of run {op.run_id}")
