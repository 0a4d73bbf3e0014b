"""Vectors of messages: see `VectorStore`."""

import sqlite3

from entracte_server.store.sqlite.lists import MAX_ROW
from entracte_server.store.sqlite.writer import Transaction
from entracte_server.store.thread_records import MESSAGE_COLUMNS, message_row
from entracte_server.store.vectors import AddVectors, Reach, StoredVector, Unembedded

_THREADS = "FROM threads t INDEXED BY {} "
_OF_RESOURCE = "WHERE t.tenant = ? AND t.resource_id = ? AND t.doom = 0 "
_OF_THREAD = "WHERE t.tenant = ? AND t.resource_id = ? AND t.thread_id = ? AND t.doom = 0 "

_UNEMBEDDED = (
    f"SELECT t.seq, t.thread_id, {MESSAGE_COLUMNS} {_THREADS}"
    "CROSS JOIN messages m INDEXED BY messages_of_thread ON m.thread = t.seq AND m.position > max("
    "coalesce((SELECT max(v.position) FROM vectors v WHERE v.thread = t.seq AND v.embedder = ?), 0), "
    "(SELECT max(n.position) FROM messages n WHERE n.thread = t.seq) - ?) {}"
    "ORDER BY t.seq DESC, m.position LIMIT ?"
)
_READ = (
    f"SELECT t.seq, t.thread_id, v.position, v.data {_THREADS}"
    "CROSS JOIN vectors v INDEXED BY vectors_of_thread ON v.thread = t.seq AND v.embedder = ? "
    f"AND v.position < CASE WHEN t.seq = ? THEN ? ELSE {MAX_ROW} END {{}}AND t.seq <= ? "
    "ORDER BY t.seq DESC, v.position DESC LIMIT ?"
)
_ADD = (
    "INSERT INTO vectors (thread, embedder, position, data) SELECT t.seq, ?, ?, ? FROM threads t "
    "WHERE t.seq = ? AND t.tenant = ? AND t.doom = 0 ON CONFLICT (thread, embedder, position) DO NOTHING"
)
_DELETE = "DELETE FROM vectors WHERE thread = ? AND embedder = ? AND position <= ?"
_EMBEDDERS = (
    # One after the other: there are few of them, and many vectors of each.
    "WITH RECURSIVE e(name) AS (SELECT min(embedder) FROM vectors WHERE thread = ?1 UNION ALL "
    "SELECT (SELECT min(v.embedder) FROM vectors v WHERE v.thread = ?1 AND v.embedder > e.name) FROM e "
    "WHERE e.name IS NOT NULL) SELECT name FROM e WHERE name IS NOT NULL"
)


def unembedded(connection: sqlite3.Connection, where: Reach, newest: int, limit: int) -> list[Unembedded]:
    """See `VectorStore.unembedded`."""
    sql, key = _within(_UNEMBEDDED, where)
    rows = connection.execute(sql, (where.embedder, newest, *key, limit))
    return [Unembedded(seq, thread_id, message_row(tuple(rest))) for seq, thread_id, *rest in rows]


def add(op: AddVectors, transaction: Transaction) -> None:
    """See `VectorStore.add_vectors`."""
    for thread, position, data in op.rows:
        transaction.execute(_ADD, (op.embedder, position, data, thread, op.tenant))


def read(
    connection: sqlite3.Connection, where: Reach, after: StoredVector | None, limit: int
) -> list[StoredVector]:
    """See `VectorStore.read_vectors`."""
    sql, key = _within(_READ, where)
    thread, position = (MAX_ROW, MAX_ROW) if after is None else (after.thread, after.position)
    rows = connection.execute(sql, (where.embedder, thread, position, *key, thread, limit))
    return [StoredVector(*row) for row in rows]


def delete(thread: int, last: int, transaction: Transaction) -> None:
    """Delete those of the messages of a thread up to the position `last`."""
    for (embedder,) in transaction.execute(_EMBEDDERS, (thread,)).fetchall():
        transaction.execute(_DELETE, (thread, embedder, last))


def _within(sql: str, where: Reach) -> tuple[str, tuple[str, ...]]:
    key = (where.tenant, where.resource_id)
    if where.thread_id:
        return sql.format("threads_key", _OF_THREAD), (*key, where.thread_id)
    return sql.format("threads_of_resource", _OF_RESOURCE), key
