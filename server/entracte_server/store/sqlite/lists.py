"""Lists. Each function runs on a reading connection's thread and reads one page.

Pages are found by row id, so that none is skipped or shown twice when rows come and go. Rows that may
be large are read one by one, no further than the page goes. The statements are put together from
fixed texts; values are always bound.
"""

import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from heapq import merge
from operator import itemgetter
from typing import TypeVar

from entracte_server.domain.runs import TERMINAL, DecisionRow, PendingRow, RunRow
from entracte_server.store.base import DecisionFilter, PendingFilter, RunFilter
from entracte_server.store.cursors import Cursors
from entracte_server.store.records import (
    DECISION_COLUMNS,
    PENDING_COLUMNS,
    RUN_COLUMNS,
    Row,
    decision_row,
    pending_row,
    run_row,
)
from entracte_server.store.sqlite.codec import find_decision
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

T = TypeVar("T")

PAGE_BYTES = 8 * 1024 * 1024
"""How much a page holds at most, unless its one row is larger: a response must not outgrow a message,
whatever the rows hold."""

MAX_ROW = 2**63 - 1
"""No row's id is larger."""

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


def weight(row: Row) -> int:
    """How much of a page a row takes."""
    return sum(len(value) for value in row if isinstance(value, (bytes, str)))


def page_of(
    rows: Iterable[Row], limit: int, make: Callable[[Row], tuple[T, int]]
) -> tuple[list[T], int | None]:
    """The first `limit` rows, or fewer where they are large, and the row id the page ended with when
    there are more. `make` turns a row into an item and says how much it weighs."""
    page: list[T] = []
    ended, room = None, PAGE_BYTES
    for row in rows:
        if len(page) == limit:
            return page, ended
        item, weight = make(row)
        room -= weight
        if page and room < 0:
            return page, ended
        page.append(item)
        ended = row[0]
    return page, None


def list_runs(
    connection: sqlite3.Connection, cursors: Cursors, tenant: str, where: RunFilter, cursor: str, limit: int
) -> tuple[list[RunRow], str]:
    """See `Store.list_runs`. Raises `ValueError` for a cursor that is not one."""
    before = cursors.open("runs", tenant, cursor)
    conditions = _Where()
    conditions.add("tenant = ? AND seq < ?", tenant, MAX_ROW if before is None else before)
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
            rows = list(merge(*parts, key=_seq, reverse=True))
        else:
            if where.states:
                marks = ", ".join("?" * len(where.states))
                conditions.add(f"state IN ({marks})", *where.states)
            index = "runs_of_thread" if where.thread_id else "runs_of_tenant"
            sql = _RUNS.format(index, conditions.text())
            rows = db.execute(sql, (*conditions.values, limit + 1)).fetchall()
    found, more = page_of(rows, limit, lambda row: (run_row(row), weight(row)))
    return found, "" if more is None else cursors.seal("runs", tenant, more)


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
    with (
        one_moment(connection) as db,
        closing(connection.cursor()) as opened,
        closing(connection.cursor()) as decided,
    ):

        def make(row: Row) -> tuple[tuple[PendingRow, DecisionRow | None], int]:
            pending = pending_row(row)
            if not pending.decision_id:
                return (pending, None), weight(row)
            decision = find_decision(db, tenant, pending.decision_id)
            return (pending, decision), weight(row) + _weight_of(decision)

        parts = [opened.execute(sql, (*conditions.values, "open", limit + 1))]
        if where.include_decided:
            parts.append(decided.execute(sql, (*conditions.values, "decided", limit + 1)))
        found, more = page_of(merge(*parts, key=_seq), limit, make)
    return found, "" if more is None else cursors.seal("pending", tenant, more)


def _weight_of(decision: DecisionRow | None) -> int:
    if decision is None:
        return 0
    texts = (decision.args, decision.edited_args, decision.data, decision.reason, decision.reason_json)
    return sum(len(text) for text in texts if text is not None)


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
    conditions.add("d.tenant = ? AND d.seq < ?", tenant, MAX_ROW if before is None else before)
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
    with closing(connection.execute(sql, (*conditions.values, limit + 1))) as rows:
        found, more = page_of(rows, limit, lambda row: (decision_row(row), weight(row)))
    return found, "" if more is None else cursors.seal("decisions", tenant, more)
