"""Statements that find rows by the ids that callers send, and what is read from them."""

from msgspec.structs import replace

from entracte_server.domain.runs import DecisionRow, PendingRow, RunRow
from entracte_server.store.postgres.connection import Result, Statement
from entracte_server.store.records import (
    DECISION_COLUMNS,
    PENDING_COLUMNS,
    RUN_COLUMNS,
    Row,
    decision_row,
    pending_row,
    run_row,
)

FIND_RUN = f"SELECT {RUN_COLUMNS}, taken_by FROM entracte.runs WHERE tenant = $1 AND run_id = $2"
"""For `to_run` and `taken_by`."""

LOCK_RUN = "SELECT 1 FROM entracte.runs WHERE tenant = $1 AND run_id = $2 FOR UPDATE"
"""Statements behind it see all that was committed for the run before."""

LOCK_RUN_WITHOUT_THREAD = (
    "SELECT 1 FROM entracte.runs WHERE tenant = $1 AND run_id = $2 AND (thread_id IS NULL) IS TRUE FOR UPDATE"
)
"""As `LOCK_RUN`; of a run with a thread it locks nothing."""

PENDING_WITH_RUN = "entracte.pending_calls p JOIN entracte.runs r ON r.tenant = p.tenant AND r.seq = p.run"
DECISION_WITH_RUN = "entracte.decisions d JOIN entracte.runs r ON r.tenant = d.tenant AND r.seq = d.run"

IS_OPEN = "(p.state = 'open') IS TRUE"
IS_LIVE = "(r.finish_time = 0) IS TRUE"
"""Conditions on rows that are found by their ids. In this form they are not mistaken for a way to find
them: the partial indexes of open calls and live runs are for lists."""
DECISION_ROW = f"{DECISION_COLUMNS}, d.sequence"

_FIND_PENDING = (
    f"SELECT {PENDING_COLUMNS} FROM {PENDING_WITH_RUN} WHERE p.tenant = $1 AND p.pending_call_id = $2"
)
_FIND_DECISION = f"SELECT {DECISION_ROW} FROM {DECISION_WITH_RUN} WHERE d.tenant = $1 AND d.decision_id = $2"
_FIND_DECISION_OF_PENDING = (
    f"SELECT {DECISION_ROW} FROM entracte.pending_calls p "
    "JOIN entracte.decisions d ON d.tenant = p.tenant AND d.decision_id = p.decision_id "
    "JOIN entracte.runs r ON r.tenant = d.tenant AND r.seq = d.run "
    "WHERE p.tenant = $1 AND p.pending_call_id = $2"
)


def to_run(row: Row) -> RunRow:
    """From `FIND_RUN`."""
    return run_row(row[:-1])


def taken_by(row: Row) -> int:
    """From `FIND_RUN`: the operation by which the owner came to own the run."""
    token: int = row[-1]
    return token


def find_pending(tenant: str, pending_call_id: str) -> Statement:
    """For `a_pending`."""
    return _FIND_PENDING, (tenant, pending_call_id)


def find_decision(tenant: str, decision_id: str) -> Statement:
    """For `a_decision`."""
    return _FIND_DECISION, (tenant, decision_id)


def find_decision_of_pending(tenant: str, pending_call_id: str) -> Statement:
    """For `a_decision`: the one that settled a pending call."""
    return _FIND_DECISION_OF_PENDING, (tenant, pending_call_id)


def a_pending(result: Result) -> PendingRow | None:
    """The pending call that was found."""
    return pending_row(result.rows[0]) if result.rows else None


def a_decision(result: Result) -> DecisionRow | None:
    """The decision that was found."""
    return to_decision(result.rows[0]) if result.rows else None


def to_decision(row: Row) -> DecisionRow:
    """From `DECISION_ROW`."""
    return replace(decision_row(row), sequence=row[8])
