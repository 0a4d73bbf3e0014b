"""Threads: made, read, listed, changed, deleted, and what deleted ones left behind."""

from entracte_server.domain.threads import ThreadView
from entracte_server.store.base import Made, NotFound, Refused, RequestKey, ThreadExists
from entracte_server.store.cursors import Cursors
from entracte_server.store.postgres import requests, vectors, working_memory
from entracte_server.store.postgres.connection import Result, Statement
from entracte_server.store.postgres.lists import MAX_ROW, page_of, rows_of
from entracte_server.store.postgres.programs import Attempt, Program
from entracte_server.store.postgres.turns import LOCK_THREAD, RUNS_OF_THREAD, locks
from entracte_server.store.postgres.upkeep import Logs
from entracte_server.store.postgres.values import Values
from entracte_server.store.records import run_row
from entracte_server.store.thread_records import THREAD_COLUMNS, thread_view
from entracte_server.store.threads import CreateThread, DeletedThread, DeleteThread, UpdateThread

_INSERT = (
    "INSERT INTO entracte.threads (tenant, thread_id, resource_id, title, metadata, create_time, "
    "update_time) VALUES ($1, $2, $3, $4, $5, $6, $7) "
    "ON CONFLICT (tenant, thread_id, deleted) DO NOTHING RETURNING 1"
)
_SAME = (
    "SELECT 1 FROM entracte.threads WHERE tenant = $1 AND thread_id = $2 AND deleted = 0 "
    "AND resource_id = $3 AND title = $4 AND metadata IS NOT DISTINCT FROM $5 "
    "AND create_time = $6 AND update_time = $7"
)
_COLUMNS = THREAD_COLUMNS.format("x", "entracte.")
_STATE = (
    " LEFT JOIN LATERAL (SELECT n.position, n.create_time FROM entracte.messages n "
    "WHERE n.thread = x.seq ORDER BY n.position DESC LIMIT 1) m ON true "
    "LEFT JOIN LATERAL (SELECT f.run FROM entracte.thread_turns f "
    "WHERE f.thread = coalesce(x.parent, x.seq) ORDER BY f.run LIMIT 1) f ON true "
    "LEFT JOIN entracte.runs r ON r.tenant = x.tenant AND r.seq = f.run"
)
_VIEW = (
    f"SELECT {_COLUMNS} FROM entracte.threads x{_STATE} "
    "WHERE x.tenant = $1 AND x.thread_id = $2 AND x.deleted = 0"
)
_SIZE = "octet_length(x.title) + coalesce(octet_length(x.metadata), 0)"
_UPDATE = (
    "UPDATE entracte.threads SET title = coalesce($3, title), update_time = $5, "
    "metadata = CASE WHEN $4::text IS NULL THEN metadata ELSE nullif($4::text, '') END "
    "WHERE tenant = $1 AND thread_id = $2 AND deleted = 0 AND (NOT $6::boolean OR title = '') "
    "AND ($7 = '' OR (SELECT 1 FROM entracte.messages m WHERE m.thread = threads.seq AND m.run_id = $7 "
    "LIMIT 1) IS NOT NULL)"
)
_CANCEL = (
    "UPDATE entracte.runs SET cancel_reason = coalesce(cancel_reason, $3), update_time = $4, "
    "state = 'running', finish_reason = NULL, stop_cause = NULL "
    "WHERE tenant = $1 AND run_id = ANY($2::text[])"
)
_DELETE_TURNS = "DELETE FROM entracte.thread_turns WHERE thread = $1"
_DOOM = (
    "UPDATE entracte.threads SET deleted = seq, deleted_by = $3, doom = coalesce((SELECT seq "
    "FROM entracte.runs WHERE tenant = $1 ORDER BY seq DESC LIMIT 1), -1) "
    "WHERE tenant = $1 AND seq = $2"
)
_BELOW = "SELECT seq, resource_id FROM entracte.threads WHERE parent = $1 AND deleted = 0"
_DELETED_BEFORE = (
    "SELECT 1 FROM entracte.threads WHERE deleted <> 0 AND tenant = $1 AND thread_id = $2 AND deleted_by = $3"
)

# Sub-agents' runs go with their roots.
_OWN_RUNS = (
    "SELECT {0} FROM entracte.runs r "
    "WHERE r.tenant = {1} AND r.thread_id = {2} AND r.seq <= {3} AND r.root_run_id IS NULL"
)
_OWN = _OWN_RUNS.format("1", "t.tenant", "t.thread_id", "t.doom")
# Not as EXISTS, for which all messages might be read, once.
_HAS_MESSAGES = "(SELECT 1 FROM entracte.messages m WHERE m.thread = t.seq LIMIT 1) IS NOT NULL"
_DOOMED = (
    "SELECT t.seq, t.tenant, t.thread_id, t.doom FROM entracte.threads t WHERE t.deleted <> 0 "
    f"AND ({_HAS_MESSAGES} OR EXISTS ({_OWN} AND (r.finish_time > 0) IS TRUE) OR NOT EXISTS ({_OWN})) "
    "LIMIT $1 FOR UPDATE OF t SKIP LOCKED"
)
# Runs that somebody else works on are left for the next time.
_ENDED = (
    _OWN_RUNS.format("r.seq, r.run_id", "$1", "$2", "$3")
    + " AND (r.finish_time > 0) IS TRUE ORDER BY r.seq LIMIT $4 FOR UPDATE SKIP LOCKED"
)
_MESSAGES = (
    "SELECT position, octet_length(data) FROM entracte.messages WHERE thread = $1 ORDER BY position LIMIT $2"
)
_DELETE_MESSAGES = "DELETE FROM entracte.messages WHERE thread = $1 AND position <= $2"
_DELETE_IF_DONE = (
    "DELETE FROM entracte.threads t WHERE t.tenant = $1 AND t.seq = $2 "
    f"AND NOT ({_HAS_MESSAGES}) AND NOT EXISTS ({_OWN})"
)


def create(op: CreateThread, at: Attempt) -> Program[Made | None]:
    """See `ThreadStore.create_thread`."""
    new, request = op.thread, op.request
    made = requests.made_by(request, (yield requests.find(request))) if request is not None else None
    if made is not None:
        return None if at.again else made
    values = (
        new.tenant,
        new.thread_id,
        new.resource_id,
        new.title,
        new.metadata,
        new.create_time,
        new.update_time,
    )
    inserted, *_ = yield [(_INSERT, values), *_record(request, new.thread_id, at)]
    if not inserted.rows:
        (same,) = yield [(_SAME, values)]
        if not (at.again and same.rows):  # not what the attempt before made
            raise ThreadExists(f"thread {new.thread_id} exists")
    return None


def _record(request: RequestKey | None, thread_id: str, at: Attempt) -> list[Statement]:
    if request is None:
        return []
    value = Values()
    return [(requests.record(request, thread_id, at, value), value.bound)]


def get(tenant: str, thread_id: str) -> Program[ThreadView]:
    """See `ThreadStore.get_thread`."""
    (found,) = yield [(_VIEW, (tenant, thread_id))]
    return _view(found, thread_id)


def _view(found: Result, thread_id: str) -> ThreadView:
    if not found.rows:
        raise NotFound(f"no thread {thread_id}")
    return thread_view(found.rows[0])


def list_threads(
    cursors: Cursors, tenant: str, resource_id: str, cursor: str, limit: int
) -> Program[tuple[list[ThreadView], str]]:
    """See `ThreadStore.list_threads`. Raises `ValueError` for a cursor that is not one."""
    before = cursors.open("threads", tenant, cursor)
    value = Values()
    own = value(tenant)
    terms = [
        f"x.tenant = {own}",
        "x.deleted = 0",
        f"x.seq < {value(MAX_ROW if before is None else before)}",
    ]
    if resource_id:
        terms.append(f"x.resource_id = {value(resource_id)}")
    sql = page_of(
        "threads",
        [" AND ".join(terms)],
        tenant=own,
        order="DESC",
        limit=value(limit + 1),
        size=_SIZE,
        columns=_COLUMNS,
        join=_STATE,
    )
    (found,) = yield [(sql, value.bound)]
    rows, more = rows_of(found, limit)
    return [thread_view(row[:-1]) for row in rows], (
        "" if more is None else cursors.seal("threads", tenant, more)
    )


def update(op: UpdateThread, at: Attempt) -> Program[tuple[ThreadView, Made | None]]:
    """See `ThreadStore.update_thread`."""
    request = op.request
    made = requests.made_by(request, (yield requests.find(request))) if request is not None else None
    if made is not None:
        (found,) = yield [(_VIEW, (op.tenant, made.run_id))]
        return _view(found, made.run_id), None if at.again else made
    key = (op.tenant, op.thread_id)
    changes: list[Statement] = []
    if op.title is not None or op.metadata is not None:
        changes = [(_UPDATE, (*key, op.title, op.metadata, op.now, op.if_untitled, op.if_run))]
    *_, found = yield [*changes, *_record(request, op.thread_id, at), (_VIEW, key)]
    return _view(found, op.thread_id), None


def delete(op: DeleteThread, at: Attempt) -> Program[DeletedThread]:
    """See `ThreadStore.delete_thread`. When the attempt before was committed, nobody knows any more whom it
    asked to cancel."""
    key = (op.tenant, op.thread_id)
    if at.again:
        (before,) = yield [(_DELETED_BEFORE, (*key, at.token))]
        if before.rows:
            return DeletedThread()
    # The request is looked for once the lock is had: the same one may have been at it.
    thread, *found, runs = yield [
        (LOCK_THREAD, key),
        *requests.find(op.request),
        (RUNS_OF_THREAD, key),
    ]
    made = requests.made_by(op.request, found)
    if made is not None:
        return DeletedThread(made=made)
    if not thread.rows:
        raise NotFound(f"no thread {op.thread_id}")
    having = [run_row(row) for row in runs.rows]
    if having and not op.force:
        raise Refused("not-finished", run=having[0])
    seq, resource_id, parent = thread.rows[0]
    if parent is not None:  # those that wait for the thread above are not concerned
        having = having[:1]
    run_ids = [run.run_id for run in having]
    # Who makes a thread that goes with this one has locked the run that has it.
    *_, below = yield [*locks(op.tenant, set(run_ids)), (_BELOW, (seq,))]
    doomed = [(seq, resource_id), *below.rows]
    yield [
        (_CANCEL, (op.tenant, run_ids, op.reason, op.now)),
        (_DELETE_TURNS, (seq,)),
        *(working_memory.delete_of_thread(op.tenant, thread) for thread, _ in doomed),
        *((_DOOM, (op.tenant, thread, at.token)) for thread, _ in doomed),
        *(working_memory.forget(op.tenant, resource) for resource in sorted({it[1] for it in doomed})),
        *_record(op.request, op.thread_id, at),
    ]
    return DeletedThread(tuple(run_ids))


def sweep(limit: int) -> Program[int]:
    """See `ThreadStore.sweep_threads`. In a transaction of its own."""
    logs = Logs()
    touched = 0
    (doomed,) = yield [(_DOOMED, (limit,))]
    for seq, tenant, thread_id, doom in doomed.rows:
        touched += yield from _delete_messages(seq, limit - touched, logs)
        (ended,) = yield [(_ENDED, (tenant, thread_id, doom, max(0, limit - touched)))]
        for run, run_id in ended.rows:
            if logs.used_up():
                break
            touched += 1
            yield from logs.delete_run(run, tenant, run_id)
        if touched >= limit or logs.used_up():
            break
        (gone,) = yield [(_DELETE_IF_DONE, (tenant, seq))]
        touched += gone.count
    return touched


def _delete_messages(thread: int, limit: int, logs: Logs) -> Program[int]:
    last = deleted = 0
    (found,) = yield [(_MESSAGES, (thread, limit))]
    for position, size in found.rows:
        if logs.used_up():
            break
        last, deleted = position, deleted + 1
        logs.spend(size)
    if last:
        yield [*vectors.delete(thread, last), (_DELETE_MESSAGES, (thread, last))]
    return deleted
