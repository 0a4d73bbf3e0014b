"""What the owner of a root run writes of its sub-agents' runs. They have rows, specs and steps of their own;
their calls, and what waits, are the root's. So is the right to their threads: they go with the thread that
the root has.

The statements follow that of the root's write, in its transaction: the root's row is locked, and they
change nothing unless the writer's fence is the root's. Repeated, they do what they did.
"""

from entracte_server.domain.runs import TERMINAL
from entracte_server.domain.threads import ThreadRow
from entracte_server.store.base import ChildWrite, RunPatch, RunWrite, Standing
from entracte_server.store.postgres import messages
from entracte_server.store.postgres.connection import Statement
from entracte_server.store.postgres.programs import Attempt
from entracte_server.store.postgres.values import Values
from entracte_server.store.records import NEW_RUN_COLUMNS, encode, encode_error, run_values

_THREAD = (
    "SELECT h.seq AS thread FROM target t JOIN entracte.thread_turns u ON u.run = t.root "
    "JOIN entracte.threads h ON h.parent = u.thread AND h.thread_id = t.thread_id AND h.deleted = 0 "
    f"WHERE {messages.IS_FIRST}"
)


def statements(op: RunWrite, at: Attempt) -> list[Statement]:
    """What `op` has of sub-agents' runs."""
    found: list[Statement] = []
    for child in op.children:
        if child.run is not None and child.spec is not None:
            found.append(_create(op, child))
        if child.thread is not None:
            found.append(_make_thread(op, child.thread))
        if _changes(child):
            found.append(_change(op, child, at))
    return found


def _changes(child: ChildWrite) -> bool:
    return bool(
        child.patch or child.standing or child.steps or child.processing or child.messages or child.remembered
    )


def _root(op: RunWrite, value: Values) -> str:
    """The condition on the root's row."""
    return f"r.tenant = {value(op.tenant)} AND r.run_id = {value(op.run_id)} AND r.fence = {value(op.fence)}"


def _create(op: RunWrite, child: ChildWrite) -> Statement:
    assert child.run is not None
    value = Values()
    columns = value.row(*run_values(child.run), 0)
    return (
        f"WITH run AS (INSERT INTO entracte.runs ({NEW_RUN_COLUMNS}, taken_by) SELECT {columns} "
        f"FROM entracte.runs r WHERE {_root(op, value)} "
        "ON CONFLICT (tenant, run_id) DO NOTHING RETURNING seq) "
        "INSERT INTO entracte.run_specs (run, format, data) "
        f"SELECT seq, {value(child.run.format)}, {value(encode(child.spec))} FROM run",
        value.bound,
    )


def _make_thread(op: RunWrite, new: ThreadRow) -> Statement:
    value = Values()
    columns = value.row(
        op.tenant,
        new.thread_id,
        new.resource_id,
        new.title,
        new.metadata,
        new.create_time,
        new.update_time,
    )
    return (
        "INSERT INTO entracte.threads (tenant, thread_id, resource_id, title, metadata, create_time, "
        f"update_time, parent) SELECT {columns}, u.thread FROM entracte.runs r "
        f"JOIN entracte.thread_turns u ON u.run = r.seq WHERE {_root(op, value)} AND {messages.IS_FIRST} "
        "ON CONFLICT (tenant, thread_id, deleted) DO NOTHING",
        value.bound,
    )


def _change(op: RunWrite, child: ChildWrite, at: Attempt) -> Statement:
    value = Values()
    parts = [
        "target AS (SELECT c.tenant, c.seq, c.format, c.thread_id, r.seq AS root "
        "FROM entracte.runs r JOIN entracte.runs c "
        f"ON c.tenant = r.tenant AND c.run_id = {value(child.run_id)} AND c.root_run_id = r.run_id "
        f"WHERE {_root(op, value)})"
    ]
    changes = {"update_time": value(at.now), **_patched(child.patch, value)}
    if child.standing is not None:
        changes |= _standing(child.standing, at, value)
    assignments = ", ".join(f"{name} = {new}" for name, new in changes.items())
    parts.append(
        f"run AS (UPDATE entracte.runs c SET {assignments} "
        "FROM target t WHERE c.tenant = t.tenant AND c.seq = t.seq)"
    )
    if child.steps:
        steps = list({step.step: step for step in child.steps}.values())
        numbers, data = value([step.step for step in steps]), value([encode(step) for step in steps])
        parts.append(
            "steps AS (INSERT INTO entracte.steps (run, step, format, data) "
            f"SELECT t.seq, s.step, t.format, s.data FROM target t, unnest({numbers}::bigint[], "
            f"{data}::bytea[]) AS s (step, data) "
            "ON CONFLICT (run, step) DO UPDATE SET format = excluded.format, data = excluded.data)"
        )
    kept = [
        f"{name} = {value(encode(record))}"
        for name, record in (("processing", child.processing), ("remembered", child.remembered))
        if record is not None
    ]
    if kept:
        parts.append(
            f"spec AS (UPDATE entracte.run_specs s SET {', '.join(kept)} FROM target t WHERE s.run = t.seq)"
        )
    if child.messages:
        parts += messages.added(child.messages, value, thread=_THREAD)
    return f"WITH {', '.join(parts)} SELECT 1 FROM target", value.bound


def _patched(patch: RunPatch | None, value: Values) -> dict[str, str]:
    if patch is None:
        return {}
    usage = None if patch.usage is None else encode(patch.usage)
    new = {"step": patch.step, "attempt": patch.attempt, "usage": usage}
    return {name: value(it) for name, it in new.items() if it is not None}


def _standing(standing: Standing, at: Attempt, value: Values) -> dict[str, str]:
    return {
        "state": value(standing.state),
        "finish_reason": value(standing.finish_reason),
        "stop_cause": value(standing.stop_cause),
        "error": value(encode_error(standing.error)),
        "finish_time": value(at.now if standing.state in TERMINAL else 0),
    }
