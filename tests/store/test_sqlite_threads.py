"""What a turn on a thread costs, and what runs without one do not pay for."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from entracte_server.store.sqlite import SQLiteStore
from entracte_server.store.sqlite.connection import Database
from entracte_server.store.threads import DeleteThread, MessageRange
from entracte_server.store.working_memory import Note
from entracte_server.testing.store_conformance.builders import (
    NOW,
    TENANT,
    a_message,
    a_write,
    an_end,
    chunks,
    claiming,
    created,
)
from entracte_server.testing.store_conformance.turns import WAITS


async def on_all(store: SQLiteStore, prepare: Callable[[sqlite3.Connection], None]) -> None:
    """Do something to each connection, on its thread."""
    databases: list[Database] = [*store._readers, store._writer._database]
    for database in databases:
        await database.call(prepare)


async def counted(store: SQLiteStore) -> list[int]:
    """A number that grows with every step of SQLite's machine."""
    steps = [0]

    def step() -> int:
        steps[0] += 1
        return 0

    await on_all(store, lambda raw: raw.set_progress_handler(step, 1))
    return steps


async def a_turn(store: SQLiteStore) -> None:
    """A run that has the thread, one that waits for it, and what is asked of it meanwhile."""
    run, _ = await claiming(store, "t")
    await claiming(store, "t", WAITS)
    assert len(await store.read_messages(TENANT, "t", MessageRange(newest=True), limit=10)) == 10
    question, answer = a_message(run_id=run.run_id), a_message(role="assistant", run_id=run.run_id)
    await store.write(a_write(run, messages=(question, answer)))
    assert len(await store.read_messages(TENANT, "t", MessageRange(run_id=run.run_id), limit=10)) == 2
    await store.get_thread(TENANT, "t")
    await store.list_threads(TENANT, "alice", cursor="", limit=5)
    assert len(await store.overdue(NOW + 1001, limit=5)) == 1
    written = await store.write(a_write(run, chunks=chunks(1, 1), messages=(answer,), end=an_end()))
    assert written.freed
    (row,) = await store.orphans(frozenset({"support"}), limit=5)
    taken = await store.take_over(TENANT, row.run_id, fence=0, owner="here")
    assert taken is not None
    await store.write(a_write(taken, chunks=chunks(1, 1), end=an_end()))


async def test_a_turn_costs_the_same_however_long_the_thread_is(tmp_path: Path) -> None:
    store = await SQLiteStore.open(tmp_path / "store.db", read_connections=1, synchronous="OFF")
    await store.enter("here", 600)
    for thread_id in ("t", *"abcdef"):
        run, _ = await claiming(store, thread_id)
        await store.write(a_write(run, messages=tuple(a_message() for _ in range(20)), end=an_end()))
    await a_turn(store)  # the first one reads the schema
    steps = await counted(store)
    await a_turn(store)
    few = steps[0]
    for _ in range(40):
        run, _ = await claiming(store, "t")
        said = tuple(a_message(run_id=run.run_id) for _ in range(50))
        await store.write(a_write(run, chunks=chunks(1, 1), messages=said, end=an_end()))
        other, _ = await claiming(store, f"other than {run.run_id}")
        await store.write(a_write(other, messages=said[:1], end=an_end()))
    steps[0] = 0
    await a_turn(store)
    more = steps[0]
    # Deleting it costs whoever asks nothing either.
    steps[0] = 0
    await store.delete_thread(DeleteThread(TENANT, "t", NOW))
    deleting = steps[0]
    await store.close()
    assert 0 < more == few
    assert 0 < deleting < few


async def test_runs_without_a_thread_look_for_none(tmp_path: Path) -> None:
    store = await SQLiteStore.open(tmp_path / "store.db", read_connections=1, synchronous="OFF")
    said: list[str] = []
    await on_all(store, lambda raw: raw.set_trace_callback(said.append))
    run = await created(store, last_sequence=1)
    await store.write(a_write(run, chunks=chunks(2, 2)))
    await store.write(a_write(run, chunks=chunks(3, 3), end=an_end()))
    await store.delete_run(TENANT, run.run_id, force=False, request=None)
    assert [statement for statement in said if "runs" in statement]
    assert [statement for statement in said if "thread_turns" in statement or "messages" in statement] == []
    await store.close()


async def test_the_working_memory_of_a_thread_is_deleted_with_it(tmp_path: Path) -> None:
    """Nobody could read it any more, but nothing is to be left of it."""
    store = await SQLiteStore.open(tmp_path / "store.db", read_connections=1, synchronous="OFF")
    run, _ = await claiming(store, "t")
    await store.write(a_write(run, notes=(Note("of the thread", 1, NOW),)))
    await store.write(a_write(run, notes=(Note("of alice", 1, NOW, "alice"),)))
    await store.delete_thread(DeleteThread(TENANT, "t", NOW, force=True))
    await store.close()
    with closing(sqlite3.connect(tmp_path / "store.db")) as raw:
        assert raw.execute("SELECT content FROM working_memory").fetchall() == [(b"of alice",)]
