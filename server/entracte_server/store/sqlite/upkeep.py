"""Finding what has expired, and deleting: runs that somebody wants gone, and what is old.

Operations of a transaction take a `Transaction`, as in `owner` and `commands`.
"""

import sqlite3
from collections.abc import Collection

from entracte_server.domain.runs import SNAPSHOT_FORMAT, PendingRow
from entracte_server.store.base import Backlog, Retention
from entracte_server.store.records import PENDING_COLUMNS, pending_row
from entracte_server.store.sqlite.writer import Transaction

LOG_BYTES = 8 * 1024 * 1024
LOG_ROWS = 4096
"""How much of logs is deleted in one transaction: other writers wait for it."""

_EXPIRED = (
    f"SELECT {PENDING_COLUMNS} FROM pending_calls p INDEXED BY pending_calls_expiring "
    "CROSS JOIN runs r ON r.seq = p.run "
    "WHERE p.state = 'open' AND p.expire_time > 0 AND p.expire_time < ? AND p.format <= ? "
    "AND (EXISTS (SELECT 1 FROM agents a WHERE a.tenant = p.tenant AND a.agent_id = p.agent_id) "
    "OR p.agent_id IN "
)
# Tenant by tenant, so that only what is open is read.
_BACKLOG = (
    "WITH RECURSIVE tenants(tenant) AS (SELECT min(tenant) FROM pending_calls UNION ALL "
    "SELECT (SELECT min(p.tenant) FROM pending_calls p WHERE p.tenant > t.tenant) FROM tenants t "
    "WHERE t.tenant IS NOT NULL) "
    "SELECT p.agent_id, count(*), min(p.create_time) FROM tenants t "
    "CROSS JOIN pending_calls p INDEXED BY pending_calls_of_tenant "
    "ON p.tenant = t.tenant AND p.state = 'open' GROUP BY p.agent_id ORDER BY p.agent_id"
)
_TREE = (
    "SELECT seq FROM runs WHERE tenant = ? AND run_id = ? "
    "UNION SELECT seq FROM runs INDEXED BY runs_of_tree WHERE tenant = ? AND root_run_id = ?"
)
_DELETE = (
    "UPDATE requests INDEXED BY requests_of_decisions SET decision_id = '' WHERE decision_id <> '' "
    "AND (tenant, decision_id) IN (SELECT tenant, decision_id FROM decisions WHERE run = ?)",
    "DELETE FROM chunks WHERE run = ?",
    "DELETE FROM steps WHERE run = ?",
    "DELETE FROM tool_calls WHERE run = ?",
    "DELETE FROM pending_calls WHERE run = ?",
    "DELETE FROM decisions WHERE run = ?",
    "DELETE FROM follow_ups WHERE run = ?",
    "DELETE FROM work_outputs WHERE work IN (SELECT seq FROM work WHERE run = ?)",
    "DELETE FROM work WHERE run = ?",
    "DELETE FROM run_specs WHERE run = ?",
    "DELETE FROM runs WHERE seq = ?",
)
_ENDED = (
    "SELECT seq, tenant, run_id FROM runs INDEXED BY runs_ended "
    "WHERE trimmed = ? AND finish_time > 0 AND root_run_id IS NULL AND finish_time < ? "
    "ORDER BY finish_time LIMIT ?"
)
_LOG = "SELECT last, length(data) FROM chunks WHERE run = ? ORDER BY last LIMIT ?"
_DELETE_LOG = "DELETE FROM chunks WHERE run = ? AND last <= ?"
_TRIMMED = "UPDATE runs SET trimmed = 1 WHERE seq = ?"
_DELETE_REQUESTS = (
    "DELETE FROM requests WHERE (tenant, principal, method, request_id) IN ("
    "SELECT tenant, principal, method, request_id FROM requests INDEXED BY requests_by_age "
    "WHERE decision_id = '' AND create_time < ? ORDER BY create_time LIMIT ?)"
)


def expired(
    connection: sqlite3.Connection, now: int, agents: Collection[str], limit: int
) -> list[PendingRow]:
    """See `Store.expired`."""
    names = ", ".join("?" * len(agents))
    rows = connection.execute(
        f"{_EXPIRED} ({names})) ORDER BY p.expire_time, p.seq LIMIT ?", (now, SNAPSHOT_FORMAT, *agents, limit)
    )
    return [pending_row(row) for row in rows]


def backlog(connection: sqlite3.Connection) -> list[Backlog]:
    """See `Store.backlog`."""
    return [Backlog(*row) for row in connection.execute(_BACKLOG)]


def delete_tree(tenant: str, run_id: str, transaction: Transaction) -> None:
    """Delete all of a run and of its sub-agents' runs."""
    transaction.flush()
    for (seq,) in transaction.execute(_TREE, (tenant, run_id, tenant, run_id)).fetchall():
        for statement in _DELETE:
            transaction.execute(statement, (seq,))


def trim(old: Retention, limit: int, transaction: Transaction) -> int:
    """See `Store.trim`."""
    transaction.flush()
    logs = Logs(transaction)
    runs = logs.of_runs(old.runs, limit)
    if runs < limit:
        runs += logs.alone(old.chunks, limit - runs)
    requests = 0
    if old.requests:
        requests = transaction.execute(_DELETE_REQUESTS, (old.requests, limit)).rowcount
    return runs + requests


class Logs:
    """Deletes logs, and what else may be large, up to a limit of one transaction."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._bytes = LOG_BYTES
        self._rows = LOG_ROWS

    def of_runs(self, before: int, limit: int) -> int:
        """With all else of the runs that ended before: how many were touched."""
        touched = 0
        for trimmed in (1, 0):
            for seq, tenant, run_id in self._ended(trimmed, before, limit - touched):
                touched += 1
                if trimmed or self._delete(seq):
                    delete_tree(tenant, run_id, self._transaction)
                if self.used_up():
                    return touched
        return touched

    def alone(self, before: int, limit: int) -> int:
        """And nothing else of the runs that ended before: how many were touched."""
        touched = 0
        if self.used_up():
            return touched
        for seq, _, _ in self._ended(0, before, limit):
            touched += 1
            if self._delete(seq):
                self._transaction.execute(_TRIMMED, (seq,))
            if self.used_up():
                break
        return touched

    def _ended(self, trimmed: int, before: int, limit: int) -> list[tuple[int, str, str]]:
        if not before or limit <= 0:
            return []
        return self._transaction.execute(_ENDED, (trimmed, before, limit)).fetchall()

    def used_up(self) -> bool:
        """Whether the limit is reached."""
        return self._bytes <= 0 or self._rows <= 0

    def spend(self, size: int) -> None:
        """Count a row of something else that is deleted in the same transaction."""
        self._bytes -= size
        self._rows -= 1

    def delete_run(self, seq: int, tenant: str, run_id: str) -> None:
        """As much as may be of a run's log, and all else of the run once that is gone."""
        if self._delete(seq):
            delete_tree(tenant, run_id, self._transaction)

    def _delete(self, seq: int) -> bool:
        """From the beginning of a log, as much as may be; whether that is all of it."""
        last = 0
        rows = self._transaction.execute(_LOG, (seq, self._rows + 1)).fetchall()
        for position, size in rows:
            last = position
            self.spend(size)
            if self.used_up():
                break
        if last:
            self._transaction.execute(_DELETE_LOG, (seq, last))
        return not rows or last == rows[-1][0]
