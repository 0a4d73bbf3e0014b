"""Workers: their tools, their sessions, and what becomes of work when its time or its session's is over."""

from collections.abc import Sequence

from entracte_server.domain.work import OfferedTool, WorkState
from entracte_server.store.postgres.connection import Result
from entracte_server.store.postgres.programs import Program
from entracte_server.store.postgres.work import NOW, OWNER
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

_FIND_TOOL = "SELECT target FROM entracte.worker_tools WHERE tenant = $1 AND name = $2 AND version = $3"
_OLD_TOOLS = (
    "SELECT name, version, target FROM entracte.worker_tools WHERE tenant = $1 ORDER BY register_time, seq"
)
_FORGET_TOOLS = (
    "DELETE FROM entracte.worker_tools t USING unnest($2::text[], $3::text[]) AS o (name, version) "
    "WHERE t.tenant = $1 AND t.name = o.name AND t.version = o.version"
)
_REGISTER = (
    "INSERT INTO entracte.worker_tools (tenant, name, version, target, register_time, data) "
    f"VALUES ($1, $2, $3, $4, {NOW}, $5) "
    "ON CONFLICT (tenant, name, version) DO UPDATE SET register_time = excluded.register_time "
    "RETURNING target"
)
_NEWEST_TOOL = (
    "SELECT data FROM entracte.worker_tools WHERE tenant = $1 AND name = $2 "
    "ORDER BY register_time DESC, seq DESC LIMIT 1"
)
_TOOL_OF_VERSION = "SELECT data FROM entracte.worker_tools WHERE tenant = $1 AND name = $2 AND version = $3"

_KNOWN = (
    "SELECT 1 FROM entracte.worker_sessions "
    "WHERE tenant = $1 AND principal = $2 AND session_id = $3 FOR UPDATE"
)
_COUNT_SESSIONS = "SELECT count(*) FROM entracte.worker_sessions WHERE tenant = $1"
_COUNT_TOOLS = "SELECT count(*) FROM entracte.worker_tools WHERE tenant = $1"
_CONNECT = (
    "INSERT INTO entracte.worker_sessions AS s (tenant, principal, session_id, stream, alive_until, targets) "
    f"VALUES ($1, $2, $3, {NOW}, {NOW} + $4::bigint, $5) "
    "ON CONFLICT (tenant, principal, session_id) DO UPDATE SET "
    "stream = greatest(excluded.stream, s.stream + 1), alive_until = excluded.alive_until, "
    "targets = excluded.targets RETURNING s.stream"
)
_KEEP = (
    f"UPDATE entracte.worker_sessions SET alive_until = {NOW} + $5::bigint "
    "WHERE tenant = $1 AND principal = $2 AND session_id = $3 AND stream = $4"
)
_STREAM = (
    "SELECT stream FROM entracte.worker_sessions WHERE tenant = $1 AND principal = $2 AND session_id = $3"
)
_WORK_OF = (
    "SELECT work_id, token FROM entracte.work "
    "WHERE state = 'given' AND tenant = $1 AND principal = $2 AND session_id = $3 ORDER BY seq"
)
_OFFERS = "SELECT targets FROM entracte.worker_sessions WHERE tenant = $1"
_LIVE_OFFERS = f"{_OFFERS} AND alive_until >= {NOW}"

_DUE = (
    f"SELECT EXISTS (SELECT 1 FROM entracte.work WHERE due_time > 0 AND due_time <= {NOW}) "
    f"OR EXISTS (SELECT 1 FROM entracte.worker_sessions WHERE alive_until < {NOW})"
)
_DUE_WORK = (
    f"SELECT w.seq, w.tenant, w.work_id, w.target, w.state, w.create_time + w.queue - {NOW}, w.wait, {OWNER} "
    f"FROM entracte.work w WHERE w.due_time > 0 AND w.due_time <= {NOW} "
    "ORDER BY w.due_time LIMIT $1 FOR UPDATE OF w SKIP LOCKED"
)
_ENDED_SESSIONS = (
    f"SELECT tenant, principal, session_id FROM entracte.worker_sessions WHERE alive_until < {NOW} "
    "ORDER BY alive_until LIMIT $1 FOR UPDATE SKIP LOCKED"
)
_LEFT_WORK = (
    f"SELECT w.seq, w.work_id, w.deliveries, w.idempotent, w.wait, {OWNER} FROM entracte.work w "
    "WHERE w.state = 'given' AND w.tenant = $1 AND w.principal = $2 AND w.session_id = $3 "
    "ORDER BY w.seq LIMIT $4 FOR UPDATE OF w"
)
_CHANGE = (
    "UPDATE entracte.work w SET state = $3, "
    f"due_time = CASE $4::bigint WHEN 0 THEN 0 ELSE {NOW} + $4::bigint END WHERE w.tenant = $1 AND w.seq = $2"
)
_FORGET_WORK = "DELETE FROM entracte.work WHERE tenant = $1 AND seq = $2"
_FORGET_SESSION = (
    "DELETE FROM entracte.worker_sessions WHERE tenant = $1 AND principal = $2 AND session_id = $3"
)


def connect(op: ConnectWorker) -> Program[int]:
    """See `WorkStore.connect_worker`. In a transaction of its own. The first stream of a session has the
    time for its number, so that one that was forgotten and comes again does not have an earlier one's."""
    key = (op.tenant, op.principal, op.session_id)
    versions = [(tool.name, tool.definition.version) for tool in op.tools]
    known, sessions, count, *found = yield [
        (_KNOWN, key),
        (_COUNT_SESSIONS, (op.tenant,)),
        (_COUNT_TOOLS, (op.tenant,)),
        *((_FIND_TOOL, (op.tenant, *version)) for version in versions),
    ]
    new = sum(not result.rows for result in found)
    if not known.rows and sessions.rows[0][0] >= MAX_SESSIONS:
        raise TooManyWorkers("sessions", MAX_SESSIONS)
    if new and (over := count.rows[0][0] + new - MAX_TOOL_VERSIONS) > 0:
        yield from _make_room(op.tenant, over)
    # Locked in one order, whatever order the worker names them in.
    tools = sorted(op.tools, key=lambda tool: (tool.name, tool.definition.version))
    if known.rows and not new:
        stored = [(tool, result) for tool, result in zip(op.tools, found, strict=True)]
    else:
        results = yield [
            (_REGISTER, (op.tenant, tool.name, tool.definition.version, tool.target, tool_data(tool)))
            for tool in tools
        ]
        stored = list(zip(tools, results, strict=True))
    for tool, result in stored:
        if result.rows[0][0] != tool.target:
            raise WorkerToolConflict(tool.name, tool.definition.version)
    (connected,) = yield [(_CONNECT, (*key, op.grace, targets_data(op.tools)))]
    stream: int = connected.rows[0][0]
    return stream


def _make_room(tenant: str, over: int) -> Program[None]:
    offers, rows = yield [(_OFFERS, (tenant,)), (_OLD_TOOLS, (tenant,))]
    offered = _targets(offers)
    old = [(name, version) for name, version, target in rows.rows if target not in offered][:over]
    if len(old) < over:
        raise TooManyWorkers("tools", MAX_TOOL_VERSIONS)
    yield [(_FORGET_TOOLS, (tenant, [name for name, _ in old], [version for _, version in old]))]


def _targets(offers: Result) -> set[str]:
    return {target for (data,) in offers.rows for target in decode_targets(data)}


def keep(sessions: Sequence[SessionKey], grace: int) -> Program[None]:
    """See `WorkStore.keep_workers`."""
    ordered = sorted(sessions, key=lambda it: (it.tenant, it.principal, it.session_id))
    yield [(_KEEP, (it.tenant, it.principal, it.session_id, it.stream, grace)) for it in ordered]


def tool(tenant: str, name: str, version: str) -> Program[OfferedTool | None]:
    """See `WorkStore.worker_tools`."""
    if version:
        (found,) = yield [(_TOOL_OF_VERSION, (tenant, name, version))]
    else:
        (found,) = yield [(_NEWEST_TOOL, (tenant, name))]
    return decode_tool(found.rows[0][0]) if found.rows else None


def held(sessions: Sequence[SessionKey]) -> Program[list[Held]]:
    """See `WorkStore.held_work`."""
    keys = [(it.tenant, it.principal, it.session_id) for it in sessions]
    results = yield [(sql, key) for key in keys for sql in (_STREAM, _WORK_OF)]
    return [
        Held(
            session,
            results[2 * i].rows[0][0] if results[2 * i].rows else 0,
            tuple((work_id, token) for work_id, token in results[2 * i + 1].rows),
        )
        for i, session in enumerate(sessions)
    ]


# ---- what is over ----


def is_due() -> Program[bool]:
    """See `WorkStore.is_work_due`."""
    (found,) = yield [(_DUE, ())]
    return bool(found.rows[0][0])


def sweep(limit: int) -> Program[list[Swept]]:
    """See `WorkStore.sweep_work`. In a transaction of its own."""
    swept: list[Swept] = []
    offered: dict[str, set[str]] = {}
    (due,) = yield [(_DUE_WORK, (limit,))]
    for seq, tenant, work_id, target, state, left, wait, owner in due.rows:
        if state == "closed":
            yield [(_FORGET_WORK, (tenant, seq))]
            continue
        if state == "open" and left > 0:
            if tenant not in offered:
                (offers,) = yield [(_LIVE_OFFERS, (tenant,))]
                offered[tenant] = _targets(offers)
            if target in offered[tenant]:  # they are busy
                yield [(_CHANGE, (tenant, seq, "open", min(left, wait)))]
                continue
        new: WorkState = "expired" if state == "given" else "unavailable"
        yield [(_CHANGE, (tenant, seq, new, 0))]
        swept.append(Swept(tenant, work_id, owner, new))
    (ended,) = yield [(_ENDED_SESSIONS, (limit,))]
    for key in ended.rows:
        (left_work,) = yield [(_LEFT_WORK, (*key, limit))]
        for seq, work_id, deliveries, idempotent, wait, owner in left_work.rows:
            left_as = after_loss(bool(idempotent), deliveries)
            yield [(_CHANGE, (key[0], seq, left_as, wait if left_as == "open" else 0))]
            swept.append(Swept(key[0], work_id, owner, left_as))
        if len(left_work.rows) < limit:
            yield [(_FORGET_SESSION, key)]
    return swept
