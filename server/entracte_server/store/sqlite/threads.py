"""Threads: made, read, listed, changed, deleted, and what deleted ones left behind.

Operations of a transaction take a `Transaction`, as in `owner` and `commands`; the others are reads on a
connection of a reader.
"""

import sqlite3
from contextlib import closing

from entracte_server.domain.threads import ThreadView
from entracte_server.store.base import Made, NotFound, Refused, ThreadExists
from entracte_server.store.cursors import Cursors
from entracte_server.store.records import RUN_COLUMNS, Row, run_row
from entracte_server.store.sqlite import vectors, working_memory
from entracte_server.store.sqlite.lists import MAX_ROW, page_of, weight
from entracte_server.store.sqlite.requests import made_by, record
from entracte_server.store.sqlite.upkeep import Logs
from entracte_server.store.sqlite.writer import Transaction
from entracte_server.store.thread_records import THREAD_COLUMNS, thread_view
from entracte_server.store.threads import CreateThread, DeletedThread, DeleteThread, UpdateThread

_INSERT = (
    "INSERT INTO threads (tenant, thread_id, resource_id, title, metadata, create_time, update_time) "
    "VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (tenant, thread_id) WHERE doom = 0 DO NOTHING"
)
_VIEWS = (
    f"SELECT {THREAD_COLUMNS.format('t', '')} FROM threads t INDEXED BY {{}} "
    "LEFT JOIN messages m ON m.thread = t.seq "
    "AND m.position = (SELECT max(n.position) FROM messages n WHERE n.thread = t.seq) "
    "LEFT JOIN runs r ON r.seq = (SELECT min(f.run) FROM thread_turns f "
    "WHERE f.thread = coalesce(t.parent, t.seq)) "
    "WHERE t.tenant = ? AND t.doom = 0 AND "
)
_VIEW = _VIEWS.format("threads_key") + "t.thread_id = ?"
_PAGE = " t.seq < ? ORDER BY t.seq DESC LIMIT ?"
_OF_TENANT = _VIEWS.format("threads_of_tenant") + _PAGE
_OF_RESOURCE = _VIEWS.format("threads_of_resource") + "t.resource_id = ? AND" + _PAGE
_UPDATE = (
    "UPDATE threads SET title = coalesce(?, title), update_time = ?, "
    "metadata = CASE WHEN ? IS NULL THEN metadata ELSE nullif(?, '') END "
    "WHERE tenant = ? AND thread_id = ? AND doom = 0 AND (? = 0 OR title = '') "
    "AND (? = '' OR EXISTS (SELECT 1 FROM messages m WHERE m.thread = threads.seq AND m.run_id = ?))"
)
_FIND = "SELECT seq, resource_id, parent FROM threads WHERE tenant = ? AND thread_id = ? AND doom = 0"
_BELOW = (
    "SELECT seq, resource_id FROM threads INDEXED BY threads_below "
    "WHERE parent IS NOT NULL AND doom = 0 AND parent = ?"
)
_RUNS = (
    "SELECT r.run_id, r.seq FROM thread_turns t INDEXED BY thread_turns_of_thread "
    "CROSS JOIN runs r ON r.seq = t.run WHERE t.thread = ? ORDER BY t.run"
)
_RUN = f"SELECT {RUN_COLUMNS} FROM runs WHERE seq = ?"
_CANCEL = (
    "UPDATE runs SET cancel_reason = coalesce(cancel_reason, ?), update_time = ?, state = 'running', "
    "finish_reason = NULL, stop_cause = NULL WHERE seq = ?"
)
_DELETE_TURNS = "DELETE FROM thread_turns WHERE thread = ?"
_DOOM = "UPDATE threads SET doom = coalesce((SELECT max(seq) FROM runs), -1) WHERE seq = ?"

# Sub-agents' runs go with their roots.
_OWN_RUNS = (
    "SELECT r.seq, r.run_id FROM runs r INDEXED BY runs_of_thread "
    "WHERE r.tenant = {0} AND r.thread_id = {1} AND r.seq <= {2} AND r.root_run_id IS NULL"
)
_OWN = _OWN_RUNS.format("t.tenant", "t.thread_id", "t.doom")
_HAS_MESSAGES = "EXISTS (SELECT 1 FROM messages m WHERE m.thread = t.seq)"
_DOOMED = (
    "SELECT t.seq, t.tenant, t.thread_id, t.doom FROM threads t INDEXED BY threads_doomed WHERE t.doom <> 0 "
    f"AND ({_HAS_MESSAGES} OR EXISTS ({_OWN} AND r.finish_time > 0) OR NOT EXISTS ({_OWN})) LIMIT ?"
)
_ENDED = _OWN_RUNS.format("?", "?", "?") + " AND r.finish_time > 0 ORDER BY r.seq LIMIT ?"
_MESSAGES = "SELECT position, length(data) FROM messages WHERE thread = ? ORDER BY position LIMIT ?"
_DELETE_MESSAGES = "DELETE FROM messages WHERE thread = ? AND position <= ?"
_DELETE_IF_DONE = f"DELETE FROM threads AS t WHERE t.seq = ? AND NOT {_HAS_MESSAGES} AND NOT EXISTS ({_OWN})"


def create(op: CreateThread, transaction: Transaction) -> Made | None:
    """See `ThreadStore.create_thread`."""
    if (made := made_by(transaction.cursor, op.request)) is not None:
        return made
    new = op.thread
    values = (new.tenant, new.thread_id, new.resource_id, new.title, new.metadata)
    if not transaction.execute(_INSERT, (*values, new.create_time, new.update_time)).rowcount:
        raise ThreadExists(f"thread {new.thread_id} exists")
    record(transaction, op.request, new.thread_id)
    return None


def get(connection: sqlite3.Connection, tenant: str, thread_id: str) -> ThreadView:
    """See `ThreadStore.get_thread`."""
    return _view(connection.cursor(), tenant, thread_id)


def _view(cursor: sqlite3.Cursor, tenant: str, thread_id: str) -> ThreadView:
    row = cursor.execute(_VIEW, (tenant, thread_id)).fetchone()
    if row is None:
        raise NotFound(f"no thread {thread_id}")
    return thread_view(row)


def list_threads(
    connection: sqlite3.Connection, cursors: Cursors, tenant: str, resource_id: str, cursor: str, limit: int
) -> tuple[list[ThreadView], str]:
    """See `ThreadStore.list_threads`. Raises `ValueError` for a cursor that is not one."""
    before = cursors.open("threads", tenant, cursor)
    page: tuple[object, ...] = (MAX_ROW if before is None else before, limit + 1)
    sql, values = (_OF_RESOURCE, (tenant, resource_id)) if resource_id else (_OF_TENANT, (tenant,))

    def make(row: Row) -> tuple[ThreadView, int]:
        return thread_view(row), weight(row)

    with closing(connection.execute(sql, (*values, *page))) as rows:
        found, more = page_of(rows, limit, make)
    return found, "" if more is None else cursors.seal("threads", tenant, more)


def update(op: UpdateThread, transaction: Transaction) -> tuple[ThreadView, Made | None]:
    """See `ThreadStore.update_thread`."""
    made = made_by(transaction.cursor, op.request)
    if made is not None:
        return _view(transaction.cursor, op.tenant, made.run_id), made
    if op.title is not None or op.metadata is not None:
        values = (op.title, op.now, op.metadata, op.metadata, op.tenant, op.thread_id, op.if_untitled)
        transaction.execute(_UPDATE, (*values, op.if_run, op.if_run))
    view = _view(transaction.cursor, op.tenant, op.thread_id)
    record(transaction, op.request, op.thread_id)
    return view, None


def delete(op: DeleteThread, transaction: Transaction) -> DeletedThread:
    """See `ThreadStore.delete_thread`."""
    if (made := made_by(transaction.cursor, op.request)) is not None:
        return DeletedThread(made=made)
    found = transaction.execute(_FIND, (op.tenant, op.thread_id)).fetchone()
    if found is None:
        raise NotFound(f"no thread {op.thread_id}")
    thread, resource_id, parent = found
    runs = transaction.execute(_RUNS, (thread if parent is None else parent,)).fetchall()
    if parent is not None:  # those that wait for the thread above are not concerned
        runs = runs[:1]
    if runs and not op.force:
        raise Refused("not-finished", run=run_row(transaction.execute(_RUN, runs[0][1:]).fetchone()))
    for _, seq in runs:
        transaction.execute(_CANCEL, (op.reason, op.now, seq))
    transaction.execute(_DELETE_TURNS, (thread,))
    for doomed, resource in ((thread, resource_id), *transaction.execute(_BELOW, (thread,)).fetchall()):
        working_memory.delete_of_thread(op.tenant, doomed, transaction)
        transaction.execute(_DOOM, (doomed,))
        working_memory.forget(op.tenant, resource, transaction)
    record(transaction, op.request, op.thread_id)
    return DeletedThread(tuple(run_id for run_id, _ in runs))


def sweep(limit: int, transaction: Transaction) -> int:
    """See `ThreadStore.sweep_threads`."""
    transaction.flush()
    logs = Logs(transaction)
    touched = 0
    for seq, tenant, thread_id, doom in transaction.execute(_DOOMED, (limit,)).fetchall():
        touched += _delete_messages(seq, limit - touched, logs, transaction)
        ended = (tenant, thread_id, doom, max(0, limit - touched))
        for run, run_id in transaction.execute(_ENDED, ended).fetchall():
            if logs.used_up():
                break
            touched += 1
            logs.delete_run(run, tenant, run_id)
        if touched >= limit or logs.used_up():
            break
        touched += transaction.execute(_DELETE_IF_DONE, (seq,)).rowcount
    return touched


def _delete_messages(thread: int, limit: int, logs: Logs, transaction: Transaction) -> int:
    last = deleted = 0
    for position, size in transaction.execute(_MESSAGES, (thread, limit)).fetchall():
        if logs.used_up():
            break
        last, deleted = position, deleted + 1
        logs.spend(size)
    if last:
        vectors.delete(thread, last, transaction)
        transaction.execute(_DELETE_MESSAGES, (thread, last))
    return deleted
