"""Request ids: what an earlier request made, found and recorded in the transaction of the change."""

import sqlite3

from entracte_server.store.base import Made, RequestKey, RequestReused
from entracte_server.store.sqlite.writer import Transaction

_FIND = (
    "SELECT body_hash, run_id, decision_id FROM requests "
    "WHERE tenant = ? AND principal = ? AND method = ? AND request_id = ?"
)
_RECORD = (
    "INSERT INTO requests (tenant, principal, method, request_id, body_hash, run_id, decision_id, "
    "create_time) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)


def made_by(cursor: sqlite3.Cursor, key: RequestKey | None) -> Made | None:
    """What an earlier request with this id made. Raises `RequestReused`."""
    if key is None:
        return None
    row = cursor.execute(_FIND, (key.tenant, key.principal, key.method, key.request_id)).fetchone()
    if row is None:
        return None
    if row[0] != key.body_hash:
        raise RequestReused(key.request_id)
    return Made(row[1], row[2])


def record(transaction: Transaction, key: RequestKey | None, run_id: str, decision_id: str = "") -> None:
    """Remember what the request made."""
    if key is not None:
        transaction.execute(
            _RECORD,
            (
                key.tenant,
                key.principal,
                key.method,
                key.request_id,
                key.body_hash,
                run_id,
                decision_id,
                transaction.now,
            ),
        )
