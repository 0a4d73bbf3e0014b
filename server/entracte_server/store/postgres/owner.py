"""What a run's owner writes: its creation, its progress, its parking and its end."""

from entracte_server.store.base import (
    ChunkRow,
    Created,
    CreateRun,
    LeaseLost,
    RunExists,
    RunWrite,
    Written,
)
from entracte_server.store.postgres import requests
from entracte_server.store.postgres.connection import Result, Statement
from entracte_server.store.postgres.programs import Attempt, Program
from entracte_server.store.postgres.progress import packed, progress
from entracte_server.store.postgres.rows import LOCK_RUN, PENDING_WITH_RUN
from entracte_server.store.postgres.values import Values
from entracte_server.store.records import NEW_RUN_COLUMNS, encode, run_values

_CREATED = Created()
_WRITTEN = Written()
_PARKED = Written(parked=True)

_TAKEN_BY = "SELECT taken_by FROM entracte.runs WHERE tenant = $1 AND run_id = $2"

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
    """See `Store.create_run`."""
    run, chunks, request = op.run, op.chunks, op.request
    if chunks is not None and chunks.last != run.last_sequence:
        raise ValueError("a new run's last sequence is that of its first chunks")
    key = (run.tenant, run.run_id)
    *found, done = yield [*requests.find(request), _create(op, at)]
    made = requests.made_by(request, found)
    if done.rows:
        return _CREATED
    # Refused: the request was made before, or the run id is taken - or this is what made the run.
    (taken_by,) = yield [(_TAKEN_BY, key)]
    if taken_by.rows == [(at.token,)]:
        return _CREATED
    if made is not None:
        return Created(made)
    raise RunExists(f"run {run.run_id} exists")


def _create(op: CreateRun, at: Attempt) -> Statement:
    run, chunks, request = op.run, op.chunks, op.request
    value = Values()
    columns = value.row(*run_values(run), at.token)
    unused = "" if request is None else f"WHERE {requests.unused(request, value)} "
    parts = [
        f"run AS (INSERT INTO entracte.runs ({NEW_RUN_COLUMNS}, taken_by) SELECT {columns} {unused}"
        "ON CONFLICT (tenant, run_id) DO NOTHING RETURNING seq)",
        "spec AS (INSERT INTO entracte.run_specs (run, format, data) "
        f"SELECT seq, {value(run.format)}, {value(encode(op.spec))} FROM run)",
    ]
    if chunks is not None:
        size, data = packed(chunks.data)
        row = value.row(chunks.first, chunks.last, size, data)
        parts.append(
            f"log AS (INSERT INTO entracte.chunks (run, first, last, size, data) SELECT seq, {row} FROM run)"
        )
    if request is not None:
        parts.append(f"request AS ({requests.record(request, run.run_id, at, value, source='run')})")
    return f"WITH {', '.join(parts)} SELECT seq FROM run", value.bound


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
    else:
        if op.park is not None and chunks is not None:
            _follows(op.park.chunks, chunks.last, op)
        _, done = yield [(LOCK_RUN, (op.tenant, op.run_id)), progress(op, at)]
        if done.rows:
            return _PARKED if done.rows[0][0] else _WRITTEN
    return (yield from _not_written(op))


def _only_appends(op: RunWrite) -> bool:
    return not (
        op.steps or op.calls or op.opened or op.closed or op.processing or op.park or op.end or op.release
    )


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
