"""What others than the owner write: decisions, cancellations, claims, deletions.

Each function is one operation of a transaction. It raises a `StoreError` before it has written
anything.
"""

from typing import NoReturn

from entracte_server.domain.runs import TERMINAL, PendingRow, RunRow
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
from entracte_server.store.records import RUN_COLUMNS, run_row
from entracte_server.store.sqlite import messages, turns
from entracte_server.store.sqlite.codec import find_decision, find_pending, find_run
from entracte_server.store.sqlite.owner import insert_decision, upsert_call
from entracte_server.store.sqlite.reads import snapshot
from entracte_server.store.sqlite.requests import made_by, record
from entracte_server.store.sqlite.upkeep import delete_tree
from entracte_server.store.sqlite.writer import Transaction

_SETTLE = (
    "UPDATE pending_calls SET state = 'decided', decision_id = ? "
    "WHERE tenant = ? AND pending_call_id = ? AND call_id = ? AND state = 'open' "
    "AND run = (SELECT seq FROM runs WHERE tenant = ? AND run_id = ? AND finish_time = 0) "
)
_DECIDE = _SETTLE + (
    "AND (expire_time = 0 OR expire_time >= ?) AND (claimed_by = '' OR claimed_by = ? OR claimed_until <= ?)"
)
_EXPIRE = _SETTLE + "AND expire_time <> 0 AND expire_time < ?"
_TAKE = (
    "UPDATE runs SET state = 'running', owner = ?, fence = fence + 1, update_time = ?, "
    "finish_reason = NULL, stop_cause = NULL "
    "WHERE tenant = ? AND run_id = ? AND owner = '' AND finish_time = 0 "
    f"RETURNING {RUN_COLUMNS}"
)
_ASK_TO_CANCEL = (
    "UPDATE runs SET cancel_reason = coalesce(cancel_reason, ?), update_time = ? "
    "WHERE tenant = ? AND run_id = ? AND finish_time = 0"
)
_CLAIM = (
    "UPDATE pending_calls SET claimed_by = ?, claimed_until = ? "
    "WHERE tenant = ? AND pending_call_id = ? AND state = 'open' "
    "AND (claimed_by = '' OR claimed_by = ? OR claimed_until <= ?) "
    "AND (? = 0 OR expire_time = 0 OR expire_time >= ?)"
)


def decide(op: Decide, transaction: Transaction) -> Decided:
    """See `Store.decide`. A decision that is repeated because nobody knows whether its commit
    succeeded is answered from what is stored, without taking the run."""
    decision = op.decision
    if (made := made_by(transaction.cursor, op.request)) is not None:
        return _decided(transaction, decision.tenant, made)
    which = (
        decision.decision_id,
        decision.tenant,
        decision.pending_call_id,
        decision.call_id,
        decision.tenant,
        decision.run_id,
    )
    now = decision.decide_time
    if op.expiry:
        settled = transaction.execute(_EXPIRE, (*which, now))
    else:
        settled = transaction.execute(_DECIDE, (*which, now, decision.principal, now))
    if not settled.rowcount:
        return _not_decided(transaction, op)
    taken = transaction.execute(
        _TAKE, (op.owner, transaction.now, decision.tenant, decision.run_id)
    ).fetchone()
    if taken is not None:
        seq, run = taken[0], run_row(taken)
    else:
        seq, run = _run(transaction, decision.tenant, decision.run_id)
    call = op.started if taken is not None and op.started is not None else op.call
    upsert_call(transaction, call, seq, run.format)
    stored = insert_decision(transaction, decision.tenant, decision, seq, run.format, run.last_sequence)
    if op.messages:
        messages.add(op.messages, seq, transaction)
    record(transaction, op.request, decision.run_id, decision.decision_id)
    return Decided(run, stored, None if taken is None else snapshot(transaction.cursor, seq, run))


def _decided(transaction: Transaction, tenant: str, made: Made) -> Decided:
    _, run = _run(transaction, tenant, made.run_id)
    decision = find_decision(transaction.cursor, tenant, made.decision_id)
    if decision is None:
        raise NotFound(f"decision {made.decision_id} was deleted")
    return Decided(run, decision, made=made)


def _not_decided(transaction: Transaction, op: Decide) -> Decided:
    """Say why a decision was refused."""
    wanted = op.decision
    pending = find_pending(transaction.cursor, wanted.tenant, wanted.pending_call_id)
    if pending is None or pending.run_id != wanted.run_id or pending.call_id != wanted.call_id:
        raise NotFound(f"no pending call {wanted.pending_call_id} of call {wanted.call_id}")
    _, run = _run(transaction, wanted.tenant, wanted.run_id)
    if pending.state != "open":
        decision = find_decision(transaction.cursor, wanted.tenant, pending.decision_id)
        if decision is None:
            raise Refused("finished", pending=pending, run=run)
        if decision.decision_id == wanted.decision_id:
            return Decided(run, decision)
        raise Refused("decided", pending=pending, decision=decision, run=run)
    if run.state in TERMINAL:
        raise Refused("finished", pending=pending, run=run)
    if op.expiry:
        raise Refused("not-expired", pending=pending, run=run)
    if pending.expire_time and pending.expire_time < wanted.decide_time:
        raise Refused("expired", pending=pending, run=run)
    raise Refused("claimed", pending=pending, run=run)


def cancel(op: Cancel, transaction: Transaction) -> Cancelled:
    """See `Store.cancel`. The first reason stands."""
    if (made := made_by(transaction.cursor, op.request)) is not None:
        return Cancelled(_run(transaction, op.tenant, made.run_id)[1], made=made)
    asked = transaction.execute(_ASK_TO_CANCEL, (op.reason, op.now, op.tenant, op.run_id)).rowcount
    taken = None
    if asked:
        taken = transaction.execute(_TAKE, (op.owner, op.now, op.tenant, op.run_id)).fetchone()
    run = _run(transaction, op.tenant, op.run_id)[1] if taken is None else run_row(taken)
    record(transaction, op.request, op.run_id)
    return Cancelled(run, took=taken is not None)


def claim(op: Claim, transaction: Transaction) -> tuple[PendingRow, Made | None]:
    """See `Store.claim`."""
    made = made_by(transaction.cursor, op.request)
    if made is None:
        holder = op.principal if op.until else ""
        held = transaction.execute(
            _CLAIM,
            (
                holder,
                op.until,
                op.tenant,
                op.pending_call_id,
                op.principal,
                op.now,
                op.until,
                op.now,
            ),
        ).rowcount
    pending = find_pending(transaction.cursor, op.tenant, op.pending_call_id)
    if pending is None:
        raise NotFound(f"no pending call {op.pending_call_id}")
    if made is None:
        if not held:
            if pending.state != "open":
                decision = find_decision(transaction.cursor, op.tenant, pending.decision_id)
                raise Refused("decided", pending=pending, decision=decision)
            late = op.until and 0 < pending.expire_time < op.now
            raise Refused("expired" if late else "claimed", pending=pending)
        record(transaction, op.request, pending.run_id)
    return pending, made


def delete_run(
    tenant: str, run_id: str, force: bool, request: RequestKey | None, transaction: Transaction
) -> Made | None:
    """See `Store.delete_run`. The runs of its sub-agents go with it."""
    if (made := made_by(transaction.cursor, request)) is not None:
        return made
    _, run = _run(transaction, tenant, run_id)
    if not (run.state in TERMINAL or (force and run.state == "suspended")):
        raise Refused("not-finished", run=run)
    if force:  # what has ended has no thread
        turns.give_up_tree(tenant, run_id, transaction)
    delete_tree(tenant, run_id, transaction)
    record(transaction, request, run_id)
    return None


def _run(transaction: Transaction, tenant: str, run_id: str) -> tuple[int, RunRow]:
    found = find_run(transaction.cursor, tenant, run_id)
    if found is None:
        _missing(run_id)
    return found


def _missing(run_id: str) -> NoReturn:
    raise NotFound(f"no run {run_id}")
