"""Working memories: read, replaced, and noted by runs.

Operations of a transaction take a `Transaction`, as in `owner` and `commands`; the others are reads on a
connection of a reader.
"""

import sqlite3

from entracte_server.domain.working_memory import WorkingMemoryRow
from entracte_server.store.base import Made, MemoryChanged, NotFound
from entracte_server.store.sqlite.requests import made_by, record
from entracte_server.store.sqlite.writer import Transaction
from entracte_server.store.working_memory import Note, SetWorkingMemory

_THREAD = "SELECT seq FROM threads WHERE tenant = ? AND thread_id = ? AND doom = 0"
_GET = (
    "SELECT content, version, update_time FROM working_memory "
    "WHERE tenant = ? AND resource_id = ? AND thread = ?"
)
_PUT = (
    "INSERT INTO working_memory (tenant, resource_id, thread, version, update_time, content) "
    "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (tenant, resource_id, thread) DO UPDATE SET "
    "version = max(version + 1, excluded.version), update_time = excluded.update_time, "
    "content = excluded.content"
)
_TURN = (
    "SELECT u.thread FROM thread_turns u WHERE u.run = ? "
    "AND NOT EXISTS (SELECT 1 FROM thread_turns f WHERE f.thread = u.thread AND f.run < u.run)"
)
_BELOW = (
    "SELECT seq FROM threads INDEXED BY threads_below "
    "WHERE parent IS NOT NULL AND doom = 0 AND parent = ? AND thread_id = ?"
)
_DELETE = "DELETE FROM working_memory WHERE tenant = ? AND resource_id = '' AND thread = ?"
_FORGET = (
    "DELETE FROM working_memory WHERE tenant = ?1 AND resource_id = ?2 AND thread = 0 "
    "AND length(content) = 0 AND NOT EXISTS (SELECT 1 FROM threads t INDEXED BY threads_of_resource "
    "WHERE t.tenant = ?1 AND t.resource_id = ?2 AND t.doom = 0)"
)


def get(connection: sqlite3.Connection, tenant: str, thread_id: str, resource_id: str) -> WorkingMemoryRow:
    """See `WorkingMemoryStore.get_working_memory`."""
    return _get(connection.cursor(), tenant, thread_id, resource_id)[1]


def _get(
    cursor: sqlite3.Cursor, tenant: str, thread_id: str, resource_id: str
) -> tuple[int, WorkingMemoryRow]:
    """The thread's row id, 0 for a resource, and the memory."""
    thread = 0
    if thread_id:
        found = cursor.execute(_THREAD, (tenant, thread_id)).fetchone()
        if found is None:
            raise NotFound(f"no thread {thread_id}")
        (thread,) = found
    row = cursor.execute(_GET, (tenant, resource_id, thread)).fetchone()
    if row is None:
        return thread, WorkingMemoryRow(tenant, thread_id, resource_id)
    return thread, WorkingMemoryRow(tenant, thread_id, resource_id, row[0].decode(), row[1], row[2])


def put(op: SetWorkingMemory, transaction: Transaction) -> tuple[WorkingMemoryRow, Made | None]:
    """See `WorkingMemoryStore.set_working_memory`."""
    key = (op.tenant, op.thread_id, op.resource_id)
    made = made_by(transaction.cursor, op.request)
    thread, row = _get(transaction.cursor, *key)
    if made is not None:
        return row, made
    if op.expected is not None and row.version != op.expected:
        raise MemoryChanged(row)
    _put(transaction, op.tenant, op.resource_id, thread, 1, op.now, op.content)
    record(transaction, op.request, op.thread_id or op.resource_id)
    row = _get(transaction.cursor, *key)[1]
    if op.resource_id:
        forget(op.tenant, op.resource_id, transaction)
    return row, None


def note(what: Note, tenant: str, run: int, transaction: Transaction) -> None:
    """What a run notes down, as its owner's write says."""
    thread = 0
    if not what.resource_id:
        found = transaction.execute(_TURN, (run,)).fetchone()
        if found is not None and what.thread_id:
            found = transaction.execute(_BELOW, (*found, what.thread_id)).fetchone()
        if found is None:  # the thread was deleted, or the run only waits for it
            return
        (thread,) = found
    _put(transaction, tenant, what.resource_id, thread, what.version, what.now, what.content)


def _put(
    transaction: Transaction, tenant: str, resource_id: str, thread: int, least: int, now: int, content: str
) -> None:
    transaction.execute(_PUT, (tenant, resource_id, thread, least, now, content.encode()))


def delete_of_thread(tenant: str, thread: int, transaction: Transaction) -> None:
    """The memory of a thread that is deleted."""
    transaction.execute(_DELETE, (tenant, thread))


def forget(tenant: str, resource_id: str, transaction: Transaction) -> None:
    """An empty memory is not kept of a resource that has no threads."""
    transaction.execute(_FORGET, (tenant, resource_id))
