"""Which run has a thread: the turns of its runs, taken when they are created, given up when they end.

Operations of a transaction take a `Transaction`, as in `owner` and `commands`.
"""

import sqlite3
from typing import NamedTuple

from entracte_server.domain.runs import SNAPSHOT_FORMAT, RunRow
from entracte_server.store.base import RunExists, ThreadBelow, ThreadBusy, ThreadNotYours
from entracte_server.store.records import RUN_COLUMNS, run_row
from entracte_server.store.sqlite.codec import find_run
from entracte_server.store.sqlite.reads import open_calls
from entracte_server.store.sqlite.writer import Transaction
from entracte_server.store.threads import ThreadClaim

_THREAD = "SELECT seq, resource_id, parent FROM threads WHERE tenant = ? AND thread_id = ? AND doom = 0"
_TURNS = "SELECT count(*), min(run) FROM thread_turns INDEXED BY thread_turns_of_thread WHERE thread = ?"
_RUN = f"SELECT {RUN_COLUMNS} FROM runs WHERE seq = ?"
_REPLACE = (
    "UPDATE runs SET state = 'running', finish_reason = NULL, stop_cause = NULL, "
    "cancel_reason = coalesce(cancel_reason, ?), update_time = ? WHERE seq = ?"
)
_INSERT = "INSERT INTO thread_turns (run, thread, deadline) VALUES (?, ?, ?)"
_INSERT_THREAD = (
    "INSERT INTO threads (tenant, thread_id, resource_id, title, metadata, create_time, update_time) "
    "VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING seq"
)
_GIVE_UP = "DELETE FROM thread_turns WHERE run = ? RETURNING thread"
_NEXT = (
    "UPDATE runs SET state = 'running', update_time = ? WHERE state = 'queued' AND seq = "
    "(SELECT min(run) FROM thread_turns INDEXED BY thread_turns_of_thread WHERE thread = ?) RETURNING seq"
)
_STARTS = "UPDATE thread_turns SET deadline = 0 WHERE run = ?"
_TREE = (
    "SELECT run FROM thread_turns WHERE run IN (SELECT seq FROM runs WHERE tenant = ? AND run_id = ? "
    "UNION SELECT seq FROM runs INDEXED BY runs_of_tree WHERE tenant = ? AND root_run_id = ?)"
)
_OVERDUE = (
    f"SELECT {', '.join('r.' + name for name in RUN_COLUMNS.split(', '))} "
    "FROM thread_turns t INDEXED BY thread_turns_overdue CROSS JOIN runs r ON r.seq = t.run "
    "WHERE t.deadline > 0 AND t.deadline < ? AND r.state = 'queued' AND r.format <= ? "
    "ORDER BY t.deadline, t.run LIMIT ?"
)


class Place(NamedTuple):
    """Where a new run comes in its thread: None, which is to be made. `replaces` is the row id and the id
    of the parked run that makes way for it."""

    thread: int | None = None
    queued: bool = False
    replaces: tuple[int, str] | None = None


def find_place(run: RunRow, claim: ThreadClaim, transaction: Transaction) -> Place | None:
    """Where a new run comes; None for one that only reads. Nothing is written. Raises `ThreadBusy`,
    `ThreadNotYours`, `ThreadBelow`, `RunExists`."""
    found = transaction.execute(_THREAD, (run.tenant, run.thread_id)).fetchone()
    if found is None:
        return None if claim.reads_only else Place()
    thread, resource_id, parent = found
    if resource_id != run.resource_id:
        raise ThreadNotYours(f"thread {run.thread_id} is another resource's")
    if claim.reads_only:
        return None
    if parent is not None:
        raise ThreadBelow(f"thread {run.thread_id} is a sub-agent's")
    turns, first = transaction.execute(_TURNS, (thread,)).fetchone()
    if first is None:
        return Place(thread)
    holder = run_row(transaction.execute(_RUN, (first,)).fetchone())
    parked = holder.state == "suspended"
    if claim.may_wait(parked=parked, waiting=turns - 1):
        replaces = (first, holder.run_id) if parked and claim.replace is not None else None
        return Place(thread, queued=True, replaces=replaces)
    if find_run(transaction.cursor, run.tenant, run.run_id) is not None:
        raise RunExists(f"run {run.run_id} exists")
    raise ThreadBusy(holder, open_calls(transaction.cursor, first), turns - 1)


def take(place: Place, seq: int, run: RunRow, claim: ThreadClaim, transaction: Transaction) -> None:
    """Put a run that was just created in its place."""
    thread = place.thread
    if thread is None:
        values = (run.tenant, run.thread_id, run.resource_id, claim.title, claim.metadata)
        thread = transaction.execute(_INSERT_THREAD, (*values, run.create_time, run.create_time)).fetchone()[
            0
        ]
    transaction.execute(_INSERT, (seq, thread, claim.deadline if place.queued else 0))
    if place.replaces is not None:
        transaction.execute(_REPLACE, (claim.replace, transaction.now, place.replaces[0]))


def give_up(seq: int, transaction: Transaction) -> bool:
    """Take a run out of its thread, if it has one or waits for one; whether the next one runs now."""
    turn = transaction.execute(_GIVE_UP, (seq,)).fetchone()
    if turn is None:
        return False
    following = transaction.execute(_NEXT, (transaction.now, turn[0])).fetchone()
    if following is None:
        return False
    transaction.execute(_STARTS, following)
    return True


def give_up_tree(tenant: str, run_id: str, transaction: Transaction) -> None:
    """`give_up` for a run and its sub-agents' runs."""
    turns = transaction.execute(_TREE, (tenant, run_id, tenant, run_id)).fetchall()
    for (seq,) in turns:
        give_up(seq, transaction)


def overdue(connection: sqlite3.Connection, now: int, limit: int) -> list[RunRow]:
    """See `ThreadStore.overdue`."""
    return [run_row(row) for row in connection.execute(_OVERDUE, (now, SNAPSHOT_FORMAT, limit))]
