"""Which run has a thread: the turns of its runs, taken when they are created, given up when they end.

A program that adds or removes turns locks the thread first and the runs it changes after that, in the
order of their ids, in a transaction of its own.
"""

from msgspec.structs import replace

from entracte_server.domain.runs import SNAPSHOT_FORMAT, RunRow
from entracte_server.store.base import Created, CreateRun, RunExists, ThreadBelow, ThreadBusy, ThreadNotYours
from entracte_server.store.postgres import requests
from entracte_server.store.postgres.connection import Result, Statement
from entracte_server.store.postgres.creation import creation
from entracte_server.store.postgres.programs import Attempt, Program
from entracte_server.store.postgres.rows import LOCK_RUN, PENDING_WITH_RUN
from entracte_server.store.postgres.values import Values
from entracte_server.store.records import PENDING_COLUMNS, RUN_COLUMNS, pending_row, run_row
from entracte_server.store.threads import ThreadClaim

RUN_ROW = ", ".join(f"r.{name}" for name in RUN_COLUMNS.split(", "))
"""`RUN_COLUMNS` of `runs r`."""

_THREAD = "FROM entracte.threads WHERE tenant = $1 AND thread_id = $2 AND deleted = 0"
LOCK_THREAD = f"SELECT seq, resource_id, parent {_THREAD} FOR UPDATE"
# Joined row by row, because otherwise all runs of a tenant might be read.
RUNS_OF_THREAD = (
    f"SELECT r.* FROM entracte.thread_turns t CROSS JOIN LATERAL (SELECT {RUN_COLUMNS} FROM entracte.runs "
    f"WHERE tenant = $1 AND seq = t.run OFFSET 0) r "
    f"WHERE t.thread = (SELECT coalesce(parent, seq) {_THREAD}) ORDER BY t.run"
)
"""The runs that have a thread, or the one that it goes with, or wait for it, in their order."""

_THERE = "SELECT taken_by, owner FROM entracte.runs WHERE tenant = $1 AND run_id = $2"
_FIRST = f"{RUNS_OF_THREAD} LIMIT 1"
_COUNT = f"SELECT count(*) FROM entracte.thread_turns WHERE thread = (SELECT seq {_THREAD})"
_REPLACE = (
    "UPDATE entracte.runs r SET state = 'running', finish_reason = NULL, stop_cause = NULL, "
    "cancel_reason = coalesce(cancel_reason, $3), update_time = $4 "
    "WHERE tenant = $1 AND run_id = $2 AND (state = 'suspended') IS TRUE RETURNING 1"
)
_OPEN = (
    f"SELECT {PENDING_COLUMNS} FROM {PENDING_WITH_RUN} WHERE p.state = 'open' AND p.run = "
    "(SELECT seq FROM entracte.runs WHERE tenant = $1 AND run_id = $2) ORDER BY p.seq"
)
_OVERDUE = (
    f"SELECT {RUN_ROW} FROM entracte.thread_turns t JOIN entracte.runs r ON r.tenant = t.tenant "
    "AND r.seq = t.run WHERE t.deadline > 0 AND t.deadline < $1 AND (r.state = 'queued') IS TRUE "
    "AND r.format <= $2 ORDER BY t.deadline LIMIT $3"
)

_OWN = "SELECT seq FROM entracte.runs WHERE tenant = $1 AND run_id = $2"
_OWN_ENDED = f"{_OWN} AND (finish_time > 0) IS TRUE"
_TREE = f"{_OWN} UNION ALL SELECT seq FROM entracte.runs WHERE tenant = $1 AND root_run_id = $2"


def _lock_threads(runs: str) -> str:
    """Locks the threads in which `runs` have a turn, in their order."""
    return (
        "WITH turns AS MATERIALIZED (SELECT thread FROM entracte.thread_turns "
        f"WHERE run = ANY(ARRAY({runs}))), wanted AS (SELECT DISTINCT thread FROM turns ORDER BY thread) "
        "SELECT 1 FROM wanted w CROSS JOIN LATERAL (SELECT 1 FROM entracte.threads h "
        "WHERE h.tenant = $1 AND h.seq = w.thread FOR UPDATE) AS locked"
    )


def _following(runs: str) -> str:
    """The queued runs whose turn comes when that of `runs` is over."""
    return (
        "SELECT r.run_id FROM entracte.thread_turns t CROSS JOIN LATERAL ("
        "SELECT f.run FROM entracte.thread_turns f "
        f"WHERE f.thread = t.thread AND f.run <> ALL(ARRAY({runs})) ORDER BY f.run LIMIT 1) f "
        "JOIN entracte.runs r ON r.tenant = $1 AND r.seq = f.run AND (r.state = 'queued') IS TRUE "
        f"WHERE t.run = ANY(ARRAY({runs}))"
    )


def _give_up(runs: str) -> str:
    """Removes the turns of `runs`. Gives a row if the next run of a thread runs now."""
    return (
        f"WITH gone AS (DELETE FROM entracte.thread_turns WHERE run = ANY(ARRAY({runs})) "
        "RETURNING run, thread), "
        "following AS (SELECT f.run FROM gone g CROSS JOIN LATERAL ("
        "SELECT f.run FROM entracte.thread_turns f "
        f"WHERE f.thread = g.thread AND f.run <> ALL(ARRAY({runs})) ORDER BY f.run LIMIT 1) f), "
        "started AS (UPDATE entracte.runs r SET state = 'running', update_time = $3 FROM following f "
        "WHERE r.tenant = $1 AND r.seq = f.run AND (r.state = 'queued') IS TRUE RETURNING r.seq) "
        "UPDATE entracte.thread_turns t SET deadline = 0 FROM started s WHERE t.run = s.seq RETURNING 1"
    )


_LOCK_OWN, _FOLLOWING_OWN, _GIVE_UP_OWN = _lock_threads(_OWN), _following(_OWN), _give_up(_OWN_ENDED)
_LOCK_TREE, _FOLLOWING_TREE, _GIVE_UP_TREE = _lock_threads(_TREE), _following(_TREE), _give_up(_TREE)


def create_run(op: CreateRun, at: Attempt) -> Program[Created]:
    """See `Store.create_run`: one that wants to have its thread. In a transaction of its own."""
    run, claim, request = op.run, op.claim, op.request
    assert claim is not None
    key, thread_key = (run.tenant, run.run_id), (run.tenant, run.thread_id)
    while True:
        # The request is looked for under the lock: one that is repeated is for the same thread.
        _, thread, *found, there, first, count = yield [
            _make_thread(op),
            (LOCK_THREAD, thread_key),
            *requests.find(request),
            (_THERE, key),
            (_FIRST, thread_key),
            (_COUNT, thread_key),
        ]
        made = requests.made_by(request, found)
        if there.rows and there.rows[0][0] == at.token:  # the attempt before was committed
            return _created_before(op, there, first)
        if made is not None:
            return Created(made)
        if there.rows:
            raise RunExists(f"run {run.run_id} exists")
        if thread.rows:  # otherwise it was deleted just now
            break
    seq, resource_id, parent = thread.rows[0]
    if resource_id != run.resource_id:
        raise ThreadNotYours(f"thread {run.thread_id} is another resource's")
    if parent is not None:
        raise ThreadBelow(f"thread {run.thread_id} is a sub-agent's")
    replaced, turn = "", (seq, 0)
    if first.rows:
        replaced = yield from _wait(run_row(first.rows[0]), count.rows[0][0] - 1, claim, at)
        op, turn = replace(op, run=replace(run, state="queued", owner="", fence=0)), (seq, claim.deadline)
    (done,) = yield [creation(op, at, turn=turn)]
    if not done.rows:  # somebody used an id just now, for another thread
        found = yield [*requests.find(request), (_THERE, key)]
        requests.made_by(request, found)
        raise RunExists(f"run {run.run_id} exists")
    return Created(queued=bool(first.rows), replaced=replaced)


def _wait(holder: RunRow, waiting: int, claim: ThreadClaim, at: Attempt) -> Program[str]:
    """The id of the run that makes way, if it does. Raises `ThreadBusy` if nobody may wait."""
    parked = holder.state == "suspended"
    may_wait = claim.may_wait(parked=parked, waiting=waiting)
    if parked and may_wait and claim.replace is not None:
        (asked,) = yield [(_REPLACE, (holder.tenant, holder.run_id, claim.replace, at.now))]
        if asked.rows:
            return holder.run_id
        may_wait = claim.may_wait(parked=False, waiting=waiting)  # it was resumed just now
    if not may_wait:
        (pending,) = yield [(_OPEN, (holder.tenant, holder.run_id))]
        raise ThreadBusy(holder, tuple(pending_row(row) for row in pending.rows), waiting)
    return ""


def _created_before(op: CreateRun, there: Result, first: Result) -> Created:
    """What the attempt before did. Nobody took the run over since then."""
    claim, holder = op.claim, run_row(first.rows[0]) if first.rows else None
    queued = there.rows[0][1] != op.run.owner
    asked = (
        queued and claim is not None and holder is not None and claim.replace is not None
        and holder.cancel_reason == claim.replace
    )  # fmt: skip
    return Created(queued=queued, replaced=holder.run_id if asked and holder is not None else "")


def _make_thread(op: CreateRun) -> Statement:
    """Makes the thread of a new run where there is none."""
    run, claim, request = op.run, op.claim, op.request
    assert claim is not None
    value = Values()
    columns = value.row(
        run.tenant,
        run.thread_id,
        run.resource_id,
        claim.title,
        claim.metadata,
        run.create_time,
        run.create_time,
    )
    unused = "" if request is None else f"AND {requests.unused(request, value)} "
    own = f"tenant = {value(run.tenant)} AND run_id = {value(run.run_id)}"
    return (
        "INSERT INTO entracte.threads (tenant, thread_id, resource_id, title, metadata, create_time, "
        f"update_time) SELECT {columns} WHERE NOT EXISTS (SELECT 1 FROM entracte.runs WHERE {own}) {unused}"
        "ON CONFLICT (tenant, thread_id, deleted) DO NOTHING",
        value.bound,
    )


def lock(tenant: str, run_id: str) -> Program[list[Statement]]:
    """Locks the thread of a run; the statements that lock the run and the one whose turn comes after it."""
    return _lock(tenant, run_id, _LOCK_OWN, _FOLLOWING_OWN)


def lock_tree(tenant: str, run_id: str) -> Program[list[Statement]]:
    """As `lock`, with the threads of the sub-agents' runs."""
    return _lock(tenant, run_id, _LOCK_TREE, _FOLLOWING_TREE)


def _lock(tenant: str, run_id: str, threads: str, following: str) -> Program[list[Statement]]:
    key = (tenant, run_id)
    _, found = yield [(threads, key), (following, key)]
    return locks(tenant, {run_id, *(row[0] for row in found.rows)})


def locks(tenant: str, run_ids: set[str]) -> list[Statement]:
    """The statements that lock these runs, in the order that all keep to."""
    return [(LOCK_RUN, (tenant, run_id)) for run_id in sorted(run_ids)]


def give_up(tenant: str, run_id: str, at: Attempt) -> Statement:
    """Takes a run that is locked and has ended out of its thread. Gives a row if the next one runs now."""
    return _GIVE_UP_OWN, (tenant, run_id, at.now)


def give_up_tree(tenant: str, run_id: str, at: Attempt) -> Statement:
    """Takes a run that is locked, and those of its sub-agents, out of their threads."""
    return _GIVE_UP_TREE, (tenant, run_id, at.now)


def overdue(now: int, limit: int) -> Program[list[RunRow]]:
    """See `ThreadStore.overdue`."""
    (found,) = yield [(_OVERDUE, (now, SNAPSHOT_FORMAT, limit))]
    return [run_row(row) for row in found.rows]
