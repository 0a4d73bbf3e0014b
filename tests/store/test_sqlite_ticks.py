"""What each process asks once a second costs what is running, not what waits or has ended."""

import asyncio
import sqlite3
from pathlib import Path

from entracte_server.store.sqlite import SQLiteStore
from entracte_server.testing.store_conformance.builders import (
    TENANT,
    created,
    ended,
    waiting,
)


async def counted(store: SQLiteStore) -> list[int]:
    """A number that grows with every step of SQLite's machine."""
    steps = [0]

    def step() -> int:
        steps[0] += 1
        return 0

    def count(raw: sqlite3.Connection) -> None:
        raw.set_progress_handler(step, 1)

    await store._readers[0].call(count)
    return steps


async def a_tick(store: SQLiteStore) -> None:
    await store.commands("here")
    await store.orphans(frozenset({"support"}), limit=64)
    await store.peek([(TENANT, "run-0"), (TENANT, "run-1")])
    await store.lead("sweep", "here", 60)
    await store.owned("here")


async def test_a_tick_costs_what_runs(tmp_path: Path) -> None:
    store = await SQLiteStore.open(tmp_path / "store.db", read_connections=1, synchronous="OFF")
    await store.enter("here", 600)
    for number in range(20):
        await created(store, run_id=f"run-{number}", owner="here")
    await a_tick(store)  # the first one reads the schema
    steps = await counted(store)
    await a_tick(store)
    few = steps[0]
    for _ in range(400):
        await waiting(store, owner="here")
        await ended(store, owner="here")
    steps[0] = 0
    await a_tick(store)
    more = steps[0]
    await store.close()
    assert 0 < more == few


async def test_looking_for_orphans_writes_nothing_when_there_are_none(tmp_path: Path) -> None:
    store = await SQLiteStore.open(tmp_path / "store.db")
    await store.enter("here", 600)
    await created(store, owner="here")
    other = await SQLiteStore.open(tmp_path / "store.db")
    await other.enter("there", 600)
    assert await other.lead("sweep", "there", 600)
    with store._files.locked():  # whoever writes waits
        async with asyncio.timeout(5):
            assert await other.orphans(frozenset({"support"}), limit=9) == []
            assert await other.commands("there") == []
            assert await other.lead("sweep", "here", 600) is False
    await other.close()
    await store.close()
