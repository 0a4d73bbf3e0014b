"""The messages of threads: added by the owners of runs, read in the order of the thread."""

from collections.abc import Sequence

from entracte_server.domain.threads import ThreadMessage
from entracte_server.store.base import NotFound
from entracte_server.store.postgres.programs import Program
from entracte_server.store.postgres.values import Values
from entracte_server.store.thread_records import MESSAGE_COLUMNS, message_data, message_row
from entracte_server.store.threads import MessageRange

_THREAD = (
    "SELECT seq FROM entracte.threads WHERE tenant = $1 AND thread_id = $2 AND deleted = 0 "
    "AND ($3 = '' OR resource_id = $3)"
)


IS_FIRST = "NOT EXISTS (SELECT 1 FROM entracte.thread_turns f WHERE f.thread = u.thread AND f.run < u.run)"
"""Whether the turn `u` has come."""


def had_by(source: str) -> str:
    """The thread that the run in `source` has, as `thread`."""
    return f"SELECT u.thread FROM {source} t JOIN entracte.thread_turns u ON u.run = t.seq WHERE {IS_FIRST}"


def added(messages: Sequence[ThreadMessage], value: Values, *, thread: str) -> list[str]:
    """The parts of a statement that add messages to the `thread` that a query gives.

    Only the run that has the thread, or the one it goes with, adds any, and its row is locked: so the newest
    position stays what it is, without a lock of the thread.
    """
    rows = list({message.id: message for message in messages}.values())
    arrays = [
        f"{value([row.id for row in rows])}::text[]",
        f"{value([str(row.role) for row in rows])}::text[]",
        f"{value([row.run_id for row in rows])}::text[]",
        f"{value([row.create_time for row in rows])}::bigint[]",
        f"{value([row.format for row in rows])}::bigint[]",
        f"{value([message_data(row) for row in rows])}::bytea[]",
    ]
    return [
        "turn AS (SELECT u.thread, coalesce((SELECT m.position FROM entracte.messages m "
        f"WHERE m.thread = u.thread ORDER BY m.position DESC LIMIT 1), 0) AS last FROM ({thread}) u)",
        "said AS (SELECT u.thread, u.last, s.*, (SELECT m.position FROM entracte.messages m "
        "WHERE m.thread = u.thread AND m.message_id = s.message_id) AS known "
        f"FROM turn u, unnest({', '.join(arrays)}) WITH ORDINALITY "
        "AS s (message_id, role, run_id, create_time, format, data, place))",
        "messages AS (INSERT INTO entracte.messages (thread, position, message_id, role, run_id, "
        "create_time, format, data) "
        "SELECT s.thread, coalesce(s.known, s.last + (SELECT count(*) FROM said b "
        "WHERE b.known IS NULL AND b.place <= s.place)), "
        "s.message_id, s.role, s.run_id, s.create_time, s.format, s.data FROM said s "
        "ON CONFLICT (thread, message_id) DO UPDATE SET role = excluded.role, run_id = excluded.run_id, "
        "create_time = excluded.create_time, format = excluded.format, data = excluded.data)",
    ]


def read(tenant: str, thread_id: str, where: MessageRange, limit: int) -> Program[list[ThreadMessage]]:
    """See `ThreadStore.read_messages`."""
    value = Values()
    terms = [
        "m.thread = (SELECT seq FROM entracte.threads "
        f"WHERE tenant = {value(tenant)} AND thread_id = {value(thread_id)} AND deleted = 0)",
        f"m.position > {value(where.after)}",
    ]
    if where.before:
        terms.append(f"m.position < {value(where.before)}")
    if where.ids:
        terms.append(f"m.message_id = ANY({value(list(where.ids))}::text[])")
    if where.run_id:
        terms.append(f"m.run_id = {value(where.run_id)}")
    if where.roles:
        terms.append(f"m.role = ANY({value([str(role) for role in where.roles])}::text[])")
    sql = (
        f"SELECT {MESSAGE_COLUMNS} FROM entracte.messages m WHERE {' AND '.join(terms)} "
        f"ORDER BY m.position {'DESC' if where.newest else 'ASC'} LIMIT {value(limit)}"
    )
    thread, found = yield [(_THREAD, (tenant, thread_id, where.resource_id)), (sql, value.bound)]
    if not thread.rows:
        raise NotFound(f"no thread {thread_id}")
    messages = [message_row(row) for row in found.rows]
    return messages[::-1] if where.newest else messages
