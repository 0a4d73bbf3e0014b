"""Work of workers: opened and closed by owners of runs, claimed, answered, extended, given back.

Operations of a transaction take a `Transaction`, as in `owner` and `commands`; the others are reads on a
connection of a reader. Sessions and tools are in `workers`.
"""

import sqlite3
from collections.abc import Sequence

from msgspec.structs import replace

from entracte_server.domain.work import Answer, GivenWork, NewWork, Output, WorkSight
from entracte_server.store.base import RunWrite
from entracte_server.store.records import encode
from entracte_server.store.sqlite.reads import one_moment
from entracte_server.store.sqlite.writer import Transaction
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
    new_work_values,
    share,
    unchanged,
    wanted,
)

_OPEN = (
    "INSERT INTO work (tenant, run, state, principal, session_id, token, deliveries, create_time, due_time, "
    "outputs, work_id, call_id, target, timeout, wait, queue, idempotent, task) "
    "VALUES (?, ?, 'open', '', '', '', 0, ?, ?, 0, ?, ?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (tenant, work_id) DO NOTHING"
)
_CLOSING = "UPDATE work SET state = 'closed', due_time = ?, task = x'', answer = NULL "
_CLOSE = _CLOSING + "WHERE tenant = ? AND work_id = ? AND state <> 'closed' RETURNING seq"
_CLOSE_REST = _CLOSING + "WHERE run = ? AND state <> 'closed' RETURNING seq"
_FORGET_OUTPUTS = "DELETE FROM work_outputs WHERE work = ?"
_TAKE_OUTPUTS = (
    "DELETE FROM work_outputs WHERE position <= ? "
    "AND work = (SELECT seq FROM work WHERE tenant = ? AND work_id = ?)"
)

_SESSION = (
    "SELECT 1 FROM worker_sessions WHERE tenant = ? AND principal = ? AND session_id = ? AND stream = ?"
)
_OPEN_OF = (
    "SELECT seq, target FROM work INDEXED BY work_open "
    "WHERE state = 'open' AND tenant = ? AND target = ? ORDER BY seq LIMIT ?"
)
_GIVEN = "principal, session_id, work_id, token, target, due_time, deliveries, task"
_GIVE = (
    "UPDATE work SET state = 'given', principal = ?, session_id = ?, token = ?, outputs = 0, "
    f"deliveries = deliveries + 1, due_time = ? + timeout WHERE seq = ? RETURNING {_GIVEN}"
)
_GIVEN_WORK = (
    f"SELECT {_GIVEN} FROM work WHERE tenant = ? AND work_id = ? AND principal = ? AND state = 'given'"
)

_BORNE = "WHERE tenant = ? AND work_id = ? AND principal = ? AND token = ? AND state = 'given' "
_OWNER = "(SELECT owner FROM runs WHERE runs.seq = work.run)"
_WRITTEN = "EXISTS (SELECT 1 FROM work_outputs o WHERE o.work = work.seq)"
_ANSWER = (
    f"UPDATE work SET state = 'answered', due_time = 0, answer = ?, digest = ? {_BORNE}"
    f"RETURNING {_OWNER}, {_WRITTEN}"
)
_ABANDON = (
    f"UPDATE work SET state = CASE WHEN deliveries < {MAX_DELIVERIES} THEN 'open' ELSE 'unavailable' END, "
    f"due_time = CASE WHEN deliveries < {MAX_DELIVERIES} THEN ? + wait ELSE 0 END {_BORNE}"
    f"RETURNING {_OWNER}, state"
)
_HELD = (
    f"SELECT seq, due_time, outputs, {_OWNER}, "
    "(SELECT count(*) FROM work_outputs o WHERE o.work = work.seq), "
    f"(SELECT coalesce(sum(o.size), 0) FROM work_outputs o WHERE o.work = work.seq) FROM work {_BORNE}"
)
_EXTEND = "UPDATE work SET due_time = ?, outputs = ? WHERE seq = ?"
_WRITE_OUT = "INSERT INTO work_outputs (work, size, data) VALUES (?, ?, ?)"
_STANDS = "SELECT principal, token, state, digest FROM work WHERE tenant = ? AND work_id = ?"

_SEE = "SELECT seq, state, answer FROM work WHERE tenant = ? AND work_id = ?"
_OUTPUTS = "SELECT position, size, data FROM work_outputs WHERE work = ? AND position > ? ORDER BY position"


# ---- what the owners of runs write ----


def write(op: RunWrite, run: int, transaction: Transaction) -> None:
    """What `op`, whose fence was checked, has of work. What is open already stays as it is."""
    for work in op.work:
        _open(work, op.tenant, run, transaction)
    for work_id, position in op.taken_output:
        transaction.execute(_TAKE_OUTPUTS, (position, op.tenant, work_id))
    gone = transaction.now + KEEP_CLOSED
    for closed in op.closed_work:
        row = transaction.execute(_CLOSE, (gone, op.tenant, closed.work_id)).fetchone()
        if row is not None:
            transaction.execute(_FORGET_OUTPUTS, row)
    if op.end is not None and op.end.closes_work:
        for row in transaction.execute(_CLOSE_REST, (gone, run)).fetchall():
            transaction.execute(_FORGET_OUTPUTS, row)


def _open(work: NewWork, tenant: str, run: int, transaction: Transaction) -> None:
    now = transaction.now
    transaction.execute(_OPEN, (tenant, run, now, now + work.wait, *new_work_values(work)))


# ---- giving out ----


def claim(seats: Sequence[Seat], limit: int, transaction: Transaction) -> list[GivenWork]:
    """See `WorkStore.claim_work`."""
    present = []
    for seat in seats:
        it = seat.session
        key = (it.tenant, it.principal, it.session_id, it.stream)
        if transaction.execute(_SESSION, key).fetchone() is not None:
            present.append(seat)
    if not present:
        return []
    tenant = present[0].session.tenant
    found: list[tuple[int, str]] = []
    for target, number in wanted(present, limit):
        found += transaction.execute(_OPEN_OF, (tenant, target, number)).fetchall()
    given = []
    for seq, seat in share(found, present, limit):
        values = (seat.session.principal, seat.session.session_id, new_token(), transaction.now, seq)
        given.append(_given(transaction.execute(_GIVE, values).fetchone(), transaction.now))
    return given


def _given(row: tuple[str, str, str, str, str, int, int, bytes], now: int) -> GivenWork:
    *names, due, deliveries, task = row
    principal, session_id, work_id, token, target = names
    return GivenWork(
        principal, session_id, work_id, token, target, max(1, due - now), deliveries, decode_task(task)
    )


def given_work(
    connection: sqlite3.Connection, tenant: str, principal: str, work_ids: Sequence[str], now: int
) -> list[GivenWork]:
    """See `WorkStore.given_work`."""
    found = []
    for work_id in work_ids:
        row = connection.execute(_GIVEN_WORK, (tenant, work_id, principal)).fetchone()
        if row is not None:
            found.append(_given(row, now))
    return found


# ---- what bearers change ----


def answer(bearer: Bearer, came: Answer, digest: bytes, transaction: Transaction) -> Handled:
    """See `WorkStore.answer_work`."""
    row = transaction.execute(_ANSWER, (encode(came), digest, *_borne(bearer))).fetchone()
    if row is not None:
        return Handled(owner=row[0] or "", written=bool(row[1]))
    return _not_changed(bearer, transaction, digest)


def abandon(bearer: Bearer, transaction: Transaction) -> Handled:
    """See `WorkStore.abandon_work`."""
    row = transaction.execute(_ABANDON, (transaction.now, *_borne(bearer))).fetchone()
    if row is not None:
        return Handled(owner=row[0] or "")
    stands = transaction.execute(_STANDS, (bearer.tenant, bearer.work_id)).fetchone()
    if stands is not None and stands[:3] == (bearer.principal, bearer.token, "open"):
        return Handled(replayed=True)
    return _not_changed(bearer, transaction)


def extend(bearer: Bearer, timeout: int, outputs: Sequence[Output], transaction: Transaction) -> Handled:
    """See `WorkStore.extend_work`."""
    row = transaction.execute(_HELD, _borne(bearer)).fetchone()
    if row is None:
        return _not_changed(bearer, transaction)
    seq, due, number, owner, count, size = row
    fresh = [(it.number, encode(it)) for it in outputs if it.number > number]
    size += sum(len(data) for _, data in fresh)
    if fresh and count and (count + len(fresh) > MAX_OUTPUTS or size > MAX_OUTPUT_BYTES):
        raise WorkRefused("full")
    due = transaction.now + timeout if timeout else due
    transaction.execute(_EXTEND, (due, max([number, *(n for n, _ in fresh)]), seq))
    for _, data in fresh:
        transaction.execute(_WRITE_OUT, (seq, len(data), data))
    return Handled(owner=owner or "", written=bool(count or fresh), timeout=max(1, due - transaction.now))


def _borne(bearer: Bearer) -> tuple[str, str, str, str]:
    return bearer.tenant, bearer.work_id, bearer.principal, bearer.token


def _not_changed(bearer: Bearer, transaction: Transaction, digest: bytes | None = None) -> Handled:
    return unchanged(bearer, transaction.execute(_STANDS, (bearer.tenant, bearer.work_id)).fetchone(), digest)


# ---- reading ----


def see(connection: sqlite3.Connection, keys: Sequence[tuple[str, str, int]]) -> list[WorkSight]:
    """See `WorkStore.see_work`."""
    seen = []
    with one_moment(connection) as cursor:
        for tenant, work_id, after in keys:
            row = cursor.execute(_SEE, (tenant, work_id)).fetchone()
            if row is None:
                continue
            seq, state, came = row
            outputs, size = [], 0
            for position, length, data in cursor.execute(_OUTPUTS, (seq, after)):
                outputs.append(replace(decode_output(data), position=position))
                size += length
                if size >= OUTPUT_PAGE:
                    break
            decoded = None if came is None else decode_answer(came)
            seen.append(WorkSight(tenant, work_id, state, decoded, tuple(outputs)))
    return seen
