"""Follow-up jobs: added with the end of a run, claimed by processes, settled.

Operations of a transaction take a `Transaction`, as in `owner` and `commands`; the others are reads on a
connection of a reader.
"""

import sqlite3
from collections.abc import Iterable, Sequence

from entracte_server.domain.follow_ups import FollowUpRow
from entracte_server.domain.runs import SNAPSHOT_FORMAT
from entracte_server.store.base import ClaimFollowUps
from entracte_server.store.follow_up_records import FOLLOW_UP_COLUMNS, follow_up_data, follow_up_row
from entracte_server.store.sqlite.clock import boot_id, now_ms
from entracte_server.store.sqlite.processes import alive
from entracte_server.store.sqlite.writer import Transaction

_INSERT = (
    "INSERT INTO follow_ups (run, kind, name, handler, state, create_time, due_time, owner, attempts, "
    "format, data) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (run, kind, name) DO NOTHING"
)
_LEFT = (
    "FROM follow_ups INDEXED BY follow_ups_owned WHERE state = 'waiting' AND owner <> '' AND owner NOT IN "
    "(SELECT process_id FROM processes WHERE boot_id = ? AND lease_end > ?)"
)
_OWNERS = (
    "SELECT DISTINCT owner FROM follow_ups INDEXED BY follow_ups_owned "
    "WHERE state = 'waiting' AND owner <> '' "
)
_FREE = f"UPDATE follow_ups SET owner = '', due_time = ? WHERE rowid IN (SELECT rowid {_LEFT})"
_DUE = (
    "SELECT rowid FROM follow_ups INDEXED BY follow_ups_due "
    "WHERE state = 'waiting' AND due_time <= ? AND format <= ? AND (create_time < ? OR handler IN ({})) "
    "ORDER BY due_time LIMIT ?"
)
_CLAIM = "UPDATE follow_ups SET owner = ?, attempts = attempts + 1, due_time = ? WHERE rowid = ?"
_CLAIMED = f"SELECT {FOLLOW_UP_COLUMNS} FROM follow_ups f JOIN runs r ON r.seq = f.run WHERE f.rowid = ?"
_SETTLE = (
    "UPDATE follow_ups SET state = ?, due_time = ?, owner = '', data = ? "
    "WHERE run = (SELECT seq FROM runs WHERE tenant = ? AND run_id = ?) AND kind = ? AND name = ? "
    "AND attempts = ? AND state = 'waiting'"
)
_RELEASE = (
    "UPDATE follow_ups INDEXED BY follow_ups_owned SET owner = '', attempts = attempts - 1, due_time = ? "
    "WHERE state = 'waiting' AND owner <> '' AND owner = ?"
)
_OF_RUN = (
    f"SELECT {FOLLOW_UP_COLUMNS} FROM runs r CROSS JOIN follow_ups f INDEXED BY follow_ups_of_run "
    "ON f.run = r.seq WHERE r.tenant = ? AND r.run_id = ? ORDER BY f.kind, f.name"
)


def insert(rows: Iterable[FollowUpRow], run: int, form: int, transaction: Transaction) -> None:
    """Add jobs to a run, as its owner's write says."""
    for row in rows:
        transaction.execute(
            _INSERT,
            (
                run,
                row.kind,
                row.name,
                row.handler,
                row.state,
                row.create_time,
                row.due_time,
                row.owner,
                row.attempts,
                form,
                follow_up_data(row),
            ),
        )


def claimable(connection: sqlite3.Connection, op: ClaimFollowUps) -> tuple[bool, set[str]]:
    """Whether there is anything to claim, and the processes that have some of the rest by their leases."""
    due = connection.execute(_due(op), _due_values(op, 1)).fetchone() is not None
    owners = {row[0] for row in connection.execute(_OWNERS)} - {op.process_id}
    living = owners & alive(connection) if owners else owners
    return due or living != owners, living


def claim(op: ClaimFollowUps, transaction: Transaction) -> list[FollowUpRow]:
    """See `Store.claim_follow_ups`."""
    transaction.execute(_FREE, (op.now, boot_id(), now_ms()))
    found = []
    for key in transaction.execute(_due(op), _due_values(op, op.limit)).fetchall():
        transaction.execute(_CLAIM, (op.process_id, op.until, *key))
        found.append(follow_up_row(transaction.execute(_CLAIMED, key).fetchone()))
    return found


def _due(op: ClaimFollowUps) -> str:
    return _DUE.format(", ".join("?" * len(op.handlers)))


def _due_values(op: ClaimFollowUps, limit: int) -> tuple[object, ...]:
    return (op.now, SNAPSHOT_FORMAT, op.given_up, *op.handlers, limit)


def settle(row: FollowUpRow, transaction: Transaction) -> bool:
    """See `Store.settle_follow_up`."""
    values = (row.state, row.due_time, follow_up_data(row))
    key = (row.tenant, row.run_id, row.kind, row.name, row.attempts)
    return transaction.execute(_SETTLE, (*values, *key)).rowcount > 0


def release(process_id: str, transaction: Transaction) -> None:
    """See `Store.release_follow_ups`."""
    transaction.execute(_RELEASE, (transaction.now, process_id))


def of_runs(connection: sqlite3.Connection, tenant: str, run_ids: Sequence[str]) -> list[FollowUpRow]:
    """See `Store.follow_ups`."""
    return [follow_up_row(row) for run_id in run_ids for row in connection.execute(_OF_RUN, (tenant, run_id))]
