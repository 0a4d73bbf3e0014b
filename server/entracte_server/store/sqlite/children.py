"""What the owner of a root run writes of its sub-agents' runs. They have rows, specs and steps of their own;
their calls, and what waits, are the root's.
"""

from entracte_server.domain.runs import TERMINAL
from entracte_server.store.base import ChildWrite, RunPatch, RunWrite, Standing
from entracte_server.store.records import encode, encode_error, run_values
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


def write(op: RunWrite, transaction: Transaction) -> None:
    """Write what `op`, whose fence was checked, has of sub-agents' runs."""
    for child in op.children:
        seq, form = _row(op, child, transaction)
        _change(child.patch, child.standing, seq, transaction)
        for step in child.steps:
            transaction.execute(_UPSERT_STEP, (seq, step.step, form, encode(step)))
        if child.processing is not None:
            transaction.execute(_PROCESSING, (encode(child.processing), seq))


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
