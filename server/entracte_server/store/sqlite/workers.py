"""Workers: their tools, their sessions, and what becomes of work when its time or its session's is over.

Operations of a transaction take a `Transaction`, as in `owner` and `commands`; the others are reads on a
connection of a reader.
"""

import sqlite3
from collections.abc import Sequence

from entracte_server.domain.work import OfferedTool, WorkState
from entracte_server.store.sqlite.reads import one_moment
from entracte_server.store.sqlite.writer import Transaction
from entracte_server.store.work import (
    MAX_SESSIONS,
    MAX_TOOL_VERSIONS,
    ConnectWorker,
    Held,
    SessionKey,
    Swept,
    TooManyWorkers,
    WorkerToolConflict,
)
from entracte_server.store.work_records import (
    after_loss,
    decode_targets,
    decode_tool,
    targets_data,
    tool_data,
)

_FIND_TOOL = "SELECT target FROM worker_tools WHERE tenant = ? AND name = ? AND version = ?"
_COUNT_TOOLS = "SELECT count(*) FROM worker_tools WHERE tenant = ?"
_OLD_TOOLS = "SELECT seq, target FROM worker_tools WHERE tenant = ? ORDER BY register_time, seq"
_FORGET_TOOL = "DELETE FROM worker_tools WHERE seq = ?"
_REGISTER = (
    "INSERT INTO worker_tools (tenant, name, version, target, register_time, data) VALUES (?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (tenant, name, version) DO UPDATE SET register_time = excluded.register_time"
)
_TOOL = "SELECT data FROM worker_tools WHERE tenant = ? AND name = ? "
_NEWEST_TOOL = _TOOL + "ORDER BY register_time DESC, seq DESC LIMIT 1"
_TOOL_OF_VERSION = _TOOL + "AND version = ?"

_KNOWN = "SELECT 1 FROM worker_sessions WHERE tenant = ? AND principal = ? AND session_id = ?"
_COUNT_SESSIONS = "SELECT count(*) FROM worker_sessions WHERE tenant = ?"
_CONNECT = (
    "INSERT INTO worker_sessions (tenant, principal, session_id, stream, alive_until, targets) "
    "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (tenant, principal, session_id) DO UPDATE SET "
    "stream = max(excluded.stream, worker_sessions.stream + 1), alive_until = excluded.alive_until, "
    "targets = excluded.targets RETURNING stream"
)
_KEEP = (
    "UPDATE worker_sessions SET alive_until = ? "
    "WHERE tenant = ? AND principal = ? AND session_id = ? AND stream = ?"
)
_STREAM = "SELECT stream FROM worker_sessions WHERE tenant = ? AND principal = ? AND session_id = ?"
_WORK_OF = (
    "SELECT work_id, token FROM work INDEXED BY work_held "
    "WHERE state = 'given' AND tenant = ? AND principal = ? AND session_id = ? ORDER BY seq"
)
_OFFERS = "SELECT targets FROM worker_sessions WHERE tenant = ? AND alive_until >= ?"

_DUE = (
    "SELECT EXISTS (SELECT 1 FROM work INDEXED BY work_due WHERE due_time > 0 AND due_time <= ?) "
    "OR EXISTS (SELECT 1 FROM worker_sessions INDEXED BY worker_sessions_ending WHERE alive_until < ?)"
)
_DUE_WORK = (
    "SELECT seq, tenant, work_id, target, state, create_time + queue, wait, "
    "coalesce((SELECT owner FROM runs WHERE runs.seq = work.run), '') "
    "FROM work INDEXED BY work_due WHERE due_time > 0 AND due_time <= ? ORDER BY due_time LIMIT ?"
)
_ENDED_SESSIONS = (
    "SELECT tenant, principal, session_id FROM worker_sessions INDEXED BY worker_sessions_ending "
    "WHERE alive_until < ? ORDER BY alive_until LIMIT ?"
)
_LEFT_WORK = (
    "SELECT seq, work_id, deliveries, idempotent, wait, "
    "coalesce((SELECT owner FROM runs WHERE runs.seq = work.run), '') FROM work INDEXED BY work_held "
    "WHERE state = 'given' AND tenant = ? AND principal = ? AND session_id = ? LIMIT ?"
)
_CHANGE = "UPDATE work SET state = ?, due_time = ? WHERE seq = ?"
_FORGET_WORK = "DELETE FROM work WHERE seq = ?"
_FORGET_SESSION = "DELETE FROM worker_sessions WHERE tenant = ? AND principal = ? AND session_id = ?"


def connect(op: ConnectWorker, transaction: Transaction) -> int:
    """See `WorkStore.connect_worker`. Checks before it changes anything. The first stream of a session has
    the time for its number, so that one that was forgotten and comes again does not have an earlier one's."""
    execute, now = transaction.execute, transaction.now
    new = 0
    for tool in op.tools:
        row = execute(_FIND_TOOL, (op.tenant, tool.name, tool.definition.version)).fetchone()
        if row is None:
            new += 1
        elif row[0] != tool.target:
            raise WorkerToolConflict(tool.name, tool.definition.version)
    key = (op.tenant, op.principal, op.session_id)
    known = execute(_KNOWN, key).fetchone() is not None
    if not known and execute(_COUNT_SESSIONS, (op.tenant,)).fetchone()[0] >= MAX_SESSIONS:
        raise TooManyWorkers("sessions", MAX_SESSIONS)
    if new:
        _make_room(op.tenant, new, transaction)
    if not known or new:
        for tool in op.tools:
            values = (tool.name, tool.definition.version, tool.target, now, tool_data(tool))
            execute(_REGISTER, (op.tenant, *values))
    connected = execute(_CONNECT, (*key, now, now + op.grace, targets_data(op.tools)))
    stream: int = connected.fetchone()[0]
    return stream


def _make_room(tenant: str, new: int, transaction: Transaction) -> None:
    """Have no more than the versions of tools that there may be, with `new` ones."""
    count = transaction.execute(_COUNT_TOOLS, (tenant,)).fetchone()[0]
    if (over := count + new - MAX_TOOL_VERSIONS) <= 0:
        return
    offered = _offered(transaction.cursor, tenant, 0)
    rows = transaction.execute(_OLD_TOOLS, (tenant,)).fetchall()
    old = [seq for seq, target in rows if target not in offered][:over]
    if len(old) < over:
        raise TooManyWorkers("tools", MAX_TOOL_VERSIONS)
    for seq in old:
        transaction.execute(_FORGET_TOOL, (seq,))


def _offered(cursor: sqlite3.Cursor, tenant: str, now: int) -> set[str]:
    """What the sessions that live at `now` offer."""
    rows = cursor.execute(_OFFERS, (tenant, now)).fetchall()
    return {target for (data,) in rows for target in decode_targets(data)}


def keep(sessions: Sequence[SessionKey], grace: int, transaction: Transaction) -> None:
    """See `WorkStore.keep_workers`."""
    until = transaction.now + grace
    for it in sessions:
        transaction.execute(_KEEP, (until, it.tenant, it.principal, it.session_id, it.stream))


def tool(connection: sqlite3.Connection, tenant: str, name: str, version: str) -> OfferedTool | None:
    """See `WorkStore.worker_tools`."""
    if version:
        row = connection.execute(_TOOL_OF_VERSION, (tenant, name, version)).fetchone()
    else:
        row = connection.execute(_NEWEST_TOOL, (tenant, name)).fetchone()
    return None if row is None else decode_tool(row[0])


def held(connection: sqlite3.Connection, sessions: Sequence[SessionKey]) -> list[Held]:
    """See `WorkStore.held_work`."""
    found = []
    with one_moment(connection) as cursor:
        for it in sessions:
            key = (it.tenant, it.principal, it.session_id)
            row = cursor.execute(_STREAM, key).fetchone()
            work = tuple((work_id, token) for work_id, token in cursor.execute(_WORK_OF, key))
            found.append(Held(it, 0 if row is None else row[0], work))
    return found


# ---- what is over ----


def is_due(connection: sqlite3.Connection, now: int) -> bool:
    """See `WorkStore.is_work_due`."""
    return bool(connection.execute(_DUE, (now, now)).fetchone()[0])


def sweep(limit: int, transaction: Transaction) -> list[Swept]:
    """See `WorkStore.sweep_work`."""
    execute, now = transaction.execute, transaction.now
    swept: list[Swept] = []
    offered: dict[str, set[str]] = {}
    for seq, tenant, work_id, target, state, last, wait, owner in execute(_DUE_WORK, (now, limit)).fetchall():
        if state == "closed":
            execute(_FORGET_WORK, (seq,))
            continue
        if state == "open" and now < last:
            if tenant not in offered:
                offered[tenant] = _offered(transaction.cursor, tenant, now)
            if target in offered[tenant]:  # they are busy
                execute(_CHANGE, ("open", min(last, now + wait), seq))
                continue
        new: WorkState = "expired" if state == "given" else "unavailable"
        execute(_CHANGE, (new, 0, seq))
        swept.append(Swept(tenant, work_id, owner, new))
    for key in execute(_ENDED_SESSIONS, (now, limit)).fetchall():
        left = execute(_LEFT_WORK, (*key, limit)).fetchall()
        for seq, work_id, deliveries, idempotent, wait, owner in left:
            left_as = after_loss(bool(idempotent), deliveries)
            execute(_CHANGE, (left_as, now + wait if left_as == "open" else 0, seq))
            swept.append(Swept(key[0], work_id, owner, left_as))
        if len(left) < limit:
            execute(_FORGET_SESSION, key)
    return swept
