"""Working memories: read, replaced, and noted by runs."""

from collections.abc import Sequence

from entracte_server.domain.working_memory import WorkingMemoryRow
from entracte_server.store.base import Made, MemoryChanged, NotFound
from entracte_server.store.postgres import requests
from entracte_server.store.postgres.connection import Result, Statement
from entracte_server.store.postgres.messages import IS_FIRST
from entracte_server.store.postgres.programs import Attempt, Program
from entracte_server.store.postgres.values import Values
from entracte_server.store.working_memory import Note, SetWorkingMemory

_THREAD = "SELECT seq FROM entracte.threads WHERE tenant = $1 AND thread_id = $2 AND deleted = 0"
_GET = (
    "SELECT content, version, update_time FROM entracte.working_memory "
    "WHERE tenant = $1 AND resource_id = $2 AND thread = {}"
)
_OF_THREAD = _GET.format(f"({_THREAD.replace('$2', '$3')})")
_BY_KEY = _GET.format("$3")
# What there is not has the version 0, and is inserted only by those who expect that.
_PUT = (
    "INSERT INTO entracte.working_memory AS m (tenant, resource_id, thread, version, update_time, content) "
    "SELECT $1::text, $2::text, $3::bigint, 1, $4::bigint, $5::bytea "
    "WHERE coalesce($6::bigint, 0) = 0 OR EXISTS (SELECT 1 FROM entracte.working_memory o "
    "WHERE o.tenant = $1 AND o.resource_id = $2 AND o.thread = $3) "
    "ON CONFLICT (tenant, resource_id, thread) DO UPDATE SET version = m.version + 1, "
    "update_time = excluded.update_time, content = excluded.content "
    "WHERE $6::bigint IS NULL OR m.version = $6 RETURNING m.version"
)
_DELETE = "DELETE FROM entracte.working_memory WHERE tenant = $1 AND resource_id = '' AND thread = $2"
_FORGET = (
    "DELETE FROM entracte.working_memory WHERE tenant = $1 AND resource_id = $2 AND thread = 0 "
    "AND octet_length(content) = 0 AND NOT EXISTS (SELECT 1 FROM entracte.threads t "
    "WHERE t.tenant = $1 AND t.resource_id = $2 AND t.deleted = 0)"
)


def get(tenant: str, thread_id: str, resource_id: str) -> Program[WorkingMemoryRow]:
    """See `WorkingMemoryStore.get_working_memory`."""
    if thread_id:
        thread, found = yield [(_THREAD, (tenant, thread_id)), (_OF_THREAD, (tenant, "", thread_id))]
        if not thread.rows:
            raise NotFound(f"no thread {thread_id}")
    else:
        (found,) = yield [(_BY_KEY, (tenant, resource_id, 0))]
    return _row(found, tenant, thread_id, resource_id)


def _row(found: Result, tenant: str, thread_id: str, resource_id: str) -> WorkingMemoryRow:
    if not found.rows:
        return WorkingMemoryRow(tenant, thread_id, resource_id)
    content, version, update_time = found.rows[0]
    return WorkingMemoryRow(tenant, thread_id, resource_id, content.decode(), version, update_time)


def put(op: SetWorkingMemory, at: Attempt) -> Program[tuple[WorkingMemoryRow, Made | None]]:
    """See `WorkingMemoryStore.set_working_memory`. In a transaction of its own."""
    owner = (op.tenant, op.thread_id, op.resource_id)
    if op.request is not None:
        made = requests.made_by(op.request, (yield requests.find(op.request)))
        if made is not None:
            return (yield from get(*owner)), None if at.again else made
    thread = 0
    if op.thread_id:  # which is not to be deleted meanwhile
        (locked,) = yield [(f"{_THREAD} FOR SHARE", (op.tenant, op.thread_id))]
        if not locked.rows:
            raise NotFound(f"no thread {op.thread_id}")
        thread = locked.rows[0][0]
    key = (op.tenant, op.resource_id, thread)
    done, found = yield [(_PUT, (*key, op.now, op.content.encode(), op.expected)), (_BY_KEY, key)]
    row = _row(found, *owner)
    if not done.rows:
        done_before = row.version == (op.expected or 0) + 1 or not (op.content or row.version)
        if at.again and row.content == op.content and done_before:
            return row, None  # the attempt before was committed
        if op.request is not None:  # the same one may have been at it
            made = requests.made_by(op.request, (yield requests.find(op.request)))
            if made is not None:
                return row, made
        raise MemoryChanged(row)
    if op.request is not None:
        value = Values()
        record = requests.record(op.request, op.thread_id or op.resource_id, at, value)
        yield [(record, value.bound)]
    if op.resource_id:
        yield [forget(op.tenant, op.resource_id)]
    return row, None


def noted(notes: Sequence[Note], value: Values) -> list[str]:
    """The parts of a statement by which the run `target` notes something down: for a resource, for the thread
    that it has, or for one that goes with it."""
    return [_noted(f"note{number}", what, value) for number, what in enumerate(notes)]


def _noted(name: str, what: Note, value: Values) -> str:
    if what.resource_id:
        key, of = f"{value(what.resource_id)}::text, 0", ""
    else:
        key, of = "'', u.thread", f" JOIN entracte.thread_turns u ON u.run = t.seq WHERE {IS_FIRST}"
        if what.thread_id:
            key, of = (
                "'', h.seq",
                " JOIN entracte.thread_turns u ON u.run = t.seq "
                "JOIN entracte.threads h ON h.parent = u.thread AND h.deleted = 0 "
                f"AND h.thread_id = {value(what.thread_id)} WHERE {IS_FIRST}",
            )
    new = f"{value(what.version)}::bigint, {value(what.now)}::bigint, {value(what.content.encode())}::bytea"
    return (
        f"{name} AS (INSERT INTO entracte.working_memory AS m "
        "(tenant, resource_id, thread, version, update_time, content) "
        f"SELECT t.tenant, {key}, {new} FROM target t{of} "
        "ON CONFLICT (tenant, resource_id, thread) DO UPDATE SET "
        "version = greatest(m.version + 1, excluded.version), update_time = excluded.update_time, "
        "content = excluded.content)"
    )


def delete_of_thread(tenant: str, thread: int) -> Statement:
    """The memory of a thread that is deleted."""
    return _DELETE, (tenant, thread)


def forget(tenant: str, resource_id: str) -> Statement:
    """An empty memory is not kept of a resource that has no threads."""
    return _FORGET, (tenant, resource_id)
