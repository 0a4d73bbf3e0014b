"""Group commit on PostgreSQL: what travels together, and what fails alone."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from entracte_server.store.base import ChunkRow, LeaseLost, StoreUnavailable, Written
from entracte_server.store.postgres import PostgresStore, store
from entracte_server.store.postgres.connection import Connection, Result, Statement
from entracte_server.store.postgres.errors import DatabaseError
from entracte_server.store.postgres.programs import Attempt, Program
from entracte_server.store.postgres.writer import MAX_GROUP, Writer
from entracte_server.testing.store_conformance.builders import (
    TENANT,
    a_call,
    a_cancel,
    a_decide,
    a_park,
    a_pending,
    a_write,
    chunks,
    created,
    everything,
    log_of,
    waiting,
)
from tests.postgres import Postgres


@pytest.fixture
async def opened(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[PostgresStore]:
    """With one writer, so that what is submitted at once is one group."""
    monkeypatch.setattr(store, "WRITERS", 1)
    it = await PostgresStore.open(postgres_url)
    yield it
    await it.close()


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows with every trip to the server: how many of its statements are not there for all."""
    seen: list[int] = []
    run = Connection.run

    def counted(
        self: Connection, statements: list[Statement], seconds: float
    ) -> "asyncio.Future[list[Result]]":
        seen.append(sum("entracte." in sql for sql, _ in statements))
        return run(self, statements, seconds)

    monkeypatch.setattr(Connection, "run", counted)
    return seen


class TestGroups:
    async def test_what_is_submitted_at_once_makes_one_trip(
        self, opened: PostgresStore, trips: list[int]
    ) -> None:
        runs = [await created(opened) for _ in range(20)]
        trips.clear()
        await asyncio.gather(*(opened.submit(a_write(run, chunks=chunks(1, 1))) for run in runs))
        assert trips == [20]

    async def test_what_queues_while_a_trip_is_made_makes_the_next(
        self, opened: PostgresStore, trips: list[int]
    ) -> None:
        runs = [await created(opened) for _ in range(20)]
        trips.clear()
        first = opened.submit(a_write(runs[0], chunks=chunks(1, 1)))
        await asyncio.sleep(0)  # the writer starts with what there is
        rest = [opened.submit(a_write(run, chunks=chunks(1, 1))) for run in runs[1:]]
        await asyncio.gather(first, *rest)
        assert trips == [1, 19]

    async def test_groups_are_bounded(self, opened: PostgresStore, trips: list[int]) -> None:
        run = await created(opened)
        trips.clear()
        count = 2 * MAX_GROUP + 10
        await asyncio.gather(*(opened.submit(a_write(run, chunks=chunks(n, n))) for n in range(1, count + 1)))
        assert trips == [MAX_GROUP, MAX_GROUP, 10]
        assert (await opened.get_run(TENANT, run.run_id)).last_sequence == count

    async def test_a_decision_and_all_that_follows_make_one_trip(
        self, opened: PostgresStore, trips: list[int]
    ) -> None:
        _, call, pending = await waiting(opened)
        trips.clear()
        decided = await opened.decide(a_decide(pending, call))
        assert decided.snapshot is not None
        assert len(trips) == 1

    async def test_deletions_are_alone(self, opened: PostgresStore) -> None:
        one, _, _ = await waiting(opened)
        two = await created(opened)
        outcomes = await asyncio.gather(
            opened.submit(a_write(two, chunks=chunks(1, 1))),
            opened.delete_run(TENANT, one.run_id, force=True, request=None),
            opened.submit(a_write(two, chunks=chunks(2, 2))),
        )
        assert list(outcomes) == [Written(), None, Written()]
        assert await log_of(opened, two) == chunks(1, 2).data

    async def test_processes_lock_in_one_order(
        self, opened: PostgresStore, postgres_url: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Else they would wait for each other."""
        other = await PostgresStore.open(postgres_url)
        runs = [await created(opened) for _ in range(60)]
        for _ in range(5):
            await asyncio.gather(
                *(opened.cancel(a_cancel(run)) for run in runs),
                *(other.cancel(a_cancel(run)) for run in reversed(runs)),
            )
        assert "deadlock" not in caplog.text
        await other.close()


class TestFailures:
    async def test_a_refusal_does_not_disturb_its_group(
        self, opened: PostgresStore, trips: list[int]
    ) -> None:
        run, other, third = await created(opened), await created(opened), await created(opened)
        trips.clear()
        outcomes = await asyncio.gather(
            opened.submit(a_write(run, fence=7, chunks=chunks(1, 1))),
            opened.submit(a_write(other, chunks=chunks(1, 1))),
            opened.submit(a_write(other, chunks=chunks(9, 9))),
            opened.submit(a_write(third, park=a_park(1))),
            return_exceptions=True,
        )
        assert [type(outcome) for outcome in outcomes] == [LeaseLost, Written, ValueError, Written]
        assert trips[0] == 5  # committed at once; the two that were refused find out why by themselves
        assert await log_of(opened, other) == b"<1>"

    async def test_what_cannot_be_written_fails_alone(self, opened: PostgresStore) -> None:
        """A pending call id that is taken, a text that is none, and a number that is too large."""
        _, _, pending = await waiting(opened)
        bad = [await created(opened) for _ in range(3)]
        before = [await everything(opened, run) for run in bad]
        call = a_call(bad[0])
        fresh = a_pending(bad[0], call)
        writes = [
            a_write(
                bad[0],
                chunks=chunks(1, 2),
                calls=(call,),
                opened=(fresh, replace(fresh, pending_call_id=pending.pending_call_id)),
            ),
            a_write(bad[1], calls=(a_call(bad[1], call_id="\udfff"),)),
            a_write(bad[2], chunks=ChunkRow(1, 2**70, b"")),
        ]
        good = [await created(opened) for _ in range(9)]
        futures = []
        for number, run in enumerate(good):
            futures.append(opened.submit(a_write(run, chunks=chunks(1, 1))))
            if number % 3 == 1:
                futures.append(opened.submit(writes[number // 3]))
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes if outcome != Written()] == [
            ValueError,
            UnicodeEncodeError,
            DatabaseError,
        ]
        assert outcomes.count(Written()) == len(good)
        assert [await everything(opened, run) for run in bad] == before
        for run in good:
            assert await log_of(opened, run) == b"<1>"

    async def test_a_broken_table_is_not_the_callers_fault(
        self, opened: PostgresStore, postgres: Postgres, postgres_database: str
    ) -> None:
        run = await created(opened)
        postgres.execute("ALTER TABLE entracte.chunks RENAME TO lost", postgres_database)
        try:
            outcomes = await asyncio.gather(
                opened.submit(a_write(run, chunks=chunks(1, 1))),
                opened.submit(a_write(run, calls=(a_call(run),))),
                return_exceptions=True,
            )
            assert isinstance(outcomes[0], StoreUnavailable)
            assert outcomes[1] == Written()
            assert (await opened.get_run(TENANT, run.run_id)).last_sequence == 0
            with pytest.raises(StoreUnavailable):
                await opened.read_chunks(TENANT, run.run_id, after=0, limit_bytes=1)
        finally:
            postgres.execute("ALTER TABLE entracte.lost RENAME TO chunks", postgres_database)

    async def test_nobody_waits_for_ever_when_the_loop_stops(self, postgres_url: str) -> None:
        never = asyncio.get_running_loop().create_future()
        writer = Writer(lambda: never, "writer")

        def nothing(at: Attempt) -> Program[None]:
            yield []

        running = writer.submit(("t", "1"), nothing)
        await asyncio.sleep(0.01)
        queued = writer.submit(("t", "2"), nothing)
        writer._task.cancel()
        for future in (running, queued):
            with pytest.raises(StoreUnavailable, match="stopped"):
                await future
        with pytest.raises(StoreUnavailable, match="closed"):
            await writer.submit(("t", "3"), nothing)
        await writer.close()
