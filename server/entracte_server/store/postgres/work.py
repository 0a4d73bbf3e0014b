"""Work of workers: opened and closed by owners of runs, claimed, answered, extended, given back.

Sessions and tools are in `workers`. Times are those of the database.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from entracte_server.domain.work import Answer, GivenWork, Output, WorkSight
from entracte_server.store.base import RunWrite
from entracte_server.store.postgres.connection import Statement
from entracte_server.store.postgres.programs import Program
from entracte_server.store.postgres.values import Values
from entracte_server.store.records import Row, encode
from entracte_server.store.work import (
    KEEP_CLOSED,
    MAX_DELIVERIES,
    MAX_OUTPUT_BYTES,
    MAX_OUTPUTS,
    Bearer,
    Handled,
    Seat,
    WorkRefused,
)
from entracte_server.store.work_records import (
    OUTPUT_PAGE,
    decode_answer,
    decode_output,
    decode_task,
    new_token,
    share,
    unchanged,
    wanted,
)

NOW = "(extract(epoch FROM statement_timestamp()) * 1000)::bigint"
"""Milliseconds since the epoch, by the database's clock."""

OWNER = (
    "coalesce((SELECT r.owner FROM entracte.runs r WHERE r.tenant = w.tenant AND r.seq = w.run), '') AS owner"
)

_NEW = ("work_id", "call_id", "target", "timeout", "wait", "queue", "idempotent", "task")
_NEW_TYPES = ("text",) * 3 + ("bigint",) * 4 + ("bytea",)

_SESSION = (
    "SELECT 1 FROM entracte.worker_sessions "
    "WHERE tenant = $1 AND principal = $2 AND session_id = $3 AND stream = $4 FOR SHARE"
)
_OPEN_OF = (
    "SELECT seq, target FROM entracte.work WHERE state = 'open' AND tenant = $1 AND target = $2 "
    "ORDER BY seq LIMIT $3 FOR UPDATE SKIP LOCKED"
)
_GIVEN = "w.principal, w.session_id, w.work_id, w.token, w.target, w.due_time - " + NOW
_GIVE = (
    "UPDATE entracte.work w SET state = 'given', principal = g.principal, session_id = g.session_id, "
    f"token = g.token, outputs = 0, deliveries = w.deliveries + 1, due_time = {NOW} + w.timeout "
    "FROM unnest($2::bigint[], $3::text[], $4::text[], $5::text[]) AS g (seq, principal, session_id, token) "
    f"WHERE w.tenant = $1 AND w.seq = g.seq RETURNING {_GIVEN}, w.deliveries, w.task"
)
_GIVEN_WORK = (
    f"SELECT {_GIVEN}, w.deliveries, w.task FROM entracte.work w "
    "WHERE w.tenant = $1 AND w.work_id = ANY($2::text[]) AND w.principal = $3 AND (w.state = 'given') IS TRUE"
)

_BORNE = (
    "WHERE w.tenant = $1 AND w.work_id = $2 AND w.principal = $3 AND w.token = $4 "
    "AND (w.state = 'given') IS TRUE "
)
_ANSWER = (
    "UPDATE entracte.work w SET state = 'answered', due_time = 0, answer = $5, digest = $6 "
    f"{_BORNE}RETURNING {OWNER}, EXISTS (SELECT 1 FROM entracte.work_outputs o WHERE o.work = w.seq)"
)
_ABANDON = (
    "UPDATE entracte.work w SET "
    f"state = CASE WHEN w.deliveries < {MAX_DELIVERIES} THEN 'open' ELSE 'unavailable' END, "
    f"due_time = CASE WHEN w.deliveries < {MAX_DELIVERIES} THEN {NOW} + w.wait ELSE 0 END "
    f"{_BORNE}RETURNING {OWNER}"
)
_LOCK = (
    f"SELECT w.seq, w.due_time - {NOW}, w.outputs, {OWNER}, "
    "(SELECT count(*) FROM entracte.work_outputs o WHERE o.work = w.seq), "
    "(SELECT coalesce(sum(o.size), 0)::bigint FROM entracte.work_outputs o WHERE o.work = w.seq) "
    f"FROM entracte.work w {_BORNE}FOR UPDATE OF w"
)
_EXTEND = f"UPDATE entracte.work SET due_time = {NOW} + $3, outputs = $4 WHERE tenant = $1 AND seq = $2"
_WRITE_OUT = (
    "INSERT INTO entracte.work_outputs (work, size, data) SELECT $1::bigint, o.size, o.data "
    "FROM unnest($2::bigint[], $3::bytea[]) WITH ORDINALITY AS o (size, data, place) ORDER BY o.place"
)
_STANDS = "SELECT principal, token, state, digest FROM entracte.work WHERE tenant = $1 AND work_id = $2"
_SEE = "SELECT seq, state, answer FROM entracte.work WHERE tenant = $1 AND work_id = $2"
_OUTPUTS = (
    "SELECT o.position, o.size, o.data FROM entracte.work_outputs o WHERE o.position > $3 AND o.work = "
    "(SELECT seq FROM entracte.work WHERE tenant = $1 AND work_id = $2) ORDER BY o.position LIMIT $4"
)
_OUTPUT_ROWS = 64


# ---- what the owners of runs write ----


def statements(op: RunWrite) -> list[Statement]:
    """What `op` has of work. They follow the statement of the write, in its transaction, change nothing
    unless its fence is the run's, and do nothing twice."""
    found: list[Statement] = []
    if op.work:
        found.append(_open(op))
    if op.taken_output:
        value = Values()
        ids = value([work_id for work_id, _ in op.taken_output])
        positions = value([position for _, position in op.taken_output])
        found.append(
            (
                f"WITH taken AS (SELECT w.seq, t.position FROM entracte.runs r, "
                f"unnest({ids}::text[], {positions}::bigint[]) AS t (work_id, position), entracte.work w "
                f"WHERE {_root(op, value)} AND w.tenant = r.tenant AND w.work_id = t.work_id) "
                "DELETE FROM entracte.work_outputs o USING taken t "
                "WHERE o.work = t.seq AND o.position <= t.position",
                value.bound,
            )
        )
    if op.closed_work:
        value = Values()
        ids = value([closed.work_id for closed in op.closed_work])
        found.append(_close(op, f"w.work_id = ANY({ids}::text[])", value))
    if op.end is not None and op.end.closes_work:
        found.append(_close(op, "w.run = r.seq", Values()))
    return found


def _root(op: RunWrite, value: Values) -> str:
    return f"r.tenant = {value(op.tenant)} AND r.run_id = {value(op.run_id)} AND r.fence = {value(op.fence)}"


def _open(op: RunWrite) -> Statement:
    value = Values()
    columns = list(
        zip(
            *(
                (
                    work.work_id,
                    work.call_id,
                    work.target,
                    work.timeout,
                    work.wait,
                    work.queue,
                    int(work.idempotent),
                    encode(work.task),
                )
                for work in op.work
            ),
            strict=True,
        )
    )
    arrays = ", ".join(
        f"{value(list(column))}::{kind}[]" for column, kind in zip(columns, _NEW_TYPES, strict=True)
    )
    names = ", ".join(_NEW)
    return (
        "INSERT INTO entracte.work (tenant, run, state, principal, session_id, token, deliveries, "
        f"create_time, due_time, outputs, {names}) SELECT r.tenant, r.seq, 'open', '', '', '', 0, {NOW}, "
        f"{NOW} + n.wait, 0, {', '.join(f'n.{name}' for name in _NEW)} FROM entracte.runs r, "
        f"unnest({arrays}) WITH ORDINALITY AS n ({names}, place) WHERE {_root(op, value)} "
        "ORDER BY n.place ON CONFLICT (tenant, work_id) DO NOTHING",
        value.bound,
    )


def _close(op: RunWrite, which: str, value: Values) -> Statement:
    return (
        f"WITH closed AS (UPDATE entracte.work w SET state = 'closed', due_time = {NOW} + {KEEP_CLOSED}, "
        f"task = '', answer = NULL FROM entracte.runs r WHERE {_root(op, value)} AND w.tenant = r.tenant "
        f"AND {which} AND w.state <> 'closed' RETURNING w.seq) "
        "DELETE FROM entracte.work_outputs o USING closed c WHERE o.work = c.seq",
        value.bound,
    )


# ---- giving out ----


def claim(seats: Sequence[Seat], limit: int) -> Program[list[GivenWork]]:
    """See `WorkStore.claim_work`. Locks sessions, so that a newer stream of one sees what it has; passes
    over work that somebody else gives out now."""
    seats = sorted(seats, key=lambda seat: (seat.session.principal, seat.session.session_id))
    tenant = seats[0].session.tenant
    keys = [
        (it.session.tenant, it.session.principal, it.session.session_id, it.session.stream) for it in seats
    ]
    present = yield [(_SESSION, key) for key in keys]
    seats = [seat for seat, found in zip(seats, present, strict=True) if found.rows]
    if not (targets := wanted(seats, limit)):
        return []
    opened = yield [(_OPEN_OF, (tenant, target, number)) for target, number in targets]
    shared = share([(seq, target) for found in opened for seq, target in found.rows], seats, limit)
    if not shared:
        return []
    values = (
        tenant,
        [row for row, _ in shared],
        [seat.session.principal for _, seat in shared],
        [seat.session.session_id for _, seat in shared],
        [new_token() for _ in shared],
    )
    (given,) = yield [(_GIVE, values)]
    return [_given(row) for row in given.rows]


def _given(row: Row) -> GivenWork:
    principal, session_id, work_id, token, target, timeout, deliveries, task = row
    return GivenWork(
        principal, session_id, work_id, token, target, max(1, timeout), deliveries, decode_task(task)
    )


def given_work(tenant: str, principal: str, work_ids: Sequence[str]) -> Program[list[GivenWork]]:
    """See `WorkStore.given_work`."""
    (found,) = yield [(_GIVEN_WORK, (tenant, list(work_ids), principal))]
    return [_given(row) for row in found.rows]


# ---- what bearers change ----


def answer(bearer: Bearer, came: Answer, digest: bytes) -> Program[Handled]:
    """See `WorkStore.answer_work`."""
    (done,) = yield [(_ANSWER, (*_borne(bearer), encode(came), digest))]
    if done.rows:
        owner, written = done.rows[0]
        return Handled(owner=owner, written=written)
    return (yield from _not_changed(bearer, digest))


def abandon(bearer: Bearer) -> Program[Handled]:
    """See `WorkStore.abandon_work`."""
    (done,) = yield [(_ABANDON, _borne(bearer))]
    if done.rows:
        return Handled(owner=done.rows[0][0])
    (stands,) = yield [(_STANDS, (bearer.tenant, bearer.work_id))]
    if stands.rows and stands.rows[0][:3] == (bearer.principal, bearer.token, "open"):
        return Handled(replayed=True)
    return unchanged(bearer, stands.rows[0] if stands.rows else None)


def extend(bearer: Bearer, timeout: int, outputs: Sequence[Output]) -> Program[Handled]:
    """See `WorkStore.extend_work`. In a transaction of its own."""
    (held,) = yield [(_LOCK, _borne(bearer))]
    if not held.rows:
        return (yield from _not_changed(bearer))
    seq, left, number, owner, count, size = held.rows[0]
    fresh = [(it.number, encode(it)) for it in outputs if it.number > number]
    size += sum(len(data) for _, data in fresh)
    if fresh and count and (count + len(fresh) > MAX_OUTPUTS or size > MAX_OUTPUT_BYTES):
        raise WorkRefused("full")
    left = timeout or left
    changes: list[Statement] = [(_EXTEND, (bearer.tenant, seq, left, max([number, *(n for n, _ in fresh)])))]
    if fresh:
        data = [item for _, item in fresh]
        changes.append((_WRITE_OUT, (seq, [len(item) for item in data], data)))
    yield changes
    return Handled(owner=owner, written=bool(count or fresh), timeout=max(1, left))


def _borne(bearer: Bearer) -> tuple[str, str, str, str]:
    return bearer.tenant, bearer.work_id, bearer.principal, bearer.token


def _not_changed(bearer: Bearer, digest: bytes | None = None) -> Program[Handled]:
    (stands,) = yield [(_STANDS, (bearer.tenant, bearer.work_id))]
    return unchanged(bearer, stands.rows[0] if stands.rows else None, digest)


# ---- reading ----


def see(keys: Sequence[tuple[str, str, int]]) -> Program[list[WorkSight]]:
    """See `WorkStore.see_work`."""
    statements: list[Statement] = []
    for tenant, work_id, after in keys:
        statements.append((_SEE, (tenant, work_id)))
        statements.append((_OUTPUTS, (tenant, work_id, after, _OUTPUT_ROWS)))
    results = yield statements
    seen = []
    for index, (tenant, work_id, _) in enumerate(keys):
        row, written = results[2 * index], results[2 * index + 1]
        if not row.rows:
            continue
        _, state, came = row.rows[0]
        outputs, size = [], 0
        for position, length, data in written.rows:
            outputs.append(replace(decode_output(data), position=position))
            size += length
            if size >= OUTPUT_PAGE:
                break
        decoded = None if came is None else decode_answer(came)
        seen.append(WorkSight(tenant, work_id, state, decoded, tuple(outputs)))
    return seen
