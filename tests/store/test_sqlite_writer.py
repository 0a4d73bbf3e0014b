"""Group commit: what is committed together, what fails alone, what fails together, what is never lost."""

import asyncio
import random
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from entracte_server.store.base import CreateRun, LeaseLost, RunPatch, StoreUnavailable, Written
from entracte_server.store.sqlite import SQLiteStore
from entracte_server.store.sqlite.connection import Database, prepare
from entracte_server.store.sqlite.writer import MAX_GROUP, Transaction, Writer
from entracte_server.testing.store_conformance.builders import (
    SPEC,
    TENANT,
    a_call,
    a_decide,
    a_pending,
    a_run,
    a_write,
    chunks,
    created,
    log_of,
    waiting,
)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SQLiteStore]:
    opened = await SQLiteStore.open(tmp_path / "store.db")
    yield opened
    await opened.close()


async def on_writer(store: SQLiteStore, function: Callable[[sqlite3.Connection], Any]) -> Any:
    """Do something to the writing connection, on its thread."""
    return await store._writer._database.call(function)


async def count_commits(store: SQLiteStore) -> list[str]:
    """A list that grows with every commit from now on."""
    seen: list[str] = []

    def trace(statement: str) -> None:
        if statement.startswith(("COMMIT", "ROLLBACK")):
            seen.append(statement)

    await on_writer(store, lambda raw: raw.set_trace_callback(trace))
    return seen


class TestGroups:
    async def test_what_queues_while_a_commit_runs_is_committed_together(self, store: SQLiteStore) -> None:
        runs = [await created(store) for _ in range(20)]
        seen = await count_commits(store)
        first = store.submit(a_write(runs[0], chunks=chunks(1, 1)))
        await asyncio.sleep(0)  # the writer starts with what there is
        rest = [store.submit(a_write(run, chunks=chunks(1, 1))) for run in runs[1:]]
        await asyncio.gather(first, *rest)
        assert seen == ["COMMIT", "COMMIT"]

    async def test_groups_are_bounded(self, store: SQLiteStore) -> None:
        run = await created(store)
        seen = await count_commits(store)
        count = 2 * MAX_GROUP + 10
        await asyncio.gather(*(store.submit(a_write(run, chunks=chunks(n, n))) for n in range(1, count + 1)))
        assert seen == ["COMMIT"] * 3
        assert (await store.get_run(TENANT, run.run_id)).last_sequence == count

    async def test_a_lone_write_does_not_wait_for_company(self, store: SQLiteStore) -> None:
        run = await created(store)
        seen = await count_commits(store)
        for number in range(1, 4):
            await store.write(a_write(run, chunks=chunks(number, number)))
        assert seen == ["COMMIT"] * 3

    async def test_chunks_that_come_right_after_others_wait_for_company(self, store: SQLiteStore) -> None:
        """Company ends the waiting: it is not for what somebody waits for."""
        run, other = await created(store), await created(store)
        store._writer._next = time.monotonic() + 3600  # as if chunks had just been committed, for an hour
        seen = await count_commits(store)
        waits = store.submit(a_write(run, chunks=chunks(1, 1)))
        await asyncio.sleep(0.05)
        assert not waits.done()
        more = store.submit(a_write(other, chunks=chunks(1, 1)))
        await asyncio.sleep(0.05)
        assert not more.done()
        await store.submit(a_write(run, patch=RunPatch(step=1)))
        assert (await waits, await more) == (Written(), Written())
        assert seen == ["COMMIT"]

    async def test_chunks_do_not_wait_long(self, store: SQLiteStore) -> None:
        run = await created(store)
        seen = await count_commits(store)
        async with asyncio.timeout(30):
            for number in range(1, 6):
                await store.submit(a_write(run, chunks=chunks(number, number)))
        assert seen == ["COMMIT"] * 5

    async def test_closing_does_not_wait(self, tmp_path: Path) -> None:
        store = await SQLiteStore.open(tmp_path / "closed.db")
        run = await created(store)
        store._writer._next = time.monotonic() + 3600
        waits = store.submit(a_write(run, chunks=chunks(1, 1)))
        await asyncio.sleep(0.05)
        await store.close()
        assert await waits == Written()

    async def test_a_refusal_does_not_make_the_group_start_over(self, store: SQLiteStore) -> None:
        run, other = await created(store), await created(store)
        seen = await count_commits(store)
        outcomes = await asyncio.gather(
            store.submit(a_write(run, fence=7, chunks=chunks(1, 1))),
            store.submit(a_write(other, chunks=chunks(1, 1))),
            store.submit(a_write(other, chunks=chunks(9, 9))),
            return_exceptions=True,
        )
        assert [type(outcome) for outcome in outcomes] == [LeaseLost, Written, ValueError]
        assert seen == ["COMMIT"]

    async def test_a_failure_half_way_is_undone_alone(
        self, store: SQLiteStore, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The pending call id is taken, which shows only after other things were written."""
        run, _, pending = await waiting(store, park=False)
        other, third = await created(store), await created(store)
        call = a_call(other)
        fresh = a_pending(other, call)
        outcomes = await asyncio.gather(
            store.submit(a_write(run, chunks=chunks(4, 4))),
            store.submit(
                a_write(
                    other,
                    chunks=chunks(1, 2),
                    calls=(call,),
                    opened=(fresh, replace(fresh, pending_call_id=pending.pending_call_id)),
                )
            ),
            store.submit(a_write(third, chunks=chunks(1, 3))),
            return_exceptions=True,
        )
        assert isinstance(outcomes[1], ValueError)
        assert outcomes[0] == outcomes[2] == Written()
        assert await store.get_run(TENANT, other.run_id) == other
        assert await log_of(store, other) == b""
        assert (await store.load(TENANT, other.run_id)).pending == ()
        assert await log_of(store, run) == chunks(1, 4).data
        assert await log_of(store, third) == chunks(1, 3).data
        assert "an operation failed" in caplog.text

    async def test_a_decision_id_used_twice_fails_alone(self, store: SQLiteStore) -> None:
        _, call, pending = await waiting(store)
        _, other_call, other_pending = await waiting(store)
        first = a_decide(pending, call, decision_id="twice")
        second = a_decide(other_pending, other_call, decision_id="twice")
        outcomes = await asyncio.gather(store.decide(first), store.decide(second), return_exceptions=True)
        assert isinstance(outcomes[1], sqlite3.IntegrityError)
        assert (await store.get_pending(TENANT, other_pending.pending_call_id))[0].state == "open"
        assert (await store.get_pending(TENANT, pending.pending_call_id))[0].state == "decided"


class TestFailures:
    async def test_a_failing_commit_fails_the_group_and_changes_nothing(
        self, store: SQLiteStore, caplog: pytest.LogCaptureFixture
    ) -> None:
        runs = [await created(store) for _ in range(5)]

        def refuse_commits(action: int, first: str | None, *_: object) -> int:
            commit = action == sqlite3.SQLITE_TRANSACTION and first == "COMMIT"
            return sqlite3.SQLITE_DENY if commit else sqlite3.SQLITE_OK

        await on_writer(store, lambda raw: raw.set_authorizer(refuse_commits))
        outcomes = await asyncio.gather(
            *(store.submit(a_write(run, chunks=chunks(1, 1))) for run in runs),
            store.create_run(CreateRun(a_run(run_id="new"), SPEC)),
            return_exceptions=True,
        )
        assert all(isinstance(outcome, StoreUnavailable) for outcome in outcomes)
        assert "a group of 5 operations failed: not authorized" in caplog.text
        await on_writer(store, lambda raw: raw.set_authorizer(None))
        for run in runs:
            assert await store.get_run(TENANT, run.run_id) == run
            assert await log_of(store, run) == b""
            # The same write goes through later, although the row ids of then are void.
            await store.write(a_write(run, chunks=chunks(1, 1)))
        await store.create_run(CreateRun(a_run(run_id="new"), SPEC))

    async def test_a_full_disk(self, store: SQLiteStore) -> None:
        run = await created(store)
        pages = await on_writer(store, lambda raw: raw.execute("PRAGMA page_count").fetchone()[0])
        limit = f"PRAGMA max_page_count = {int(pages) + 4}"
        await on_writer(store, lambda raw: raw.execute(limit).fetchall())
        big = replace(chunks(1, 1), data=_noise(200_000))
        outcomes = await asyncio.gather(
            store.submit(a_write(run, chunks=big)),
            store.submit(a_write(run, calls=(a_call(run, args=_noise(100_000).hex()),))),
            return_exceptions=True,
        )
        assert all(isinstance(outcome, StoreUnavailable) for outcome in outcomes)
        assert await store.get_run(TENANT, run.run_id) == run
        await on_writer(store, lambda raw: raw.execute("PRAGMA max_page_count = 1000000").fetchall())
        await store.write(a_write(run, chunks=big))
        assert await log_of(store, run) == big.data

    async def test_a_lock_of_another_program(self, store: SQLiteStore, tmp_path: Path) -> None:
        run = await created(store)
        await on_writer(store, lambda raw: raw.execute("PRAGMA busy_timeout = 50").fetchall())
        other = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
        try:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreUnavailable, match="locked"):
                await store.write(a_write(run, chunks=chunks(1, 1)))
            assert await store.get_run(TENANT, run.run_id) == run  # reading goes on
            other.execute("ROLLBACK")
        finally:
            other.close()
        await store.write(a_write(run, chunks=chunks(1, 1)))

    async def test_waiting_for_a_lock_of_another_program(self, store: SQLiteStore, tmp_path: Path) -> None:
        run = await created(store)
        other = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
        try:
            other.execute("BEGIN IMMEDIATE")
            write = store.submit(a_write(run, chunks=chunks(1, 1)))
            await asyncio.sleep(0.1)
            assert not write.done()
            other.execute("ROLLBACK")
            assert await write == Written()
        finally:
            other.close()

    async def test_a_broken_table_is_not_the_callers_fault(self, store: SQLiteStore) -> None:
        run = await created(store)
        await on_writer(store, lambda raw: raw.execute("ALTER TABLE chunks RENAME TO lost").fetchall())
        outcomes = await asyncio.gather(
            store.submit(a_write(run, chunks=chunks(1, 1))),
            store.submit(a_write(run, calls=(a_call(run),))),
            return_exceptions=True,
        )
        assert isinstance(outcomes[0], StoreUnavailable)
        assert (await store.get_run(TENANT, run.run_id)).last_sequence == 0
        with pytest.raises(StoreUnavailable):
            await store.read_chunks(TENANT, run.run_id, after=0, limit_bytes=1)
        await on_writer(store, lambda raw: raw.execute("ALTER TABLE lost RENAME TO chunks").fetchall())


def _noise(size: int) -> bytes:
    """Bytes that cannot be packed."""
    return random.Random(size).randbytes(size)


class TestClosing:
    async def test_nobody_waits_for_ever_when_the_loop_stops(self, tmp_path: Path) -> None:
        files = await prepare(tmp_path / "store.db")
        writer = Writer(await Database.open(files, writable=True, synchronous="FULL"), files)

        def slow(transaction: Transaction) -> None:
            time.sleep(0.05)

        running = writer.submit(slow)
        await asyncio.sleep(0.01)
        queued = writer.submit(slow)
        writer._task.cancel()
        for future in (running, queued):
            with pytest.raises(StoreUnavailable, match="stopped"):
                await future
        with pytest.raises(StoreUnavailable, match="closed"):
            await writer.submit(slow)
        await writer.close()
        files.close()
