"""Rows found by the ids that callers send, and the statement that creates a run."""

import sqlite3

from entracte_server.domain.runs import DecisionRow, PendingRow, RunRow
from entracte_server.store.records import (
    DECISION_COLUMNS,
    NEW_RUN_COLUMNS,
    PENDING_COLUMNS,
    RUN_COLUMNS,
    decision_row,
    pending_row,
    run_row,
)

INSERT_RUN = (
    f"INSERT INTO runs ({NEW_RUN_COLUMNS}) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (tenant, run_id) DO NOTHING RETURNING seq"
)
SELECT_RUN = f"SELECT {RUN_COLUMNS} FROM runs WHERE tenant = ? AND run_id = ?"
SELECT_PENDING = (
    f"SELECT {PENDING_COLUMNS} FROM pending_calls p JOIN runs r ON r.seq = p.run "
    "WHERE p.tenant = ? AND p.pending_call_id = ?"
)
SELECT_DECISION = (
    f"SELECT {DECISION_COLUMNS} FROM decisions d JOIN runs r ON r.seq = d.run "
    "WHERE d.tenant = ? AND d.decision_id = ?"
)


def find_run(cursor: sqlite3.Cursor, tenant: str, run_id: str) -> tuple[int, RunRow] | None:
    """A run's row id and row."""
    row = cursor.execute(SELECT_RUN, (tenant, run_id)).fetchone()
    return None if row is None else (row[0], run_row(row))


def find_pending(cursor: sqlite3.Cursor, tenant: str, pending_call_id: str) -> PendingRow | None:
    row = cursor.execute(SELECT_PENDING, (tenant, pending_call_id)).fetchone()
    return None if row is None else pending_row(row)


def find_decision(cursor: sqlite3.Cursor, tenant: str, decision_id: str) -> DecisionRow | None:
    row = cursor.execute(SELECT_DECISION, (tenant, decision_id)).fetchone()
    return None if row is None else decision_row(row)
