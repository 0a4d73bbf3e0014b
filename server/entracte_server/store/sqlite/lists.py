"""Lists. Each function runs on a reading connection's thread and reads one page.

Pages are found by row id, so that none is skipped or shown twice when rows come and go. The
statements are put together from fixed texts; values are always bound.
"""

import sqlite3
from heapq import merge
from itertools import islice
from operator import itemgetter

from entracte_server.domain.runs import TERMINAL, DecisionRow, PendingRow, RunRow
from entracte_server.store.base import DecisionFilter, PendingFilter, RunFilter
from entracte_server.store.sqlite.codec import (
    DECISION_COLUMNS,
    PENDING_COLUMNS,
    RUN_COLUMNS,
    Row,
    decision_row,
    find_decision,
    pending_row,
    run_row,
)
from entracte_server.store.sqlite.cursors import Cursors
from entracte_server.store.sqlite.reads import one_moment

# Index and conditions are filled in. The index is named because without statistics, which nobody keeps
# up to date here, the planner's guess between two of them is often the wrong one.
_RUNS = f"SELECT {RUN_COLUMNS} FROM runs INDEXED BY {{}} WHERE {{}} ORDER BY seq DESC LIMIT ?"
_PENDING = (
    f"SELECT {PENDING_COLUMNS} FROM pending_calls p INDEXED BY {{}} CROSS JOIN runs r ON r.seq = p.run "
    "WHERE {} ORDER BY p.seq LIMIT ?"
)
_DECISIONS = (
    f"SELECT {DECISION_COLUMNS} FROM decisions d INDEXED BY {{}} CROSS JOIN runs r ON r.seq = d.run "
    "WHERE {} ORDER BY d.seq DESC LIMIT ?"
)

_MAX_ROW = 2**63 - 1
_seq = itemgetter(0)


class _Where:
    """Conditions and their values, in step."""

    def __init__(self) -> None:
        self.terms: list[str] = []
        self.values: list[object] = []

    def add(self, term: str, *values: object) -> None:
        self.terms.append(term)
        self.values.extend(values)

    def text(self) -> str:
        return " AND ".join(self.terms)


def _page(rows: list[Row], limit: int) -> tuple[list[Row], int | None]:
    """The page out of `limit` + 1 rows, and the row id it ended with when there are more."""
    return (rows[:limit], rows[limit - 1][0]) if len(rows) > limit else (rows, None)


def list_runs(
    connection: sqlite3.Connection, cursors: Cursors, tenant: str, where: RunFilter, cursor: str, limit: int
) -> tuple[list[RunRow], str]:
    """See `Store.list_runs`. Raises `ValueError` for a cursor that is not one."""
    before = cursors.open("runs", tenant, cursor)
    conditions = _Where()
    conditions.add("tenant = ? AND seq < ?", tenant, _MAX_ROW if before is None else before)
    if where.agent_id:
        conditions.add("agent_id = ?", where.agent_id)
    if where.thread_id:
        conditions.add("thread_id = ?", where.thread_id)
    if not where.include_children:
        conditions.add("parent_run_id IS NULL")
    with one_moment(connection) as db:
        if where.states and not where.thread_id and TERMINAL.isdisjoint(where.states):
            # The few that live are found by their state, one state after the other.
            conditions.add("finish_time = 0 AND state = ?")
            sql = _RUNS.format("runs_live", conditions.text())
            parts = [
                db.execute(sql, (*conditions.values, state, limit + 1)).fetchall()
                for state in dict.fromkeys(where.states)
            ]
            rows = list(islice(merge(*parts, key=_seq, reverse=True), limit + 1))
        else:
            if where.states:
                marks = ", ".join("?" * len(where.states))
                conditions.add(f"state IN ({marks})", *where.states)
            index = "runs_of_thread" if where.thread_id else "runs_of_tenant"
            sql = _RUNS.format(index, conditions.text())
            rows = db.execute(sql, (*conditions.values, limit + 1)).fetchall()
    rows, more = _page(rows, limit)
    return [run_row(row) for row in rows], "" if more is None else cursors.seal("runs", tenant, more)


def list_pending(
    connection: sqlite3.Connection,
    cursors: Cursors,
    tenant: str,
    where: PendingFilter,
    cursor: str,
    limit: int,
) -> tuple[list[tuple[PendingRow, DecisionRow | None]], str]:
    """See `Store.list_pending`. Raises `ValueError` for a cursor that is not one."""
    conditions = _Where()
    conditions.add("p.tenant = ? AND p.seq > ?", tenant, cursors.open("pending", tenant, cursor) or 0)
    if where.run_id:
        conditions.add("p.run = (SELECT seq FROM runs WHERE tenant = ? AND run_id = ?)", tenant, where.run_id)
    for column, value in (
        ("p.agent_id = ?", where.agent_id),
        ("p.thread_id = ?", where.thread_id),
        ("p.resource_id = ?", where.resource_id),
    ):
        if value:
            conditions.add(column, value)
    conditions.add("p.state = ?")
    index = "pending_calls_of_run" if where.run_id else "pending_calls_of_tenant"
    sql = _PENDING.format(index, conditions.text())
    states = ("open", "decided") if where.include_decided else ("open",)
    with one_moment(connection) as db:
        parts = [db.execute(sql, (*conditions.values, state, limit + 1)).fetchall() for state in states]
        rows, more = _page(list(islice(merge(*parts, key=_seq), limit + 1)), limit)
        found = []
        for row in rows:
            pending = pending_row(row)
            decision = find_decision(db, tenant, pending.decision_id) if pending.decision_id else None
            found.append((pending, decision))
    return found, "" if more is None else cursors.seal("pending", tenant, more)


def list_decisions(
    connection: sqlite3.Connection,
    cursors: Cursors,
    tenant: str,
    where: DecisionFilter,
    cursor: str,
    limit: int,
) -> tuple[list[DecisionRow], str]:
    """See `Store.list_decisions`. Raises `ValueError` for a cursor that is not one."""
    before = cursors.open("decisions", tenant, cursor)
    conditions = _Where()
    conditions.add("d.tenant = ? AND d.seq < ?", tenant, _MAX_ROW if before is None else before)
    if where.run_id:
        conditions.add("d.run = (SELECT seq FROM runs WHERE tenant = ? AND run_id = ?)", tenant, where.run_id)
    if where.pending_call_id:
        conditions.add(
            "d.run = (SELECT run FROM pending_calls WHERE tenant = ? AND pending_call_id = ?) "
            "AND d.pending_call_id = ?",
            tenant,
            where.pending_call_id,
            where.pending_call_id,
        )
    if where.principal:
        conditions.add("d.principal = ?", where.principal)
    index = "decisions_of_run" if where.run_id or where.pending_call_id else "decisions_of_tenant"
    sql = _DECISIONS.format(index, conditions.text())
    rows, more = _page(connection.execute(sql, (*conditions.values, limit + 1)).fetchall(), limit)
    return [decision_row(row) for row in rows], (
        "" if more is None else cursors.seal("decisions", tenant, more)
    )
