"""The statement that creates a run with what belongs to it: all of it or nothing, in one go."""

from entracte_server.store.base import CreateRun
from entracte_server.store.postgres import requests
from entracte_server.store.postgres.connection import Statement
from entracte_server.store.postgres.programs import Attempt
from entracte_server.store.postgres.progress import packed
from entracte_server.store.postgres.values import Values
from entracte_server.store.records import NEW_RUN_COLUMNS, encode, run_values


def creation(op: CreateRun, at: Attempt, *, turn: tuple[int, int] | None = None) -> Statement:
    """The statement. It gives a row if the run was created: unless its id is taken, the request was made
    before, or it reads a thread of another resource. `turn` is the thread it has or waits for, which is
    locked, and until when it waits."""
    run, chunks, request = op.run, op.chunks, op.request
    value = Values()
    columns = value.row(*run_values(run), at.token)
    terms = [] if request is None else [requests.unused(request, value)]
    if op.claim is not None and op.claim.reads_only:
        terms.append(
            f"NOT EXISTS (SELECT 1 FROM entracte.threads WHERE tenant = {value(run.tenant)} "
            f"AND thread_id = {value(run.thread_id)} AND deleted = 0 "
            f"AND resource_id <> {value(run.resource_id)})"
        )
    where = f"WHERE {' AND '.join(terms)} " if terms else ""
    parts = [
        f"run AS (INSERT INTO entracte.runs ({NEW_RUN_COLUMNS}, taken_by) SELECT {columns} {where}"
        "ON CONFLICT (tenant, run_id) DO NOTHING RETURNING seq)",
        "spec AS (INSERT INTO entracte.run_specs (run, format, data) "
        f"SELECT seq, {value(run.format)}, {value(encode(op.spec))} FROM run)",
    ]
    if chunks is not None:
        size, data = packed(chunks.data)
        row = value.row(chunks.first, chunks.last, size, data)
        parts.append(
            f"log AS (INSERT INTO entracte.chunks (run, first, last, size, data) SELECT seq, {row} FROM run)"
        )
    if turn is not None:
        parts.append(
            "turn AS (INSERT INTO entracte.thread_turns (tenant, run, thread, deadline) "
            f"SELECT {value(run.tenant)}, seq, {value.row(*turn)} FROM run)"
        )
    if request is not None:
        parts.append(f"request AS ({requests.record(request, run.run_id, at, value, source='run')})")
    return f"WITH {', '.join(parts)} SELECT seq FROM run", value.bound
