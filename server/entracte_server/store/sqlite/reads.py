"""Reads of one run, one call or one decision. Each function runs on a reading connection's thread."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from entracte_server.domain.runs import (
    CallRow,
    DecisionRow,
    PendingRow,
    RunRow,
    Snapshot,
    pending_under,
    split_calls,
)
from entracte_server.store.base import ChunkRow, Found, NotFound
from entracte_server.store.packing import unpack
from entracte_server.store.records import (
    DECISION_COLUMNS,
    PENDING_COLUMNS,
    decision_row,
    decode_call,
    decode_processing,
    decode_remembered,
    decode_spec,
    decode_step,
    pending_row,
)
from entracte_server.store.sqlite.codec import find_decision, find_pending, find_run

_SPEC = "SELECT data, processing, remembered FROM run_specs WHERE run = ?"
_STEPS = "SELECT data FROM steps WHERE run = ? ORDER BY step"
_CALLS = "SELECT data FROM tool_calls WHERE run = ?"
_CALL = "SELECT data FROM tool_calls WHERE run = ? AND call_id = ?"
_OPEN = (
    f"SELECT {PENDING_COLUMNS} FROM pending_calls p JOIN runs r ON r.seq = p.run "
    "WHERE p.run = ? AND p.state = 'open' ORDER BY p.seq"
)
_OPEN_WITH_CALL = (
    f"SELECT {PENDING_COLUMNS}, c.data FROM pending_calls p JOIN runs r ON r.seq = p.run "
    "JOIN tool_calls c ON c.run = p.run AND c.call_id = p.call_id "
    "WHERE p.run = ? AND p.state = 'open' AND (? = '' OR p.call_id = ?) ORDER BY p.seq"
)
_DECIDED_CALLS = "SELECT count(DISTINCT call_id) FROM decisions WHERE run = ?"
_LATEST_DECISION = (
    f"SELECT {DECISION_COLUMNS} FROM decisions d JOIN runs r ON r.seq = d.run "
    "WHERE d.run = (SELECT seq FROM runs WHERE tenant = ? AND run_id = ?) AND d.call_id = ? "
    "ORDER BY d.seq DESC LIMIT 1"
)
_LOG = "SELECT seq, last_sequence FROM runs WHERE tenant = ? AND run_id = ?"
_FIRST_CHUNK = "SELECT first FROM chunks WHERE run = ? ORDER BY last LIMIT 1"
_CHUNKS = "SELECT first, last, size, data FROM chunks WHERE run = ? AND last > ? ORDER BY last"


@contextmanager
def one_moment(connection: sqlite3.Connection) -> Iterator[sqlite3.Cursor]:
    """Statements that see the database as of one moment."""
    cursor = connection.cursor()
    cursor.execute("BEGIN")
    try:
        yield cursor
    finally:
        if connection.in_transaction:
            connection.execute("COMMIT")
        cursor.close()


def get_run(connection: sqlite3.Connection, tenant: str, run_id: str) -> RunRow:
    """See `Store.get_run`."""
    return _run(connection.cursor(), tenant, run_id)[1]


def load(connection: sqlite3.Connection, tenant: str, run_id: str) -> Snapshot:
    """See `Store.load`."""
    with one_moment(connection) as cursor:
        return snapshot(cursor, *_run(cursor, tenant, run_id))


def snapshot(cursor: sqlite3.Cursor, seq: int, run: RunRow) -> Snapshot:
    """All of a run, inside a transaction."""
    key = (seq,)
    spec, processing, remembered = cursor.execute(_SPEC, key).fetchone()
    steps = tuple(decode_step(row[0]) for row in cursor.execute(_STEPS, key))
    if run.root_run_id != run.run_id:  # what is called belongs to the root
        root = find_run(cursor, run.tenant, run.root_run_id)
        key = (0 if root is None else root[0],)
    calls, below = split_calls(run, [decode_call(row[0]) for row in cursor.execute(_CALLS, key)])
    pending = open_calls(cursor, key[0])
    asked = decode_spec(spec)
    return Snapshot(
        run,
        asked,
        steps,
        calls,
        pending if not asked.path else pending_under(asked.path, pending),
        None if processing is None else decode_processing(processing),
        None if remembered is None else decode_remembered(remembered),
        below,
    )


def open_calls(cursor: sqlite3.Cursor, seq: int) -> tuple[PendingRow, ...]:
    """The pending calls of a run that are open."""
    return tuple(pending_row(row) for row in cursor.execute(_OPEN, (seq,)))


def load_children(
    connection: sqlite3.Connection, tenant: str, root_run_id: str, run_ids: Sequence[str]
) -> list[Snapshot]:
    """See `Store.load_children`."""
    found = []
    with one_moment(connection) as cursor:
        for run_id in run_ids:
            row = find_run(cursor, tenant, run_id)
            if row is not None and row[1].parent_run_id and row[1].root_run_id == root_run_id:
                found.append(snapshot(cursor, *row))
    return found


def read_chunks(
    connection: sqlite3.Connection, tenant: str, run_id: str, after: int, limit_bytes: int
) -> tuple[list[ChunkRow], int]:
    """See `Store.read_chunks`."""
    with one_moment(connection) as cursor:
        log = cursor.execute(_LOG, (tenant, run_id)).fetchone()
        if log is None:
            raise NotFound(f"no run {run_id}")
        seq, last = log
        first = cursor.execute(_FIRST_CHUNK, (seq,)).fetchone()
        rows: list[ChunkRow] = []
        size = 0
        for begin, end, unpacked, stored in cursor.execute(_CHUNKS, (seq, after)):
            size += unpacked or len(stored)
            if rows and size > limit_bytes:
                break
            rows.append(ChunkRow(begin, end, unpack(unpacked, stored)))
    return rows, last + 1 if first is None else first[0]


def get_pending(
    connection: sqlite3.Connection, tenant: str, pending_call_id: str
) -> tuple[PendingRow, DecisionRow | None]:
    """See `Store.get_pending`."""
    with one_moment(connection) as cursor:
        pending = find_pending(cursor, tenant, pending_call_id)
        if pending is None:
            raise NotFound(f"no pending call {pending_call_id}")
        decision = find_decision(cursor, tenant, pending.decision_id) if pending.decision_id else None
    return pending, decision


def find_pending_with_run(connection: sqlite3.Connection, tenant: str, pending_call_id: str) -> Found:
    """See `Store.find_pending`."""
    with one_moment(connection) as cursor:
        pending = find_pending(cursor, tenant, pending_call_id)
        if pending is None:
            raise NotFound(f"no pending call {pending_call_id}")
        decision = find_decision(cursor, tenant, pending.decision_id) if pending.decision_id else None
        seq, run = _run(cursor, tenant, pending.run_id)
        call = decode_call(cursor.execute(_CALL, (seq, pending.call_id)).fetchone()[0])
    return Found(run, pending, call, decision)


def pending_of_run(
    connection: sqlite3.Connection, tenant: str, run_id: str, call_id: str
) -> tuple[RunRow, list[tuple[PendingRow, CallRow]], int]:
    """See `Store.pending_of_run`."""
    with one_moment(connection) as cursor:
        seq, run = _run(cursor, tenant, run_id)
        found = [
            (pending_row(row), decode_call(row[15]))
            for row in cursor.execute(_OPEN_WITH_CALL, (seq, call_id, call_id))
        ]
        decided: int = cursor.execute(_DECIDED_CALLS, (seq,)).fetchone()[0]
    return run, found, decided


def get_decision(connection: sqlite3.Connection, tenant: str, decision_id: str) -> DecisionRow:
    """See `Store.get_decision`."""
    decision = find_decision(connection.cursor(), tenant, decision_id)
    if decision is None:
        raise NotFound(f"no decision {decision_id}")
    return decision


def latest_decision(
    connection: sqlite3.Connection, tenant: str, run_id: str, call_id: str
) -> DecisionRow | None:
    """See `Store.latest_decision`."""
    row = connection.execute(_LATEST_DECISION, (tenant, run_id, call_id)).fetchone()
    return None if row is None else decision_row(row)


def _run(cursor: sqlite3.Cursor, tenant: str, run_id: str) -> tuple[int, RunRow]:
    found = find_run(cursor, tenant, run_id)
    if found is None:
        raise NotFound(f"no run {run_id}")
    return found
