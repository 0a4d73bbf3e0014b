"""What a run's owner writes: its creation, its progress, its parking, its release and its end.

Each function is one operation of a transaction. It raises a `StoreError` before it has written
anything.
"""

from msgspec.structs import replace

from entracte_server.domain.runs import CallRow, DecisionRow, PendingRow
from entracte_server.store.base import (
    ChunkRow,
    Created,
    CreateRun,
    End,
    LeaseLost,
    Park,
    RunExists,
    RunPatch,
    RunWrite,
    Written,
)
from entracte_server.store.records import decision_data, encode, encode_error, pending_data, run_values
from entracte_server.store.sqlite import children, follow_ups, messages, turns, work, working_memory
from entracte_server.store.sqlite.codec import INSERT_RUN
from entracte_server.store.sqlite.requests import made_by, record
from entracte_server.store.sqlite.writer import Transaction

_CREATED = Created()
_WRITTEN = Written()
_FREED = Written(freed=True)
_PARKED = Written(parked=True)

# The four forms of the statement that checks the fence: with and without chunks, with and without
# other values. The first two are most of the load. A run without an owner takes no writes.
_OWNED = " WHERE seq = ? AND tenant = ? AND run_id = ? AND fence = ? AND owner <> ''"
_FOLLOWS = " AND last_sequence = ?"
_PATCH = (
    ", step = coalesce(?, step), attempt = coalesce(?, attempt), usage = coalesce(?, usage), "
    "takeovers = CASE ? WHEN 1 THEN 0 ELSE takeovers END"
)
_TOUCH = "UPDATE runs SET update_time = ?" + _OWNED
_TOUCH_PATCH = "UPDATE runs SET update_time = ?" + _PATCH + _OWNED
_APPEND = "UPDATE runs SET update_time = ?, last_sequence = ?" + _OWNED + _FOLLOWS
_APPEND_PATCH = "UPDATE runs SET update_time = ?, last_sequence = ?" + _PATCH + _OWNED + _FOLLOWS

_FIND = "SELECT seq, format FROM runs WHERE tenant = ? AND run_id = ?"
_LAST_SEQUENCE = "SELECT last_sequence FROM runs WHERE seq = ?"
_WHERE_IT_STANDS = "SELECT seq, fence, owner, state, last_sequence FROM runs WHERE tenant = ? AND run_id = ?"

_PARK = (
    "UPDATE runs SET state = 'suspended', owner = '', last_sequence = ?, finish_reason = ?, "
    "stop_cause = ?, executed_ms = executed_ms + ?, takeovers = 0 "
    "WHERE seq = ? AND tenant = ? AND fence = ? AND cancel_reason IS NULL "
    "AND NOT EXISTS (SELECT 1 FROM tool_calls WHERE run = runs.seq AND state = 'decided')"
)
_END = (
    "UPDATE runs SET state = ?, owner = '', finish_reason = ?, stop_cause = ?, error = ?, "
    "executed_ms = executed_ms + ?, finish_time = ? WHERE seq = ? AND tenant = ? AND fence = ? "
    "RETURNING thread_id IS NOT NULL"
)
_RELEASE = (
    "UPDATE runs SET owner = '', executed_ms = executed_ms + ? WHERE seq = ? AND tenant = ? AND fence = ?"
)
_CLOSE_REST = "UPDATE pending_calls SET state = 'decided' WHERE run = ? AND state = 'open'"

_INSERT_SPEC = "INSERT INTO run_specs (run, format, data) VALUES (?, ?, ?)"
_UPSERT_STEP = (
    "INSERT INTO steps (run, step, format, data) VALUES (?, ?, ?, ?) "
    "ON CONFLICT (run, step) DO UPDATE SET format = excluded.format, data = excluded.data"
)
_UPSERT_CALL = (
    "INSERT INTO tool_calls (run, call_id, state, format, data) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT (run, call_id) DO UPDATE "
    "SET state = excluded.state, format = excluded.format, data = excluded.data"
)
_PROCESSING = "UPDATE run_specs SET processing = ? WHERE run = ?"
_REMEMBERED = "UPDATE run_specs SET remembered = ? WHERE run = ?"
_INSERT_PENDING = (
    "INSERT INTO pending_calls (tenant, pending_call_id, run, call_id, state, create_time, expire_time, "
    "claimed_by, claimed_until, decision_id, agent_id, thread_id, resource_id, format, data) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (tenant, pending_call_id) DO NOTHING"
)
_PENDING_OF_RUN = "SELECT 1 FROM pending_calls WHERE tenant = ? AND pending_call_id = ? AND run = ?"
_SETTLE = (
    "UPDATE pending_calls SET state = 'decided', decision_id = ? "
    "WHERE tenant = ? AND pending_call_id = ? AND run = ? AND state = 'open'"
)
_INSERT_DECISION = (
    "INSERT INTO decisions (tenant, decision_id, run, call_id, pending_call_id, principal, format, data) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)


def create_run(op: CreateRun, transaction: Transaction) -> Created:
    """See `Store.create_run`."""
    if (made := made_by(transaction.cursor, op.request)) is not None:
        return Created(made)
    run = op.run
    chunks = op.chunks
    if chunks is not None and chunks.last != run.last_sequence:
        raise ValueError("a new run's last sequence is that of its first chunks")
    claim = op.claim
    place = None if claim is None else turns.find_place(run, claim, transaction)
    if place is not None and place.queued:
        run = replace(run, state="queued", owner="", fence=0)
    row = transaction.execute(INSERT_RUN, run_values(run)).fetchone()
    if row is None:
        raise RunExists(f"run {run.run_id} exists")
    seq: int = row[0]
    transaction.runs.keep(run.tenant, run.run_id, seq, run.format)
    transaction.execute(_INSERT_SPEC, (seq, run.format, encode(op.spec)))
    if chunks is not None:
        transaction.chunks.append((seq, chunks.first, chunks.last, chunks.data))
    record(transaction, op.request, run.run_id)
    if claim is None or place is None:
        return _CREATED
    turns.take(place, seq, run, claim, transaction)
    return Created(queued=place.queued, replaced="" if place.replaces is None else place.replaces[1])


def is_patient(op: RunWrite) -> bool:
    """Whether a write has nothing but chunks, and what processed them: nothing that anybody waits for."""
    return (
        op.patch is None
        and not (op.steps or op.calls or op.opened or op.closed or op.messages)
        and not (op.children or op.notes or op.has_work)
        and op.park is None
        and op.end is None
        and op.release is None
    )


def write_run(op: RunWrite, transaction: Transaction) -> Written:
    """See `Store.write`.

    A write that is repeated because nobody knows whether its commit succeeded recognises itself: by
    its chunks, by the pending calls it opened, or by the state it left the run in. What else it holds
    may be written twice, since nobody but the owner writes it while the owner waits.
    """
    execute = transaction.execute
    chunks = op.chunks
    known = transaction.runs.find(op.tenant, op.run_id) or _find(transaction, op)
    run, form = known
    key = (run, op.tenant, op.run_id, op.fence)
    # A complete answer of the model or of a tool is progress: takeovers are counted anew from there.
    progress = bool(op.steps) or any(call.state == "done" for call in op.calls)
    progress = progress or any(child.steps for child in op.children)
    if op.patch is None and not progress:
        if chunks is None:
            done = execute(_TOUCH, (transaction.now, *key))
        else:
            done = execute(_APPEND, (transaction.now, chunks.last, *key, chunks.first - 1))
    else:
        values = _patch_values(op.patch, progress)
        if chunks is None:
            done = execute(_TOUCH_PATCH, (transaction.now, *values, *key))
        else:
            done = execute(_APPEND_PATCH, (transaction.now, chunks.last, *values, *key, chunks.first - 1))
    if not done.rowcount:
        return _not_written(transaction, op, run)
    if op.opened and not _open(transaction, op, run, form):
        return _WRITTEN
    if chunks is not None:
        before, last = chunks.first - 1, chunks.last
    elif op.closed or op.park is not None:
        before = last = execute(_LAST_SEQUENCE, (run,)).fetchone()[0]
    for decision in op.closed:
        settle = (decision.decision_id, op.tenant, decision.pending_call_id, run)
        if execute(_SETTLE, settle).rowcount:
            insert_decision(transaction, op.tenant, decision, run, form, decision.sequence or before)
    for call in op.calls:
        upsert_call(transaction, call, run, form)
    for step in op.steps:
        execute(_UPSERT_STEP, (run, step.step, form, encode(step)))
    if op.processing is not None:
        execute(_PROCESSING, (encode(op.processing), run))
    if op.remembered is not None:
        execute(_REMEMBERED, (encode(op.remembered), run))
    if op.messages:
        messages.add(op.messages, run, transaction)
    if op.children:
        children.write(op, run, transaction)
    for note in op.notes:
        working_memory.note(note, op.tenant, run, transaction)
    if op.has_work:
        work.write(op, run, transaction)
    if op.park is not None:
        return _park(transaction, op, op.park, run, last)
    if chunks is not None:
        transaction.chunks.append((run, chunks.first, chunks.last, chunks.data))
    if op.end is not None:
        has_thread = _end(transaction, op, op.end, run)
        if op.end.follow_ups:
            follow_ups.insert(op.end.follow_ups, run, form, transaction)
        if has_thread and turns.give_up(run, transaction):
            return _FREED
    elif op.release is not None:
        transaction.execute(_RELEASE, (op.release.executed_ms, run, op.tenant, op.fence))
        transaction.runs.forget(op.tenant, op.run_id)
    return _WRITTEN


def _find(transaction: Transaction, op: RunWrite) -> tuple[int, int]:
    row = transaction.execute(_FIND, (op.tenant, op.run_id)).fetchone()
    if row is None:
        raise LeaseLost(f"run {op.run_id} does not exist any more")
    transaction.runs.keep(op.tenant, op.run_id, *row)
    seq, form = row
    return seq, form


def _patch_values(patch: RunPatch | None, progress: bool) -> tuple[object, ...]:
    if patch is None:
        return None, None, None, progress
    usage = None if patch.usage is None else encode(patch.usage)
    return patch.step, patch.attempt, usage, progress


def _not_written(transaction: Transaction, op: RunWrite, run: int) -> Written:
    """Tell a repeated write, whose first attempt was committed, from one that must be refused."""
    transaction.runs.forget(op.tenant, op.run_id)
    row = transaction.execute(_WHERE_IT_STANDS, (op.tenant, op.run_id)).fetchone()
    if row is None:
        raise LeaseLost(f"run {op.run_id} does not exist any more")
    seq, fence, owner, state, last = row
    if seq != run:
        # The run was deleted and its id used again since the row id was kept.
        return write_run(op, transaction)
    if fence != op.fence:
        raise LeaseLost(f"run {op.run_id} is owned under fence {fence}, not {op.fence}")
    chunks = op.chunks
    if not owner:
        if op.park is not None and state == "suspended" and last == op.park.chunks.last:
            return _PARKED
        if op.end is not None and state == op.end.state and (chunks is None or chunks.last == last):
            return _WRITTEN
        if op.release is not None and state == "running" and (chunks is None or chunks.last == last):
            return _WRITTEN
        raise LeaseLost(f"run {op.run_id} has no owner any more")
    if chunks is not None and chunks.last <= last:
        return _WRITTEN
    first = 0 if chunks is None else chunks.first
    raise ValueError(f"chunks from {first} do not follow {last}, the last of run {op.run_id}")


def _open(transaction: Transaction, op: RunWrite, run: int, form: int) -> bool:
    """Insert the pending calls; False when they were there, so that the write is a repetition."""
    for pending in op.opened:
        if not transaction.execute(_INSERT_PENDING, _pending_values(op.tenant, pending, run, form)).rowcount:
            there = transaction.execute(_PENDING_OF_RUN, (op.tenant, pending.pending_call_id, run))
            if pending is op.opened[0] and there.fetchone() is not None:
                return False
            raise ValueError(f"pending call id {pending.pending_call_id} is taken")
    return True


def _pending_values(tenant: str, pending: PendingRow, run: int, form: int) -> tuple[object, ...]:
    return (
        tenant,
        pending.pending_call_id,
        run,
        pending.call_id,
        pending.state,
        pending.create_time,
        pending.expire_time,
        pending.claimed_by,
        pending.claimed_until,
        pending.decision_id,
        pending.agent_id,
        pending.thread_id,
        pending.resource_id,
        form,
        pending_data(pending),
    )


def _park(transaction: Transaction, op: RunWrite, park: Park, run: int, last: int) -> Written:
    chunks = op.chunks
    tail = park.chunks
    if tail.first != last + 1:
        raise ValueError(f"chunks from {tail.first} do not follow {last}, the last of run {op.run_id}")
    parked = transaction.execute(
        _PARK,
        (tail.last, park.finish_reason, park.stop_cause, park.executed_ms, run, op.tenant, op.fence),
    ).rowcount
    if parked:
        transaction.runs.forget(op.tenant, op.run_id)
        chunks = tail if chunks is None else ChunkRow(chunks.first, tail.last, chunks.data + tail.data)
    if chunks is not None:
        transaction.chunks.append((run, chunks.first, chunks.last, chunks.data))
    return _PARKED if parked else _WRITTEN


def _end(transaction: Transaction, op: RunWrite, end: End, run: int) -> bool:
    """End the run; whether it has or reads a thread."""
    ended = transaction.execute(
        _END,
        (
            end.state,
            end.finish_reason,
            end.stop_cause,
            encode_error(end.error),
            end.executed_ms,
            transaction.now,
            run,
            op.tenant,
            op.fence,
        ),
    ).fetchone()
    transaction.runs.forget(op.tenant, op.run_id)
    # The owner closes what it opened. Should it forget one, nobody may be asked about a dead run.
    transaction.execute(_CLOSE_REST, (run,))
    return bool(ended[0])


def upsert_call(transaction: Transaction, call: CallRow, run: int, form: int) -> None:
    """Insert a call, or replace it."""
    transaction.execute(_UPSERT_CALL, (run, call.call_id, call.state, form, encode(call)))


def insert_decision(
    transaction: Transaction, tenant: str, decision: DecisionRow, run: int, form: int, sequence: int
) -> DecisionRow:
    """Add a decision, at `sequence` of its run; the decision as it is stored."""
    stored = replace(decision, sequence=sequence)
    transaction.execute(
        _INSERT_DECISION,
        (
            tenant,
            stored.decision_id,
            run,
            stored.call_id,
            stored.pending_call_id,
            stored.principal,
            form,
            decision_data(stored),
        ),
    )
    return stored
