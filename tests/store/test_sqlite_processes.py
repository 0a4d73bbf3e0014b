"""Several processes on one file: they work at once, die, stop, and wake each other."""

import asyncio
import gzip
import os
import signal
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from entracte_server.store.base import Refused, StoreUnavailable
from entracte_server.store.sqlite import SQLiteStore, files, migrate
from entracte_server.store.sqlite.connection import prepare
from entracte_server.testing.store_conformance.builders import (
    TENANT,
    a_decide,
    a_write,
    chunks,
    created,
    log_of,
    taken_over,
    waiting,
)
from tests.store.other_process import other_processes
from tests.store.test_sqlite_files import GOLDEN, versions

LONG = 600.0
AGENTS = frozenset({"support"})


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
async def store(database: Path) -> AsyncIterator[SQLiteStore]:
    opened = await SQLiteStore.open(database)
    await opened.enter("here", LONG)
    yield opened
    await opened.close()


def sockets(database: Path) -> list[str]:
    return sorted(os.listdir(f"{database}-processes"))


async def alive(store: SQLiteStore, run_id: str) -> bool:
    (seen,) = await store.peek([(TENANT, run_id)])
    return seen.alive


def unpack(golden: Path, database: Path) -> None:
    database.write_bytes(gzip.decompress(golden.read_bytes()))


class TestAtOnce:
    @pytest.mark.parametrize("version", [0, 1])
    async def test_opening(self, database: Path, version: int) -> None:
        """A new file, and one of an older version: one process makes it, none fails."""
        if version:
            unpack(GOLDEN[0], database)
        async with other_processes(database, 4) as processes:
            for number, process in enumerate(processes):
                await process.ask("create", f"run-{number}", "p")
        assert versions(database) == [number for number, _, _ in migrate.migrations()]

    async def test_migrating(self, database: Path) -> None:
        """All wait for the one that does it, and find it done."""
        unpack(GOLDEN[0], database)
        held = await prepare(database)
        held.acquire()
        opening = [asyncio.create_task(SQLiteStore.open(database)) for _ in range(6)]
        await asyncio.sleep(0.1)
        assert versions(database) == [1]
        held.release()
        held.close()
        for store in await asyncio.gather(*opening):
            await store.close()
        assert versions(database) == [number for number, _, _ in migrate.migrations()]

    async def test_working(self, store: SQLiteStore, database: Path) -> None:
        """All that was acknowledged is there, whole; nobody was told that the database is locked."""
        async with other_processes(database, 3) as processes:
            for number, process in enumerate(processes):
                process.send("work", f"worker-{number}", 1.0)
            for number in range(1, 100):
                mine = await created(store, run_id=f"mine-{number}", owner="here")
                await store.write(a_write(mine, chunks=chunks(1, 3)))
            done = [entry for process in processes for entry in await process.answer()]
            for process in processes:
                await process.end()
        assert {name.partition("-")[2][0] for name, _ in done} == {"0", "1", "2"}
        for run_id, last in done:
            run = await store.get_run(TENANT, run_id)
            assert (run.state, run.last_sequence, run.fence) == ("succeeded", last, 2)
            assert await log_of(store, run) == chunks(1, last).data
            _, decision = await store.get_pending(TENANT, f"{run_id}-pending")
            assert decision is not None
            assert decision.decision_id == f"{run_id}-decision"
        with sqlite3.connect(database) as raw:
            assert raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        raw.close()

    async def test_of_all_that_want_the_same_one_gets_it(self, store: SQLiteStore, database: Path) -> None:
        names = [f"race-{number}" for number in range(60)]
        async with other_processes(database, 3) as processes:
            for what in ("create", "decide", "take_over"):
                for process in processes:
                    process.send("race", what, names)
                won = [await process.answer() for process in processes]
                assert sorted(name for each in won for name in each) == sorted(names), what
        for name in names:
            run = await store.get_run(TENANT, name)
            assert (run.state, run.fence, run.takeovers, run.last_sequence) == ("running", 3, 1, 1)


class TestDeath:
    async def test_of_a_process_is_known_at_once(self, store: SQLiteStore, database: Path) -> None:
        """However long its lease lasts: a server that is started again goes on with its runs."""
        third = await SQLiteStore.open(database)
        async with other_processes(database, 2) as (doomed, other):
            await doomed.ask("enter", "doomed", LONG)
            await other.ask("enter", "other", LONG)
            await doomed.ask("create", "lost", "doomed")
            await other.ask("create", "kept", "other")
            assert await store.orphans(AGENTS, limit=9) == []
            assert sockets(database) == ["doomed.sock", "here.sock", "other.sock"]
            await doomed.kill()
            assert not await alive(store, "lost")
            assert await alive(store, "kept")
            (lost,) = await store.orphans(AGENTS, limit=9)
            assert lost.run_id == "lost"
            # Whoever finds it cleans up, and tells those that cannot see it.
            assert sockets(database) == ["here.sock", "other.sock"]
            assert not await alive(third, "lost")
            assert [run.run_id for run in await third.orphans(AGENTS, limit=9)] == ["lost"]
            await taken_over(store, lost, "here")
            assert await store.orphans(AGENTS, limit=9) == []
        await third.close()

    async def test_of_a_process_that_owned_nothing_leaves_nothing(
        self, store: SQLiteStore, database: Path
    ) -> None:
        async with other_processes(database, 1) as (doomed,):
            await doomed.ask("enter", "doomed", LONG)
            assert await doomed.ask("renew", "doomed", LONG)
            await doomed.kill()
        await store.enter("here again", LONG)
        assert await store.orphans(AGENTS, limit=9) == []
        assert len(sockets(database)) == 1
        assert not await store.renew("doomed", LONG)

    async def test_inside_a_transaction(self, store: SQLiteStore, database: Path) -> None:
        run = await created(store, owner="here")
        async with other_processes(database, 1) as (doomed,):
            await doomed.ask("hold", run.run_id)
            write = store.submit(a_write(run, chunks=chunks(1, 1)))
            await asyncio.sleep(0.05)
            assert not write.done()
            await doomed.kill()
            await write
        row = await store.get_run(TENANT, run.run_id)
        assert (row.step, row.last_sequence) == (0, 1)

    @pytest.mark.parametrize("lock", [False, True])
    async def test_with_children_that_live_on(self, store: SQLiteStore, database: Path, lock: bool) -> None:
        """What a fork inherits does not keep a lock or a socket."""
        run = await created(store, owner="doomed")
        async with other_processes(database, 1) as (doomed,):
            await doomed.ask("enter", "doomed", LONG)
            if lock:
                await doomed.ask("lock")
            left = await doomed.ask("fork")
            try:
                assert await alive(store, run.run_id)
                await doomed.kill()
                await store.write(a_write(run, chunks=chunks(1, 1)))
                assert [row.run_id for row in await store.orphans(AGENTS, limit=9)] == [run.run_id]
            finally:
                os.kill(left, signal.SIGKILL)

    async def test_again_and_again_while_others_work(self, store: SQLiteStore, database: Path) -> None:
        async with other_processes(database, 3) as processes:
            worker, *doomed = processes
            worker.send("work", "worker", 1.5)
            for number, process in enumerate(doomed):
                process.send("work", f"doomed-{number}", 60.0)
                await asyncio.sleep(0.4)
                await process.kill()
            done = await worker.answer()
        assert len(done) >= 4
        with sqlite3.connect(database) as raw:
            assert raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        raw.close()
        await created(store)

    async def test_of_the_machine(self, store: SQLiteStore, database: Path) -> None:
        """Leases of another boot have ended, whatever the clock says."""
        other = await SQLiteStore.open(database)
        await other.enter("there", LONG)
        assert await other.lead("sweep", "there", LONG)
        run = await created(other, owner="there")
        with sqlite3.connect(database) as raw:
            for table in ("processes", "duties"):
                raw.execute(f"UPDATE {table} SET boot_id = 'another', lease_end = lease_end * 2")
        raw.close()
        assert not await alive(store, run.run_id)
        assert [row.run_id for row in await store.orphans(AGENTS, limit=9)] == [run.run_id]
        assert not await other.renew("there", LONG)
        assert await store.lead("sweep", "here", LONG)
        await other.enter("there again", LONG)
        with sqlite3.connect(database) as raw:
            assert raw.execute("SELECT process_id FROM processes").fetchall() == [("there again",)]
        raw.close()
        await other.close()


class TestStopping:
    async def test_inside_a_transaction(
        self, store: SQLiteStore, database: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The others are told that the store is not available, after a bound; they read; they go on."""
        monkeypatch.setattr(files, "LOCK_SECONDS", 0.2)
        run = await created(store, owner="here")
        async with other_processes(database, 1) as (stopped,):
            await stopped.ask("hold", run.run_id)
            await stopped.stop()
            for _ in range(2):
                with pytest.raises(StoreUnavailable, match=r"held .*store\.db\.lock for 0\.2 seconds"):
                    await store.write(a_write(run, chunks=chunks(1, 1)))
            with pytest.raises(StoreUnavailable, match="held"):
                await SQLiteStore.open(database)
            assert await store.get_run(TENANT, run.run_id) == run
            stopped.go_on()
            await stopped.ask("let_go")
            await store.write(a_write(run, chunks=chunks(1, 1)))
        row = await store.get_run(TENANT, run.run_id)
        assert (row.step, row.last_sequence) == (77, 1)

    async def test_for_longer_than_the_lease(self, store: SQLiteStore, database: Path) -> None:
        async with other_processes(database, 1) as (stopped,):
            await stopped.ask("enter", "stopped", 1.0)
            await stopped.ask("create", "run", "stopped")
            await stopped.stop()
            assert await store.orphans(AGENTS, limit=9) == []  # it may go on any moment
            async with asyncio.timeout(20):
                while not (lost := await store.orphans(AGENTS, limit=9)):  # noqa: ASYNC110 - time passes
                    await asyncio.sleep(0.05)
            assert "stopped.sock" in sockets(database)  # it is not dead
            await taken_over(store, lost[0], "here")
            stopped.go_on()
            assert await stopped.ask("renew", "stopped", LONG) is False
            await stopped.ask("enter", "itself again", LONG)
            assert "stopped.sock" not in sockets(database)
            assert await store.orphans(AGENTS, limit=9) == []


class TestWaking:
    async def test_signals_come_by_themselves(self, store: SQLiteStore, database: Path) -> None:
        """Nobody looks into the database meanwhile: as many are heard as were sent."""
        heard: asyncio.Queue[str] = asyncio.Queue()
        store.signals.listen(heard.put_nowait)
        async with other_processes(database, 2) as (one, two):
            await one.ask("enter", "one", LONG)
            await two.ask("enter", "two", LONG)
            for number in range(50):
                # What is told before the watch is known to others is told when it is.
                topic = f"topic-{number}"
                store.signals.watch(topic)
                await (one, two)[number % 2].ask("tell", topic)
                assert await asyncio.wait_for(heard.get(), 20) == topic
                store.signals.unwatch(topic)
            assert heard.empty()

    async def test_more_at_once_than_a_socket_holds(self, store: SQLiteStore, database: Path) -> None:
        """What is told once arrives, while whoever is told does not read."""
        first, *topics = [f"topic-{number}" for number in range(2000)]
        async with other_processes(database, 1) as (busy,):
            await busy.ask("enter", "busy", LONG)
            await busy.ask("watch", [*topics, first])
            async with asyncio.timeout(20):
                while not await busy.ask("heard"):  # it watches all when it hears of the last one
                    store.signals.tell(first)
            busy.send("be_busy", 0.3)
            for topic in topics:
                store.signals.tell(topic)
                await asyncio.sleep(0)  # each a message of its own
            await busy.answer()
            async with asyncio.timeout(20):
                while set(await busy.ask("heard")) != {first, *topics}:
                    pass


class TestRemembering:
    async def test_a_run_that_another_process_deleted_and_made_anew(
        self, store: SQLiteStore, database: Path
    ) -> None:
        run, call, pending = await waiting(store, owner="here", run_id="again")
        other = await SQLiteStore.open(database)
        await other.delete_run(TENANT, "again", force=True, request=None)
        again, new_call, new_pending = await waiting(other, owner="there", run_id="again")
        with pytest.raises(Exception, match="no pending call"):
            await store.decide(a_decide(pending, call))
        assert (await store.decide(a_decide(new_pending, new_call))).snapshot is not None
        with pytest.raises(Refused):
            await other.decide(a_decide(new_pending, new_call))
        assert run.run_id == again.run_id
        await other.close()
