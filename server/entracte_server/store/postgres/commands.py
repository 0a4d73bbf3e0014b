"""What others than the owner write: decisions, cancellations, takeovers, claims, deletions."""

from collections.abc import Sequence

from msgspec.structs import replace

from entracte_server.domain.runs import TERMINAL, DecisionRow, PendingRow, RunRow
from entracte_server.store.base import (
    Cancel,
    Cancelled,
    Claim,
    Decide,
    Decided,
    Made,
    NotFound,
    Refused,
    RequestKey,
)
from entracte_server.store.postgres import messages, requests, turns
from entracte_server.store.postgres.connection import Result, Statement
from entracte_server.store.postgres.programs import Attempt, Program
from entracte_server.store.postgres.reads import read_snapshot, snapshot_of
from entracte_server.store.postgres.rows import (
    FIND_RUN,
    IS_LIVE,
    IS_OPEN,
    LOCK_RUN,
    a_decision,
    a_pending,
    find_decision,
    find_decision_of_pending,
    find_pending,
    taken_by,
    to_run,
)
from entracte_server.store.postgres.upkeep import delete_tree
from entracte_server.store.postgres.values import Values
from entracte_server.store.records import RUN_COLUMNS, decision_data, encode, run_row

_TAKE_OVER = (
    "UPDATE entracte.runs SET owner = $1, fence = fence + 1, taken_by = $2, update_time = $3, "
    "takeovers = takeovers + CASE WHEN $4::boolean AND owner <> '' THEN 1 ELSE 0 END "
    "WHERE tenant = $5 AND run_id = $6 AND fence = $7 AND state = 'running' "
    f"RETURNING {RUN_COLUMNS}"
)
_CLAIM = (
    "UPDATE entracte.pending_calls p SET claimed_by = $3, claimed_until = $4::bigint "
    f"WHERE tenant = $1 AND pending_call_id = $2 AND {IS_OPEN} "
    "AND (claimed_by = '' OR claimed_by = $5 OR claimed_until <= $6) "
    "AND ($4::bigint = 0 OR expire_time = 0 OR expire_time >= $6)"
)


def decide(op: Decide, at: Attempt) -> Program[Decided]:
    """See `Store.decide`. A decision that is repeated because nobody knows whether its commit
    succeeded is answered from what is stored."""
    wanted = op.decision
    key = (wanted.tenant, wanted.run_id)
    *found, _, settled, now, spec, steps, calls, pending = yield [
        *requests.find(op.request),
        (LOCK_RUN, key),
        _settle(op, at),
        (FIND_RUN, key),
        *read_snapshot(*key, taken_by=at.token),
    ]
    made = requests.made_by(op.request, found)
    if settled.rows:
        stored = replace(wanted, sequence=settled.rows[0][0])
        return _taken(now, at, stored, (spec, steps, calls, pending))
    if made is not None and not (at.again and made.decision_id == wanted.decision_id):
        return (yield from _decided_before(wanted.tenant, made))
    return (yield from _not_decided(op, at))


def _settle(op: Decide, at: Attempt) -> Statement:
    """The statement. It gives a row if the call was settled: the run's last sequence."""
    decision = op.decision
    value = Values()
    tenant, run_id = value(decision.tenant), value(decision.run_id)
    decision_id, pending_id = value(decision.decision_id), value(decision.pending_call_id)
    call_id, principal = value(decision.call_id), value(decision.principal)
    decided_at = value(decision.decide_time)
    terms = [
        f"r.tenant = {tenant} AND r.run_id = {run_id} AND {IS_LIVE} AND p.run = r.seq",
        f"p.tenant = {tenant} AND p.pending_call_id = {pending_id} AND p.call_id = {call_id}",
        IS_OPEN,
    ]
    if op.expiry:
        terms.append(f"p.expire_time <> 0 AND p.expire_time < {decided_at}")
    else:
        terms.append(f"(p.expire_time = 0 OR p.expire_time >= {decided_at})")
        terms.append(f"(p.claimed_by = '' OR p.claimed_by = {principal} OR p.claimed_until <= {decided_at})")
    if op.request is not None:
        terms.append(requests.unused(op.request, value))
    call, started = op.call, op.started or op.call
    states, records = [
        f"CASE WHEN s.free THEN {value(new)}::{kind} ELSE {value(old)}::{kind} END"
        for kind, new, old in (
            ("text", started.state, call.state),
            ("bytea", encode(started), encode(call)),
        )
    ]
    parts = [
        f"settled AS (UPDATE entracte.pending_calls p SET state = 'decided', decision_id = {decision_id} "
        f"FROM entracte.runs r WHERE {' AND '.join(terms)} "
        "RETURNING r.seq, r.format, r.last_sequence, r.owner = '' AS free)",
        f"taken AS (UPDATE entracte.runs r SET {_take(op.owner, at, at.now, value)} "
        f"FROM settled s WHERE r.tenant = {tenant} AND r.seq = s.seq AND s.free)",
        "called AS (INSERT INTO entracte.tool_calls (run, call_id, state, format, data) "
        f"SELECT s.seq, {value(call.call_id)}, {states}, s.format, {records} FROM settled s "
        "ON CONFLICT (run, call_id) DO UPDATE "
        "SET state = excluded.state, format = excluded.format, data = excluded.data)",
        "decided AS (INSERT INTO entracte.decisions (tenant, decision_id, run, call_id, pending_call_id, "
        f"principal, sequence, format, data) SELECT {tenant}, {decision_id}, s.seq, {call_id}, {pending_id}, "
        f"{principal}, s.last_sequence, s.format, {value(decision_data(decision))} FROM settled s)",
    ]
    if op.messages:
        parts += messages.added(op.messages, value, thread=messages.had_by("settled"))
    if op.request is not None:
        recorded = requests.record(
            op.request, decision.run_id, at, value, decision_id=decision.decision_id, source="settled"
        )
        parts.append(f"request AS ({recorded})")
    return f"WITH {', '.join(parts)} SELECT last_sequence FROM settled", value.bound


def _take(owner: str, at: Attempt, now: int, value: Values) -> str:
    """What changes of a run that nobody owned."""
    return (
        f"state = 'running', owner = {value(owner)}, fence = r.fence + 1, taken_by = {value(at.token)}, "
        f"update_time = {value(now)}, finish_reason = NULL, stop_cause = NULL"
    )


def _taken(now: Result, at: Attempt, decision: DecisionRow, rest: Sequence[Result]) -> Decided:
    """A decision that is stored, and the run if this operation took it."""
    run = to_run(now.rows[0])
    took = taken_by(now.rows[0]) == at.token
    return Decided(run, decision, snapshot_of(run, *rest) if took else None)


def _decided_before(tenant: str, made: Made) -> Program[Decided]:
    now, found = yield [(FIND_RUN, (tenant, made.run_id)), find_decision(tenant, made.decision_id)]
    run, decision = _run(now, made.run_id), a_decision(found)
    if decision is None:
        raise NotFound(f"decision {made.decision_id} was deleted")
    return Decided(run, decision, made=made)


def _not_decided(op: Decide, at: Attempt) -> Program[Decided]:
    """Say why a decision was refused."""
    wanted = op.decision
    key = (wanted.tenant, wanted.run_id)
    found, found_decision, now, *rest = yield [
        find_pending(wanted.tenant, wanted.pending_call_id),
        find_decision_of_pending(wanted.tenant, wanted.pending_call_id),
        (FIND_RUN, key),
        *read_snapshot(*key, taken_by=at.token),
    ]
    pending = a_pending(found)
    if pending is None or pending.run_id != wanted.run_id or pending.call_id != wanted.call_id:
        raise NotFound(f"no pending call {wanted.pending_call_id} of call {wanted.call_id}")
    run = _run(now, wanted.run_id)
    if pending.state != "open":
        decision = a_decision(found_decision)
        if decision is None:
            raise Refused("finished", pending=pending, run=run)
        if decision.decision_id == wanted.decision_id:
            return _taken(now, at, decision, rest)
        raise Refused("decided", pending=pending, decision=decision, run=run)
    if run.state in TERMINAL:
        raise Refused("finished", pending=pending, run=run)
    if op.expiry:
        raise Refused("not-expired", pending=pending, run=run)
    if pending.expire_time and pending.expire_time < wanted.decide_time:
        raise Refused("expired", pending=pending, run=run)
    raise Refused("claimed", pending=pending, run=run)


def cancel(op: Cancel, at: Attempt) -> Program[Cancelled]:
    """See `Store.cancel`. The first reason stands."""
    key = (op.tenant, op.run_id)
    *found, _, _, now = yield [
        *requests.find(op.request),
        (LOCK_RUN, key),
        _ask_to_cancel(op, at),
        (FIND_RUN, key),
    ]
    made = requests.made_by(op.request, found)
    run = _run(now, op.run_id)
    took = taken_by(now.rows[0]) == at.token
    return Cancelled(run, took=took, made=None if took else made)


def _ask_to_cancel(op: Cancel, at: Attempt) -> Statement:
    value = Values()
    tenant, run_id, now = value(op.tenant), value(op.run_id), value(op.now)
    unused = "" if op.request is None else f" AND {requests.unused(op.request, value)}"
    taken = {
        "state": "'running'",
        "owner": f"{value(op.owner)}::text",
        "fence": "r.fence + 1",
        "taken_by": f"{value(at.token)}::bigint",
        "finish_reason": "NULL",
        "stop_cause": "NULL",
    }
    changes = ", ".join(
        f"{name} = CASE WHEN r.owner = '' THEN {new} ELSE r.{name} END" for name, new in taken.items()
    )
    parts = [
        "run AS (SELECT r.seq FROM entracte.runs r "
        f"WHERE r.tenant = {tenant} AND r.run_id = {run_id}{unused})",
        "asked AS (UPDATE entracte.runs r SET "
        f"cancel_reason = coalesce(r.cancel_reason, {value(op.reason)}), update_time = {now}, {changes} "
        f"FROM run WHERE r.tenant = {tenant} AND r.seq = run.seq AND {IS_LIVE})",
    ]
    if op.request is not None:
        parts.append(f"request AS ({requests.record(op.request, op.run_id, at, value, source='run')})")
    return f"WITH {', '.join(parts)} SELECT 1 FROM run", value.bound


def take_over(
    tenant: str, run_id: str, fence: int, owner: str, counted: bool, at: Attempt
) -> Program[RunRow | None]:
    """See `Store.take_over`."""
    (taken,) = yield [(_TAKE_OVER, (owner, at.token, at.now, counted, tenant, run_id, fence))]
    if taken.rows:
        return run_row(taken.rows[0])
    (now,) = yield [(FIND_RUN, (tenant, run_id))]
    mine = bool(now.rows) and taken_by(now.rows[0]) == at.token
    return to_run(now.rows[0]) if mine else None


def claim(op: Claim, at: Attempt) -> Program[tuple[PendingRow, Made | None]]:
    """See `Store.claim`. In a transaction of its own: it locks a pending call before the run is known."""
    which = (op.tenant, op.pending_call_id)
    made = requests.made_by(op.request, (yield requests.find(op.request)))
    if made is not None:
        (found,) = yield [find_pending(*which)]
        return _pending(found, op), made
    values = (*which, op.principal if op.until else "", op.until, op.principal, op.now)
    held, found, decision = yield [(_CLAIM, values), find_pending(*which), find_decision_of_pending(*which)]
    pending = _pending(found, op)
    if not held.count:
        if pending.state != "open":
            raise Refused("decided", pending=pending, decision=a_decision(decision))
        late = op.until and 0 < pending.expire_time < op.now
        raise Refused("expired" if late else "claimed", pending=pending)
    if op.request is not None:
        value = Values()
        yield [(requests.record(op.request, pending.run_id, at, value), value.bound)]
    return pending, None


def _pending(found: Result, op: Claim) -> PendingRow:
    pending = a_pending(found)
    if pending is None:
        raise NotFound(f"no pending call {op.pending_call_id}")
    return pending


def delete_run(
    tenant: str, run_id: str, force: bool, request: RequestKey | None, at: Attempt
) -> Program[Made | None]:
    """See `Store.delete_run`. The runs of its sub-agents go with it. In a transaction of its own."""
    key = (tenant, run_id)
    # What has ended has no thread.
    locks = (yield from turns.lock_tree(*key)) if force else [(LOCK_RUN, key)]
    found = yield [*requests.find(request), *locks, (FIND_RUN, key)]
    now = found[-1]
    made = requests.made_by(request, found)
    if made is not None:
        return None if at.again else made
    if not now.rows and at.again:  # the attempt before was committed
        return None
    run = _run(now, run_id)
    if not (run.state in TERMINAL or (force and run.state == "suspended")):
        raise Refused("not-finished", run=run)
    statements = delete_tree(tenant, run_id)
    if force:
        statements.insert(0, turns.give_up_tree(*key, at))
    if request is not None:
        value = Values()
        statements.append((requests.record(request, run_id, at, value), value.bound))
    yield statements
    return None


def _run(now: Result, run_id: str) -> RunRow:
    if not now.rows:
        raise NotFound(f"no run {run_id}")
    return to_run(now.rows[0])
