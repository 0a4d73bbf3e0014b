"""The messages of threads: added by the owners of runs, read in the order of the thread."""

import sqlite3
from collections.abc import Iterable

from entracte_server.domain.threads import ThreadMessage
from entracte_server.store.base import NotFound
from entracte_server.store.sqlite.reads import one_moment
from entracte_server.store.sqlite.writer import Transaction
from entracte_server.store.thread_records import MESSAGE_COLUMNS, message_data, message_row
from entracte_server.store.threads import MessageRange

_THREAD_OF_RUN = (
    "SELECT t.thread FROM thread_turns t WHERE t.run = ? AND NOT EXISTS (SELECT 1 FROM thread_turns f "
    "INDEXED BY thread_turns_of_thread WHERE f.thread = t.thread AND f.run < t.run)"
)
_REPLACE = (
    "UPDATE messages INDEXED BY messages_key SET role = ?, run_id = ?, create_time = ?, format = ?, data = ? "
    "WHERE thread = ? AND message_id = ?"
)
_INSERT = (
    "INSERT INTO messages (role, run_id, create_time, format, data, thread, message_id, position) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, "
    "1 + coalesce((SELECT max(position) FROM messages INDEXED BY messages_of_thread WHERE thread = ?), 0))"
)
_THREAD = (
    "SELECT seq FROM threads WHERE tenant = ? AND thread_id = ? AND doom = 0 AND (? = '' OR resource_id = ?)"
)


def add(messages: Iterable[ThreadMessage], run: int, transaction: Transaction) -> None:
    """Add messages to the thread that a run has, as its owner's write says."""
    thread = transaction.execute(_THREAD_OF_RUN, (run,)).fetchone()
    if thread is not None:
        put(messages, thread[0], transaction)


def put(messages: Iterable[ThreadMessage], thread: int, transaction: Transaction) -> None:
    """Add messages to a thread, or replace those with their ids."""
    for message in messages:
        values = (
            message.role,
            message.run_id,
            message.create_time,
            message.format,
            message_data(message),
            thread,
            message.id,
        )
        if not transaction.execute(_REPLACE, values).rowcount:
            transaction.execute(_INSERT, (*values, thread))


def read(
    connection: sqlite3.Connection, tenant: str, thread_id: str, where: MessageRange, limit: int
) -> list[ThreadMessage]:
    """See `ThreadStore.read_messages`."""
    terms, values = ["m.thread = ?", "m.position > ?"], [where.after]
    if where.before:
        terms.append("m.position < ?")
        values.append(where.before)
    texts: list[str] = []
    if where.run_id:
        terms.append("m.run_id = ?")
        texts.append(where.run_id)
    if where.roles:
        terms.append(f"m.role IN ({', '.join('?' * len(where.roles))})")
        texts.extend(where.roles)
    if where.ids:
        terms.append(f"m.message_id IN ({', '.join('?' * len(where.ids))})")
        texts.extend(where.ids)
    index = "messages_of_run" if where.run_id else "messages_key" if where.ids else "messages_of_thread"
    sql = (
        f"SELECT {MESSAGE_COLUMNS} FROM messages m INDEXED BY {index} WHERE {' AND '.join(terms)} "
        f"ORDER BY m.position {'DESC' if where.newest else 'ASC'} LIMIT ?"
    )
    with one_moment(connection) as cursor:
        thread = cursor.execute(_THREAD, (tenant, thread_id, where.resource_id, where.resource_id)).fetchone()
        if thread is None:
            raise NotFound(f"no thread {thread_id}")
        found = [message_row(row) for row in cursor.execute(sql, (*thread, *values, *texts, limit))]
    return found[::-1] if where.newest else found
