"""Lists: one page of rows each, found by row id, so that none is skipped or shown twice when rows come
and go. Statements are put together from fixed texts; values are always bound.
"""

from collections.abc import Sequence

from entracte_server.domain.runs import TERMINAL, DecisionRow, PendingRow, RunRow
from entracte_server.store.base import DecisionFilter, PendingFilter, RunFilter
from entracte_server.store.cursors import Cursors
from entracte_server.store.postgres.connection import Result
from entracte_server.store.postgres.programs import Program
from entracte_server.store.postgres.rows import DECISION_ROW, to_decision
from entracte_server.store.postgres.values import Values
from entracte_server.store.records import PENDING_COLUMNS, RUN_COLUMNS, pending_row, run_row

PAGE_BYTES = 8 * 1024 * 1024
"""How much a page holds at most, unless its one row is larger: a response must not outgrow a message,
whatever the rows hold."""

MAX_ROW = 2**63 - 1
"""No row's id is larger."""

_RUN_SIZE = "coalesce(octet_length(x.error), 0) + coalesce(octet_length(x.cancel_reason), 0)"
_RUN_ROW = f"{', '.join('x.' + name for name in RUN_COLUMNS.split(', '))}"

_PENDING_ROW = f"{PENDING_COLUMNS.replace('p.', 'x.')}, {DECISION_ROW}"
_PENDING_SIZE = "octet_length(x.data) + coalesce(octet_length(d.data), 0)"
_PENDING_DECISION = (
    " LEFT JOIN entracte.decisions d "
    "ON d.tenant = x.tenant AND d.decision_id = x.decision_id AND x.decision_id <> ''"
)
_PENDING_WIDTH = 15

_DECISION_ROW = DECISION_ROW.replace("d.", "x.")
_DECISION_SIZE = "octet_length(x.data)"

_WITH_RUN = " JOIN entracte.runs r ON r.tenant = x.tenant AND r.seq = x.run"


def page_of(
    table: str, branches: Sequence[str], *, tenant: str, order: str, limit: str, size: str, columns: str,
    sized_join: str = "", join: str = "",
) -> str:  # fmt: skip
    """The statement that reads a page of the rows that any of `branches` is true of, up to `PAGE_BYTES`
    of them; last in each row is how many rows there were up to `limit`.

    Each branch is a search of its own in an index that has the rows in their order.
    """
    searches = " UNION ALL ".join(
        f"(SELECT x.seq FROM entracte.{table} x WHERE {branch} ORDER BY x.seq {order} LIMIT {limit})"
        for branch in branches
    )
    return (
        f"WITH page AS (SELECT seq FROM ({searches}) AS found ORDER BY seq {order} LIMIT {limit}), "
        f"sized AS (SELECT x.seq, row_number() OVER rows AS number, sum({size}) OVER rows AS total, "
        f"count(*) OVER () AS found FROM page JOIN entracte.{table} x "
        f"ON x.tenant = {tenant} AND x.seq = page.seq{sized_join} "
        f"WINDOW rows AS (ORDER BY x.seq {order} ROWS UNBOUNDED PRECEDING)) "
        f"SELECT {columns}, sized.found FROM sized JOIN entracte.{table} x "
        f"ON x.tenant = {tenant} AND x.seq = sized.seq{join} "
        f"WHERE sized.number = 1 OR sized.total <= {PAGE_BYTES} ORDER BY x.seq {order}"
    )


def rows_of(result: Result, limit: int) -> tuple[list[tuple[object, ...]], int | None]:
    """The page's rows, and the row id the page ended with when there are more."""
    rows = result.rows[:limit]
    more = bool(rows) and rows[0][-1] > len(rows)
    return rows, rows[-1][0] if more else None


def list_runs(
    cursors: Cursors, tenant: str, where: RunFilter, cursor: str, limit: int
) -> Program[tuple[list[RunRow], str]]:
    """See `Store.list_runs`. Raises `ValueError` for a cursor that is not one."""
    before = cursors.open("runs", tenant, cursor)
    value = Values()
    own = value(tenant)
    terms = [f"x.tenant = {own}", f"x.seq < {value(MAX_ROW if before is None else before)}"]
    if where.agent_id:
        terms.append(f"x.agent_id = {value(where.agent_id)}")
    if where.thread_id:
        terms.append(f"x.thread_id = {value(where.thread_id)}")
    if not where.include_children:
        terms.append("x.parent_run_id IS NULL")
    both = " AND ".join(terms)
    branches = [both]
    if where.states and not where.thread_id and TERMINAL.isdisjoint(where.states):
        # The few that live are found by their state, one state after the other.
        branches = [
            f"{both} AND x.finish_time = 0 AND x.state = {value(state)}"
            for state in dict.fromkeys(where.states)
        ]
    elif where.states:
        branches = [f"{both} AND x.state = ANY({value(list(where.states))}::text[])"]
    sql = page_of(
        "runs",
        branches,
        tenant=own,
        order="DESC",
        limit=value(limit + 1),
        size=_RUN_SIZE,
        columns=_RUN_ROW,
    )
    (found,) = yield [(sql, value.bound)]
    rows, more = rows_of(found, limit)
    return [run_row(row[:-1]) for row in rows], "" if more is None else cursors.seal("runs", tenant, more)


def list_pending(
    cursors: Cursors, tenant: str, where: PendingFilter, cursor: str, limit: int
) -> Program[tuple[list[tuple[PendingRow, DecisionRow | None]], str]]:
    """See `Store.list_pending`. Raises `ValueError` for a cursor that is not one."""
    after = cursors.open("pending", tenant, cursor)
    value = Values()
    own = value(tenant)
    # What belongs to a run is its tenant's; naming the tenant as well would only mislead the planner.
    terms = [
        f"x.run = {_seq(value, own, where.run_id)}" if where.run_id else f"x.tenant = {own}",
        f"x.seq > {value(after or 0)}",
    ]
    for name, wanted in (
        ("agent_id", where.agent_id),
        ("thread_id", where.thread_id),
        ("resource_id", where.resource_id),
    ):
        if wanted:
            terms.append(f"x.{name} = {value(wanted)}")
    both = " AND ".join(terms)
    states = ("open", "decided") if where.include_decided else ("open",)
    sql = page_of(
        "pending_calls",
        [f"{both} AND x.state = '{state}'" for state in states],
        tenant=own,
        order="ASC",
        limit=value(limit + 1),
        size=_PENDING_SIZE,
        columns=_PENDING_ROW,
        sized_join=_PENDING_DECISION,
        join=_WITH_RUN + _PENDING_DECISION,
    )
    (found,) = yield [(sql, value.bound)]
    rows, more = rows_of(found, limit)
    page = [
        (
            pending_row(row[:_PENDING_WIDTH]),
            None if row[_PENDING_WIDTH] is None else to_decision(row[_PENDING_WIDTH:-1]),
        )
        for row in rows
    ]
    return page, "" if more is None else cursors.seal("pending", tenant, more)


def list_decisions(
    cursors: Cursors, tenant: str, where: DecisionFilter, cursor: str, limit: int
) -> Program[tuple[list[DecisionRow], str]]:
    """See `Store.list_decisions`. Raises `ValueError` for a cursor that is not one."""
    before = cursors.open("decisions", tenant, cursor)
    value = Values()
    own = value(tenant)
    terms = [f"x.seq < {value(MAX_ROW if before is None else before)}"]
    if where.run_id:
        terms.append(f"x.run = {_seq(value, own, where.run_id)}")
    if where.pending_call_id:
        pending = value(where.pending_call_id)
        terms.append(
            f"x.pending_call_id = {pending} AND x.run = (SELECT run FROM entracte.pending_calls "
            f"WHERE tenant = {own} AND pending_call_id = {pending})"
        )
    if not (where.run_id or where.pending_call_id):
        terms.append(f"x.tenant = {own}")
    if where.principal:
        terms.append(f"x.principal = {value(where.principal)}")
    sql = page_of(
        "decisions",
        [" AND ".join(terms)],
        tenant=own,
        order="DESC",
        limit=value(limit + 1),
        size=_DECISION_SIZE,
        columns=_DECISION_ROW,
        join=_WITH_RUN,
    )
    (found,) = yield [(sql, value.bound)]
    rows, more = rows_of(found, limit)
    return [to_decision(row[:-1]) for row in rows], (
        "" if more is None else cursors.seal("decisions", tenant, more)
    )


def _seq(value: Values, tenant: str, run_id: str) -> str:
    return f"(SELECT seq FROM entracte.runs WHERE tenant = {tenant} AND run_id = {value(run_id)})"
