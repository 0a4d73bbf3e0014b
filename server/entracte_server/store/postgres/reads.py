"""Reads of one run, one call or one decision. What a program asks for in one round is as of one moment."""

from collections.abc import Sequence

from entracte_server.domain.runs import (
    CallRow,
    DecisionRow,
    PendingRow,
    RunRow,
    Snapshot,
    pending_under,
    split_calls,
)
from entracte_server.store.base import ChunkRow, Found, Made, NotFound, RequestKey
from entracte_server.store.packing import unpack
from entracte_server.store.postgres import requests
from entracte_server.store.postgres.connection import Result, Statement
from entracte_server.store.postgres.programs import Program
from entracte_server.store.postgres.rows import (
    DECISION_ROW,
    DECISION_WITH_RUN,
    FIND_RUN,
    PENDING_WITH_RUN,
    a_decision,
    a_pending,
    find_decision,
    find_decision_of_pending,
    find_pending,
    to_run,
)
from entracte_server.store.records import (
    PENDING_COLUMNS,
    RUN_COLUMNS,
    decode_call,
    decode_processing,
    decode_remembered,
    decode_spec,
    decode_step,
    pending_row,
    run_row,
)

_SEQ = "(SELECT seq FROM entracte.runs WHERE tenant = $1 AND run_id = $2)"
_SEQ_IF_TAKEN = "(SELECT seq FROM entracte.runs WHERE tenant = $1 AND run_id = $2 AND taken_by = $3)"


# What is called in a tree of agents, and what waits, belongs to the root.
_ROOT_SEQ = (
    "(SELECT o.seq FROM entracte.runs o WHERE o.tenant = $1 AND o.run_id = (SELECT coalesce(r.root_run_id, "
    "r.run_id) FROM entracte.runs r WHERE r.tenant = $1 AND r.run_id = $2))"
)


def _snapshot_sql(seq: str, root: str) -> tuple[str, ...]:
    return (
        f"SELECT data, processing, remembered FROM entracte.run_specs WHERE run = {seq}",
        f"SELECT data FROM entracte.steps WHERE run = {seq} ORDER BY step",
        f"SELECT data FROM entracte.tool_calls WHERE run = {root}",
        f"SELECT {PENDING_COLUMNS} FROM {PENDING_WITH_RUN} "
        f"WHERE p.run = {root} AND p.state = 'open' ORDER BY p.seq",
    )


# Only root runs are taken.
_SNAPSHOT, _SNAPSHOT_IF_TAKEN = _snapshot_sql(_SEQ, _ROOT_SEQ), _snapshot_sql(_SEQ_IF_TAKEN, _SEQ_IF_TAKEN)

_CHILDREN = (
    f"SELECT {', '.join('c.' + name for name in RUN_COLUMNS.split(', '))}, "
    "s.data, s.processing, s.remembered "
    "FROM entracte.runs c JOIN entracte.run_specs s ON s.run = c.seq "
    "WHERE c.tenant = $1 AND c.root_run_id = $2 AND c.run_id = ANY($3::text[])"
)
_STEPS_OF_CHILDREN = (
    "SELECT s.run, s.data FROM entracte.runs c JOIN entracte.steps s ON s.run = c.seq "
    "WHERE c.tenant = $1 AND c.root_run_id = $2 AND c.run_id = ANY($3::text[]) ORDER BY s.run, s.step"
)

_CALL_OF_PENDING = (
    "SELECT c.data FROM entracte.pending_calls p "
    "JOIN entracte.tool_calls c ON c.run = p.run AND c.call_id = p.call_id "
    "WHERE p.tenant = $1 AND p.pending_call_id = $2"
)
_RUN_OF_PENDING = (
    f"SELECT {', '.join('r.' + name for name in RUN_COLUMNS.split(', '))} FROM {PENDING_WITH_RUN} "
    "WHERE p.tenant = $1 AND p.pending_call_id = $2"
)
_OPEN_WITH_CALL = (
    f"SELECT {PENDING_COLUMNS}, c.data FROM {PENDING_WITH_RUN} "
    "JOIN entracte.tool_calls c ON c.run = p.run AND c.call_id = p.call_id "
    f"WHERE p.run = {_SEQ} AND p.state = 'open' AND ($3 = '' OR p.call_id = $3) ORDER BY p.seq"
)
_DECIDED_CALLS = f"SELECT count(DISTINCT call_id) FROM entracte.decisions WHERE run = {_SEQ}"
_LATEST_DECISION = (
    f"SELECT {DECISION_ROW} FROM {DECISION_WITH_RUN} WHERE d.run = {_SEQ} AND d.call_id = $3 "
    "ORDER BY d.seq DESC LIMIT 1"
)
_LOG = "SELECT last_sequence FROM entracte.runs WHERE tenant = $1 AND run_id = $2"
_FIRST_CHUNK = f"SELECT first FROM entracte.chunks WHERE run = {_SEQ} ORDER BY last LIMIT 1"
_CHUNKS = (
    "SELECT first, last, size, data FROM ("
    "SELECT first, last, size, data, row_number() OVER rows AS number, "
    "sum(CASE size WHEN 0 THEN octet_length(data) ELSE size END) OVER rows AS total FROM ("
    f"SELECT first, last, size, data FROM entracte.chunks WHERE run = {_SEQ} AND last > $3 "
    "ORDER BY last LIMIT 1000) page WINDOW rows AS (ORDER BY last ROWS UNBOUNDED PRECEDING)"
    ") page WHERE number = 1 OR total <= $4 ORDER BY last"
)


def read_snapshot(tenant: str, run_id: str, *, taken_by: int | None = None) -> list[Statement]:
    """What `snapshot_of` is made from; with `taken_by`, if that operation took the run."""
    if taken_by is None:
        return [(sql, (tenant, run_id)) for sql in _SNAPSHOT]
    return [(sql, (tenant, run_id, taken_by)) for sql in _SNAPSHOT_IF_TAKEN]


def snapshot_of(run: RunRow, spec: Result, steps: Result, calls: Result, pending: Result) -> Snapshot:
    """All of a run."""
    data, processing, remembered = spec.rows[0]
    asked = decode_spec(data)
    own, below = split_calls(run, [decode_call(row[0]) for row in calls.rows])
    waiting = tuple(pending_row(row) for row in pending.rows)
    return Snapshot(
        run,
        asked,
        tuple(decode_step(row[0]) for row in steps.rows),
        own,
        waiting if not asked.path else pending_under(asked.path, waiting),
        None if processing is None else decode_processing(processing),
        None if remembered is None else decode_remembered(remembered),
        below,
    )


def find_request(key: RequestKey) -> Program[Made | None]:
    """See `Store.find_request`."""
    return requests.made_by(key, (yield requests.find(key)))


def get_run(tenant: str, run_id: str) -> Program[RunRow]:
    """See `Store.get_run`."""
    (found,) = yield [(FIND_RUN, (tenant, run_id))]
    return _run(found, run_id)


def load(tenant: str, run_id: str) -> Program[Snapshot]:
    """See `Store.load`."""
    found, *rest = yield [(FIND_RUN, (tenant, run_id)), *read_snapshot(tenant, run_id)]
    return snapshot_of(_run(found, run_id), *rest)


def load_children(tenant: str, root_run_id: str, run_ids: Sequence[str]) -> Program[list[Snapshot]]:
    """See `Store.load_children`."""
    which = (tenant, root_run_id, list(run_ids))
    children, steps, calls = yield [
        (_CHILDREN, which),
        (_STEPS_OF_CHILDREN, which),
        (_SNAPSHOT[2], (tenant, root_run_id)),
    ]
    found = []
    every = [decode_call(row[0]) for row in calls.rows]
    for row in children.rows:
        run, (data, processing, remembered) = run_row(row[:-3]), row[-3:]
        found.append(
            Snapshot(
                run,
                decode_spec(data),
                tuple(decode_step(step) for seq, step in steps.rows if seq == row[0]),
                split_calls(run, every)[0],
                processing=None if processing is None else decode_processing(processing),
                remembered=None if remembered is None else decode_remembered(remembered),
            )
        )
    return found


def read_chunks(
    tenant: str, run_id: str, after: int, limit_bytes: int
) -> Program[tuple[list[ChunkRow], int]]:
    """See `Store.read_chunks`."""
    key = (tenant, run_id)
    log, first, chunks = yield [
        (_LOG, key),
        (_FIRST_CHUNK, key),
        (_CHUNKS, (*key, after, limit_bytes)),
    ]
    if not log.rows:
        raise NotFound(f"no run {run_id}")
    rows = [ChunkRow(begin, end, unpack(size, stored)) for begin, end, size, stored in chunks.rows]
    return rows, first.rows[0][0] if first.rows else log.rows[0][0] + 1


def get_pending(tenant: str, pending_call_id: str) -> Program[tuple[PendingRow, DecisionRow | None]]:
    """See `Store.get_pending`."""
    which = (tenant, pending_call_id)
    found, decision = yield [find_pending(*which), find_decision_of_pending(*which)]
    return _pending(found, pending_call_id), a_decision(decision)


def find_pending_with_run(tenant: str, pending_call_id: str) -> Program[Found]:
    """See `Store.find_pending`."""
    which = (tenant, pending_call_id)
    found, decision, run, call = yield [
        find_pending(*which),
        find_decision_of_pending(*which),
        (_RUN_OF_PENDING, which),
        (_CALL_OF_PENDING, which),
    ]
    pending = _pending(found, pending_call_id)
    return Found(run_row(run.rows[0]), pending, decode_call(call.rows[0][0]), a_decision(decision))


def pending_of_run(
    tenant: str, run_id: str, call_id: str
) -> Program[tuple[RunRow, list[tuple[PendingRow, CallRow]], int]]:
    """See `Store.pending_of_run`."""
    key = (tenant, run_id)
    found, opened, decided = yield [
        (FIND_RUN, key),
        (_OPEN_WITH_CALL, (*key, call_id)),
        (_DECIDED_CALLS, key),
    ]
    run = _run(found, run_id)
    return run, [(pending_row(row), decode_call(row[15])) for row in opened.rows], decided.rows[0][0]


def get_decision(tenant: str, decision_id: str) -> Program[DecisionRow]:
    """See `Store.get_decision`."""
    (found,) = yield [find_decision(tenant, decision_id)]
    decision = a_decision(found)
    if decision is None:
        raise NotFound(f"no decision {decision_id}")
    return decision


def latest_decision(tenant: str, run_id: str, call_id: str) -> Program[DecisionRow | None]:
    """See `Store.latest_decision`."""
    (found,) = yield [(_LATEST_DECISION, (tenant, run_id, call_id))]
    return a_decision(found)


def _run(found: Result, run_id: str) -> RunRow:
    if not found.rows:
        raise NotFound(f"no run {run_id}")
    return to_run(found.rows[0])


def _pending(found: Result, pending_call_id: str) -> PendingRow:
    pending = a_pending(found)
    if pending is None:
        raise NotFound(f"no pending call {pending_call_id}")
    return pending
