"""The statement of a write that does more than append: all of it or nothing, in one go.

The run's row is locked by the statement before, so that what this one sees of the run stays as it is.
"""

from msgspec.structs import replace

from entracte_server.domain.runs import PendingRow
from entracte_server.store.base import End, Park, RunWrite
from entracte_server.store.packing import pack
from entracte_server.store.postgres import follow_ups, messages, working_memory
from entracte_server.store.postgres.connection import Statement
from entracte_server.store.postgres.programs import Attempt
from entracte_server.store.postgres.rows import IS_OPEN
from entracte_server.store.postgres.values import Values
from entracte_server.store.records import decision_data, encode, encode_error, pending_data

MAX_PACKED = 65_536
"""Larger chunk rows are sent as they are, bytes: deflating them would hold up the event loop, and the
server compresses what is large by itself."""

_NEW_CALLS = (
    "calls AS (INSERT INTO entracte.tool_calls (run, call_id, state, format, data) "
    "SELECT t.seq, c.call_id, c.state, t.format, c.data "
    "FROM target t, unnest({}::text[], {}::text[], {}::bytea[]) AS c (call_id, state, data) "
    "ON CONFLICT (run, call_id) DO UPDATE "
    "SET state = excluded.state, format = excluded.format, data = excluded.data)"
)
_NEW_STEPS = (
    "steps AS (INSERT INTO entracte.steps (run, step, format, data) "
    "SELECT t.seq, s.step, t.format, s.data "
    "FROM target t, unnest({}::bigint[], {}::bytea[]) AS s (step, data) "
    "ON CONFLICT (run, step) DO UPDATE SET format = excluded.format, data = excluded.data)"
)
_OPENED = (
    "pending_call_id", "call_id", "state", "decision_id", "create_time", "expire_time", "claimed_by",
    "claimed_until", "agent_id", "thread_id", "resource_id",
)  # fmt: skip
_OPENED_TYPES = ("text",) * 4 + ("bigint",) * 2 + ("text", "bigint") + ("text",) * 3


def packed(data: bytes) -> tuple[int, bytes]:
    """A chunk row's size and data as they are stored."""
    return pack(data) if len(data) <= MAX_PACKED else (0, data)


def progress(op: RunWrite, at: Attempt, *, without_thread: bool = False) -> Statement:
    """The statement. It gives a row if the write was done: whether the run parked. `without_thread`: it is
    not done to a run that has a thread or reads one."""
    value = Values()
    parts = [_target(op, value, without_thread), _run(op, at, value)]
    if op.chunks is not None or op.park is not None:
        parts.append(_log(op, value))
    if op.calls:
        calls = list({call.call_id: call for call in op.calls}.values())
        ids, states = [call.call_id for call in calls], [str(call.state) for call in calls]
        parts.append(_NEW_CALLS.format(value(ids), value(states), value([encode(call) for call in calls])))
    if op.steps:
        steps = list({step.step: step for step in op.steps}.values())
        numbers = [step.step for step in steps]
        parts.append(_NEW_STEPS.format(value(numbers), value([encode(step) for step in steps])))
    if op.processing is not None or op.remembered is not None:
        parts.append(_spec(op, value))
    if op.messages:
        parts += messages.added(op.messages, value, thread=messages.had_by("target"))
    parts += working_memory.noted(op.notes, value)
    if op.opened:
        parts.append(_opened(op, value))
    if op.closed:
        parts += _closed(op, value)
    if op.end is not None:
        # The owner closes what it opened. Should it forget one, nobody may be asked about a dead run.
        closed = value([decision.pending_call_id for decision in op.closed])
        parts.append(
            "rest AS (UPDATE entracte.pending_calls p SET state = 'decided' FROM target t "
            f"WHERE p.run = t.seq AND {IS_OPEN} AND p.pending_call_id <> ALL({closed}::text[]))"
        )
        if op.end.follow_ups:
            parts.append(follow_ups.inserted(op.end.follow_ups, value))
    return f"WITH {', '.join(parts)} SELECT parks FROM target", value.bound


def _target(op: RunWrite, value: Values, without_thread: bool) -> str:
    """The run, if this owner may write it and the write was not done before."""
    parks = "false"
    if op.park is not None:
        # Calls that this write replaces count as it leaves them.
        left = any(call.state == "decided" for call in op.calls)
        replaced = value([call.call_id for call in op.calls])
        parks = (
            f"r.cancel_reason IS NULL AND NOT {value(left)}::boolean AND NOT EXISTS (SELECT 1 FROM "
            "entracte.tool_calls c WHERE c.run = r.seq AND c.state = 'decided' "
            f"AND c.call_id <> ALL({replaced}::text[]))"
        )
    terms = [
        f"r.tenant = {value(op.tenant)}",
        f"r.run_id = {value(op.run_id)}",
        f"r.fence = {value(op.fence)}",
        "r.owner <> ''",
    ]
    if without_thread:
        terms.append("(r.thread_id IS NULL) IS TRUE")
    first = op.chunks or (op.park.chunks if op.park is not None else None)
    if first is not None:
        terms.append(f"r.last_sequence = {value(first.first - 1)}")
    if op.opened:
        ids = value([pending.pending_call_id for pending in op.opened])
        terms.append(
            "NOT EXISTS (SELECT 1 FROM entracte.pending_calls p "
            f"WHERE p.tenant = r.tenant AND p.pending_call_id = ANY({ids}::text[]))"
        )
    return (
        f"target AS (SELECT r.tenant, r.seq, r.format, r.last_sequence, {parks} AS parks "
        f"FROM entracte.runs r WHERE {' AND '.join(terms)})"
    )


def _run(op: RunWrite, at: Attempt, value: Values) -> str:
    """The change of the run's row."""
    changes: dict[str, str] = {"update_time": value(at.now)}
    # A complete answer of the model or of a tool is progress: takeovers are counted anew from there.
    if op.steps or any(call.state == "done" for call in op.calls) or any(it.steps for it in op.children):
        changes["takeovers"] = "0"
    if op.chunks is not None:
        changes["last_sequence"] = value(op.chunks.last)
    if (patch := op.patch) is not None:
        for name, number in (("step", patch.step), ("attempt", patch.attempt)):
            if number is not None:
                changes[name] = value(number)
        if patch.usage is not None:
            changes["usage"] = value(encode(patch.usage))
    if op.park is not None:
        for name, new in _parked(op.park, value).items():
            changes[name] = f"CASE WHEN t.parks THEN {new} ELSE {changes.get(name, f'r.{name}')} END"
    elif op.end is not None:
        changes |= _ended(op.end, at, value)
    elif op.release is not None:
        changes |= {"owner": "''", "executed_ms": f"r.executed_ms + {value(op.release.executed_ms)}"}
    assignments = ", ".join(f"{name} = {new}" for name, new in changes.items())
    return (
        f"run AS (UPDATE entracte.runs r SET {assignments} "
        "FROM target t WHERE r.tenant = t.tenant AND r.seq = t.seq)"
    )


def _spec(op: RunWrite, value: Values) -> str:
    """What changes beside what the run was asked to do."""
    changes = [
        f"{name} = {value(encode(record))}"
        for name, record in (("processing", op.processing), ("remembered", op.remembered))
        if record is not None
    ]
    return f"spec AS (UPDATE entracte.run_specs s SET {', '.join(changes)} FROM target t WHERE s.run = t.seq)"


def _parked(park: Park, value: Values) -> dict[str, str]:
    return {
        "state": "'suspended'",
        "owner": "''",
        "last_sequence": f"{value(park.chunks.last)}::bigint",
        "finish_reason": f"{value(park.finish_reason)}::text",
        "stop_cause": f"{value(park.stop_cause)}::text",
        "executed_ms": f"r.executed_ms + {value(park.executed_ms)}",
        "takeovers": "0",
    }


def _ended(end: End, at: Attempt, value: Values) -> dict[str, str]:
    return {
        "state": value(end.state),
        "owner": "''",
        "finish_reason": value(end.finish_reason),
        "stop_cause": value(end.stop_cause),
        "error": value(encode_error(end.error)),
        "executed_ms": f"r.executed_ms + {value(end.executed_ms)}",
        "finish_time": value(at.now),
    }


def _log(op: RunWrite, value: Values) -> str:
    """The chunks, as one row; those of a parking only if the run parks."""
    chunks = op.chunks
    if op.park is None:
        assert chunks is not None
        row, parks_only = _row(value, chunks.first, chunks.last, *packed(chunks.data)), ""
    elif chunks is None:
        tail = op.park.chunks
        row, parks_only = _row(value, tail.first, tail.last, *packed(tail.data)), " WHERE t.parks"
    else:
        tail = op.park.chunks
        short = _row(value, chunks.first, chunks.last, *packed(chunks.data))
        long = _row(value, chunks.first, tail.last, *packed(chunks.data + tail.data))
        row, parks_only = (
            [
                f"CASE WHEN t.parks THEN {whole} ELSE {part} END"
                for whole, part in zip(long, short, strict=True)
            ],
            "",
        )
    return (
        "log AS (INSERT INTO entracte.chunks (run, first, last, size, data) "
        f"SELECT t.seq, {', '.join(row)} FROM target t{parks_only})"
    )


def _row(value: Values, first: int, last: int, size: int, data: bytes) -> list[str]:
    return [*(f"{value(number)}::bigint" for number in (first, last, size)), f"{value(data)}::bytea"]


def _opened(op: RunWrite, value: Values) -> str:
    """Pending calls, in their order. What the same write settles is settled from the start."""
    closed = {decision.pending_call_id: decision.decision_id for decision in reversed(op.closed)}
    rows = [_as_left(pending, closed, ended=op.end is not None) for pending in op.opened]
    arrays: list[str] = [
        f"{value([getattr(row, name) for row in rows])}::{kind}[]"
        for name, kind in zip(_OPENED, _OPENED_TYPES, strict=True)
    ]
    arrays.append(f"{value([pending_data(row) for row in rows])}::bytea[]")
    names = ", ".join(_OPENED)
    return (
        f"opened AS (INSERT INTO entracte.pending_calls (tenant, run, format, {names}, data) "
        f"SELECT {value(op.tenant)}, t.seq, t.format, {', '.join(f'o.{name}' for name in _OPENED)}, o.data "
        f"FROM target t, unnest({', '.join(arrays)}) WITH ORDINALITY AS o ({names}, data, place) "
        "ORDER BY o.place)"
    )


def _as_left(pending: PendingRow, closed: dict[str, str], *, ended: bool) -> PendingRow:
    decision_id = closed.get(pending.pending_call_id, "")
    if not decision_id and not ended:
        return pending
    return replace(pending, state="decided", decision_id=decision_id or pending.decision_id)


def _closed(op: RunWrite, value: Values) -> list[str]:
    """Decisions of the owner itself, on calls that nobody decided before."""
    decisions = list({decision.pending_call_id: decision for decision in reversed(op.closed)}.values())[::-1]
    tenant = value(op.tenant)
    ids = value([decision.decision_id for decision in decisions])
    pending = value([decision.pending_call_id for decision in decisions])
    calls = value([decision.call_id for decision in decisions])
    principals = value([decision.principal for decision in decisions])
    sequences = value([decision.sequence for decision in decisions])
    data = value([decision_data(decision) for decision in decisions])
    opened = value([row.pending_call_id for row in op.opened])
    return [
        "settled AS (UPDATE entracte.pending_calls p SET state = 'decided', decision_id = d.decision_id "
        f"FROM target t, unnest({ids}::text[], {pending}::text[]) AS d (decision_id, pending_call_id) "
        f"WHERE p.tenant = {tenant} AND p.pending_call_id = d.pending_call_id AND p.run = t.seq "
        f"AND {IS_OPEN} RETURNING p.pending_call_id)",
        "decided AS (INSERT INTO entracte.decisions (tenant, decision_id, run, call_id, pending_call_id, "
        "principal, sequence, format, data) "
        f"SELECT {tenant}, d.decision_id, t.seq, d.call_id, d.pending_call_id, d.principal, "
        "coalesce(nullif(d.sequence, 0), t.last_sequence), t.format, d.data "
        f"FROM target t, unnest({ids}::text[], {pending}::text[], {calls}::text[], {principals}::text[], "
        f"{sequences}::bigint[], {data}::bytea[]) WITH ORDINALITY "
        "AS d (decision_id, pending_call_id, call_id, principal, sequence, data, place) "
        "WHERE d.pending_call_id IN (SELECT pending_call_id FROM settled) "
        f"OR d.pending_call_id = ANY({opened}::text[]) ORDER BY d.place)",
    ]
