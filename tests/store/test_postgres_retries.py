"""What passes by itself is tried again; what does not is told; and nobody waits for ever."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress

import psycopg
import pytest

from entracte_server.domain.runs import RunRow
from entracte_server.store.base import CreateRun, StoreUnavailable, Written
from entracte_server.store.postgres import PostgresStore, pool, retrying, store, transactions
from entracte_server.store.postgres.errors import DatabaseError
from entracte_server.testing.store_conformance.builders import (
    SPEC,
    TENANT,
    a_call,
    a_decide,
    a_run,
    a_write,
    chunks,
    created,
    log_of,
    waiting,
)
from tests.postgres import USER, Postgres
from tests.store.losing_proxy import LosingProxy

PASSING = ["40001", "40P01", "55P03", "57P01", "57P03", "25006", "53300", "08006", "26000"]

Fail = Callable[[str, int], None]

_FAULT = """
CREATE SCHEMA faults;
CREATE SEQUENCE faults.count;
CREATE FUNCTION faults.fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF nextval('faults.count') <= {count} THEN RAISE EXCEPTION 'fault' USING ERRCODE = '{state}'; END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER fault BEFORE UPDATE ON entracte.runs FOR EACH ROW EXECUTE FUNCTION faults.fail();
"""


@pytest.fixture
async def opened(postgres_url: str) -> AsyncIterator[PostgresStore]:
    it = await PostgresStore.open(postgres_url)
    yield it
    await it.close()


@pytest.fixture
def fail(postgres: Postgres, postgres_database: str) -> Iterator[Fail]:
    """Makes the next changes of runs fail: with which SQLSTATE, and how many."""

    def make(state: str, count: int) -> None:
        postgres.execute(_FAULT.format(state=state, count=count), postgres_database)

    yield make
    postgres.execute("DROP SCHEMA IF EXISTS faults CASCADE", postgres_database)


def attempts(postgres: Postgres, database: str) -> int:
    ((count,),) = postgres.execute("SELECT last_value FROM faults.count", database)
    return int(count)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts end soon."""
    monkeypatch.setattr(retrying, "PATIENCE_SECONDS", 0.4)


@pytest.mark.parametrize("state", PASSING)
async def test_what_passes_is_tried_again(opened: PostgresStore, fail: Fail, state: str) -> None:
    run = await created(opened)
    other = await created(opened)
    fail(state, 3)
    outcomes = await asyncio.gather(
        opened.submit(a_write(run, chunks=chunks(1, 2))),
        opened.submit(a_write(run, chunks=chunks(3, 3))),
        opened.submit(a_write(other, chunks=chunks(1, 1))),
        opened.take_over(TENANT, other.run_id, fence=1, owner="process-2"),
    )
    assert list(outcomes[:3]) == [Written()] * 3
    assert isinstance(outcomes[3], RunRow)
    assert await log_of(opened, run) == chunks(1, 3).data


@pytest.mark.usefixtures("impatient")
async def test_what_does_not_pass_within_bounds(opened: PostgresStore, fail: Fail) -> None:
    run = await created(opened)
    fail("40001", 1_000_000)
    async with asyncio.timeout(20):
        with pytest.raises(StoreUnavailable, match=r"refuses: .*40001"):
            await opened.write(a_write(run, chunks=chunks(1, 2)))
    assert await opened.get_run(TENANT, run.run_id) == run


@pytest.mark.usefixtures("impatient")
async def test_those_that_wait_give_up_together(
    opened: PostgresStore, fail: Fail, postgres: Postgres, postgres_database: str
) -> None:
    """What was submitted later for a run is not done when what was submitted before was not."""
    run = await created(opened)
    fail("40001", 1_000_000)
    first = opened.submit(a_write(run, calls=(a_call(run),)))
    while attempts(postgres, postgres_database) < 2:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    later = opened.submit(a_write(run, chunks=chunks(1, 1)))
    outcomes = await asyncio.gather(first, later, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [StoreUnavailable, StoreUnavailable]
    postgres.execute("DROP SCHEMA faults CASCADE", postgres_database)
    assert await opened.get_run(TENANT, run.run_id) == run
    assert await opened.write(a_write(run, chunks=chunks(1, 1))) == Written()


@pytest.mark.parametrize("state", ["53100", "42501", "XX000", "57014"])
async def test_what_will_not_pass_is_told_at_once(
    opened: PostgresStore, fail: Fail, state: str, postgres: Postgres, postgres_database: str
) -> None:
    run = await created(opened)
    other = await created(opened)
    fail(state, 2)
    bad = opened.submit(a_write(run, chunks=chunks(1, 1)))
    with pytest.raises(StoreUnavailable, match=state):
        await bad
    assert attempts(postgres, postgres_database) == 2  # with its group, and alone
    assert await opened.write(a_write(other, chunks=chunks(1, 1))) == Written()


async def test_values_are_their_callers_fault(opened: PostgresStore) -> None:
    with pytest.raises(DatabaseError, match="out of range"):
        await opened.create_run(CreateRun(a_run(create_time=2**70), SPEC))
    _, call, pending = await waiting(opened)
    _, other_call, other_pending = await waiting(opened)
    outcomes = await asyncio.gather(
        opened.decide(a_decide(pending, call, decision_id="twice")),
        opened.decide(a_decide(other_pending, other_call, decision_id="twice")),
        return_exceptions=True,
    )
    failed = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    assert [getattr(error, "sqlstate", None) for error in failed] == ["23505"]


async def test_a_deadlock(
    postgres: Postgres, postgres_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody else, who locks as he likes, and one of the two has to give way: the store."""
    monkeypatch.setattr(store, "WRITERS", 1)
    opened = await PostgresStore.open(postgres_url)
    one, two = await created(opened, run_id="a"), await created(opened, run_id="b")
    lock = "UPDATE entracte.runs SET has_log = has_log WHERE run_id = %s"
    async with await psycopg.AsyncConnection.connect(postgres_url) as stranger:
        await stranger.execute("SET deadlock_timeout = '1min'")
        await stranger.execute(lock, ("b",))
        futures = [opened.submit(a_write(run, chunks=chunks(1, 1))) for run in (one, two)]
        waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        while not postgres.execute(waits):  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        await stranger.execute(lock, ("a",))
        await stranger.commit()
        assert await asyncio.gather(*futures) == [Written()] * 2
    assert "deadlock detected" in caplog.text
    await opened.close()


async def test_a_lock_that_is_held_for_a_while(opened: PostgresStore, postgres_url: str) -> None:
    run = await created(opened)
    async with await psycopg.AsyncConnection.connect(postgres_url) as stranger:
        await stranger.execute("LOCK TABLE entracte.chunks IN SHARE MODE")
        write = opened.submit(a_write(run, chunks=chunks(1, 1)))
        await asyncio.sleep(0.2)
        assert not write.done()
        await stranger.commit()
        assert await write == Written()


@pytest.mark.usefixtures("impatient")
async def test_a_lock_that_is_held_for_ever(
    opened: PostgresStore, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await created(opened)
    sql = transactions.SETTINGS[0].replace("'lock_timeout', '2000'", "'lock_timeout', '50'")
    assert sql != transactions.SETTINGS[0]
    monkeypatch.setattr(transactions, "SETTINGS", (sql, ()))
    async with await psycopg.AsyncConnection.connect(postgres_url) as stranger:
        await stranger.execute("LOCK TABLE entracte.runs IN ACCESS EXCLUSIVE MODE")
        for waiting_one in (
            opened.write(a_write(run, chunks=chunks(1, 1))),
            opened.get_run(TENANT, run.run_id),
            opened.load(TENANT, run.run_id),
        ):
            with pytest.raises(StoreUnavailable, match="lock timeout"):
                await waiting_one
    assert await opened.get_run(TENANT, run.run_id) == run


async def test_a_server_that_became_a_standby(
    opened: PostgresStore, postgres: Postgres, postgres_database: str
) -> None:
    """Connections to it are of no use any more; another one is made when there is a primary."""
    run = await created(opened)
    await opened.write(a_write(run, chunks=chunks(1, 1)))
    read_only = f'ALTER DATABASE "{postgres_database}" SET default_transaction_read_only = on'
    postgres.execute(read_only)
    postgres.terminate(postgres_database)
    try:
        write = opened.submit(a_write(run, chunks=chunks(2, 2)))
        await asyncio.sleep(0.3)
        assert not write.done()
        assert (await opened.get_run(TENANT, run.run_id)).last_sequence == 1
    finally:
        postgres.execute(f'ALTER DATABASE "{postgres_database}" RESET default_transaction_read_only')
    assert await write == Written()


@pytest.mark.usefixtures("impatient")
async def test_a_server_that_is_away(opened: PostgresStore, postgres: Postgres) -> None:
    run = await created(opened)
    postgres.stop()
    try:
        for waiting_one in (
            opened.write(a_write(run, chunks=chunks(1, 1))),
            opened.get_run(TENANT, run.run_id),
            opened.renew("process", 10),
        ):
            with pytest.raises(StoreUnavailable):
                await waiting_one
    finally:
        postgres.start()
    assert await opened.write(a_write(run, chunks=chunks(1, 1))) == Written()
    assert (await opened.get_run(TENANT, run.run_id)).last_sequence == 1


async def test_a_server_that_is_back_in_time(opened: PostgresStore, postgres: Postgres) -> None:
    run = await created(opened)
    postgres.stop()
    write = opened.submit(a_write(run, chunks=chunks(1, 1)))
    read = asyncio.create_task(opened.get_run(TENANT, run.run_id))
    await asyncio.sleep(0.3)
    await asyncio.to_thread(postgres.start)
    assert await write == Written()
    assert (await read).run_id == run.run_id


@pytest.mark.usefixtures("impatient")
async def test_no_connections_left(postgres: Postgres, postgres_url: str, postgres_database: str) -> None:
    await (await PostgresStore.open(postgres_url)).close()
    postgres.execute("DROP ROLE IF EXISTS narrow")
    postgres.execute("CREATE ROLE narrow LOGIN CONNECTION LIMIT 1")
    postgres.execute("GRANT ALL ON SCHEMA entracte TO narrow", postgres_database)
    postgres.execute("GRANT ALL ON ALL TABLES IN SCHEMA entracte TO narrow", postgres_database)
    opened = await PostgresStore.open(postgres_url.replace(f"//{USER}@", "//narrow@"))
    run = await created(opened)  # this takes the one connection
    with pytest.raises(StoreUnavailable, match="too many connections"):
        await opened.get_run(TENANT, run.run_id)
    postgres.execute("ALTER ROLE narrow CONNECTION LIMIT 10")
    assert await opened.get_run(TENANT, run.run_id) == run
    await opened.close()
    postgres.execute("DROP OWNED BY narrow", postgres_database)
    postgres.execute("DROP ROLE narrow")


async def test_a_lease_is_renewed_while_reads_wait_for_their_turn(
    opened: PostgresStore, postgres_url: str
) -> None:
    """Many readers at once, after a deploy say, or slow ones must not cost a process its runs."""
    run = await created(opened)
    await opened.enter("p", 60)
    async with await psycopg.AsyncConnection.connect(postgres_url) as other:
        await other.execute("LOCK TABLE entracte.runs IN ACCESS EXCLUSIVE MODE")
        reads = [asyncio.create_task(opened.get_run(TENANT, run.run_id)) for _ in range(3 * store.READERS)]
        await asyncio.sleep(0.1)
        renewing = asyncio.create_task(opened.renew("p", 60))
        done, _ = await asyncio.wait({*reads, renewing}, return_when=asyncio.FIRST_COMPLETED)
        await other.rollback()
    assert done == {renewing}
    assert await renewing
    assert await asyncio.gather(*reads) == [run] * len(reads)


class TestSilence:
    """Nothing is refused and nothing arrives."""

    @pytest.fixture
    async def proxy(self, postgres: Postgres) -> AsyncIterator[LosingProxy]:
        async with LosingProxy(postgres.port).running() as running:
            yield running

    @pytest.fixture
    async def opened(
        self, proxy: LosingProxy, postgres_url: str, postgres_database: str, monkeypatch: pytest.MonkeyPatch
    ) -> AsyncIterator[PostgresStore]:
        monkeypatch.setattr(retrying, "PATIENCE_SECONDS", 0.4)
        monkeypatch.setattr(transactions, "TRIP_SECONDS", 0.3)
        monkeypatch.setattr(store, "CONNECT_SECONDS", 0.3)
        monkeypatch.setattr(store, "READERS", 1)
        monkeypatch.setattr(pool, "WAIT_SECONDS", 0.1)
        it = await PostgresStore.open(f"postgresql://{USER}@127.0.0.1:{proxy.port}/{postgres_database}")
        yield it
        proxy.thaw()
        await it.close()

    async def test_writes_and_reads_end(self, opened: PostgresStore, proxy: LosingProxy) -> None:
        run = await created(opened)
        assert await opened.get_run(TENANT, run.run_id) == run
        proxy.freeze()
        async with asyncio.timeout(20):
            outcomes = await asyncio.gather(
                opened.write(a_write(run, chunks=chunks(1, 1))),
                opened.get_run(TENANT, run.run_id),
                opened.get_run(TENANT, run.run_id),
                return_exceptions=True,
            )
        assert [type(outcome) for outcome in outcomes] == [StoreUnavailable] * 3
        assert "all 1 connections are in use" in {str(outcome) for outcome in outcomes}
        proxy.thaw()
        assert await opened.write(a_write(run, chunks=chunks(1, 1))) == Written()
        assert await log_of(opened, run) == chunks(1, 1).data

    async def test_readers_that_went_away_leave_their_connection_to_others(
        self, opened: PostgresStore, proxy: LosingProxy
    ) -> None:
        run = await created(opened)
        await opened.get_run(TENANT, run.run_id)
        for _ in range(3):
            proxy.freeze()
            read = asyncio.create_task(opened.get_run(TENANT, run.run_id))
            await asyncio.sleep(0.02)
            read.cancel()
            with suppress(asyncio.CancelledError):
                await read
            proxy.thaw()
            assert await opened.get_run(TENANT, run.run_id) == run

    async def test_a_read_that_failed_for_nobody_leaves_a_clean_connection(
        self, opened: PostgresStore, proxy: LosingProxy, postgres: Postgres, postgres_database: str
    ) -> None:
        run = await created(opened)
        await opened.load(TENANT, run.run_id)
        postgres.execute("ALTER TABLE entracte.steps RENAME TO lost", postgres_database)
        proxy.freeze()
        read = asyncio.create_task(opened.load(TENANT, run.run_id))
        await asyncio.sleep(0.02)
        read.cancel()
        with suppress(asyncio.CancelledError):
            await read
        proxy.thaw()
        with pytest.raises(StoreUnavailable, match=r"lost|steps"):
            await opened.load(TENANT, run.run_id)
        postgres.execute("ALTER TABLE entracte.lost RENAME TO steps", postgres_database)
        assert (await opened.load(TENANT, run.run_id)).run == run
