"""What the owner of a root run writes of its sub-agents' runs. They have rows, specs and steps of their own;
their calls, and what waits, are the root's. So is the right to their threads: they go with the thread that
the root has.
"""

from entracte_server.domain.runs import TERMINAL
from entracte_server.store.base import ChildWrite, RunPatch, RunWrite, Standing
from entracte_server.store.records import encode, encode_error, run_values
from entracte_server.store.sqlite import messages
from entracte_server.store.sqlite.codec import INSERT_RUN
from entracte_server.store.sqlite.writer import Transaction

_FIND = "SELECT seq, format FROM runs WHERE tenant = ? AND run_id = ? AND root_run_id = ?"
_INSERT_SPEC = "INSERT INTO run_specs (run, format, data) VALUES (?, ?, ?)"
_PATCH = (
    "UPDATE runs SET update_time = ?, step = coalesce(?, step), attempt = coalesce(?, attempt), "
    "usage = coalesce(?, usage) WHERE seq = ?"
)
_STAND = (
    "UPDATE runs SET update_time = ?, state = ?, finish_reason = ?, stop_cause = ?, error = ?, "
    "finish_time = ? WHERE seq = ?"
)
_UPSERT_STEP = (
    "INSERT INTO steps (run, step, format, data) VALUES (?, ?, ?, ?) "
    "ON CONFLICT (run, step) DO UPDATE SET format = excluded.format, data = excluded.data"
)
_PROCESSING = "UPDATE run_specs SET processing = ? WHERE run = ?"
_REMEMBERED = "UPDATE run_specs SET remembered = ? WHERE run = ?"
_HAD = (
    "FROM thread_turns t WHERE t.run = ? AND NOT EXISTS (SELECT 1 FROM thread_turns f "
    "INDEXED BY thread_turns_of_thread WHERE f.thread = t.thread AND f.run < t.run)"
)
_INSERT_THREAD = (
    "INSERT INTO threads (tenant, thread_id, resource_id, title, metadata, create_time, update_time, parent) "
    f"SELECT ?, ?, ?, ?, ?, ?, ?, t.thread {_HAD} "
    "ON CONFLICT (tenant, thread_id) WHERE doom = 0 DO NOTHING"
)
_THREAD = (
    "SELECT h.seq FROM threads h INDEXED BY threads_below "
    f"WHERE h.parent IS NOT NULL AND h.doom = 0 AND h.parent = (SELECT t.thread {_HAD}) "
    "AND h.thread_id = (SELECT thread_id FROM runs WHERE seq = ?)"
)


def write(op: RunWrite, root: int, transaction: Transaction) -> None:
    """Write what `op`, whose fence was checked, has of sub-agents' runs, those of the row `root`."""
    for child in op.children:
        seq, form = _row(op, child, transaction)
        _change(child.patch, child.standing, seq, transaction)
        for step in child.steps:
            transaction.execute(_UPSERT_STEP, (seq, step.step, form, encode(step)))
        if child.processing is not None:
            transaction.execute(_PROCESSING, (encode(child.processing), seq))
        if child.remembered is not None:
            transaction.execute(_REMEMBERED, (encode(child.remembered), seq))
        _say(op, child, root, seq, transaction)


def _say(op: RunWrite, child: ChildWrite, root: int, seq: int, transaction: Transaction) -> None:
    """What becomes of the thread of a run."""
    if (new := child.thread) is not None:
        values = (op.tenant, new.thread_id, new.resource_id, new.title, new.metadata)
        transaction.execute(_INSERT_THREAD, (*values, new.create_time, new.update_time, root))
    if child.messages:
        thread = transaction.execute(_THREAD, (root, seq)).fetchone()
        if thread is not None:
            messages.put(child.messages, thread[0], transaction)


def _row(op: RunWrite, child: ChildWrite, transaction: Transaction) -> tuple[int, int]:
    """The row id and record format of a run that may have to be created."""
    if child.run is not None and child.spec is not None:
        made = transaction.execute(INSERT_RUN, run_values(child.run)).fetchone()
        if made is not None:
            transaction.execute(_INSERT_SPEC, (made[0], child.run.format, encode(child.spec)))
            return made[0], child.run.format
    row = transaction.execute(_FIND, (op.tenant, child.run_id, op.run_id)).fetchone()
    if row is None:
        raise ValueError(f"{child.run_id} is no run of a sub-agent of {op.run_id}")
    seq, form = row
    return seq, form


def _change(patch: RunPatch | None, standing: Standing | None, seq: int, transaction: Transaction) -> None:
    now = transaction.now
    if patch is not None:
        usage = None if patch.usage is None else encode(patch.usage)
        transaction.execute(_PATCH, (now, patch.step, patch.attempt, usage, seq))
    if standing is not None:
        values = (standing.state, standing.finish_reason, standing.stop_cause, encode_error(standing.error))
        ended = now if standing.state in TERMINAL else 0
        transaction.execute(_STAND, (now, *values, ended, seq))
