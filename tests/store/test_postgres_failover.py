"""The primary dies and its standby takes its place, in the middle of work: nothing is lost, nothing is done
twice, and nobody but the log hears of it.
"""

import asyncio
import signal

import pytest

from entracte_server.domain.runs import RunRow
from entracte_server.store.base import RunFilter
from entracte_server.store.postgres import PostgresStore, retrying
from entracte_server.testing.store_conformance.builders import TENANT
from tests.postgres import USER, Postgres
from tests.store.kill_child import life
from tests.store.test_crash import check_whole

LIVES = 40


@pytest.mark.timeout(120)
async def test_a_failover(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrying, "PATIENCE_SECONDS", 40.0)  # a busy machine takes its time
    with Postgres() as primary, Postgres(standby_of=primary) as standby:
        # What is acknowledged is on both, as it must be where nothing may be lost to a failover.
        primary.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        primary.execute("SELECT pg_reload_conf()")
        database = primary.create_database()
        hosts = f"127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
        store = await PostgresStore.open(f"postgresql://{USER}@{hosts}/{database}")

        async def lives(number: int) -> None:
            for index in range(LIVES // 8):
                await life(store, f"{number}-{index}")

        work = asyncio.gather(*(lives(number) for number in range(8)))
        while len(await ended(store)) < 8:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await asyncio.to_thread(primary.stop, signal.SIGQUIT)
        await asyncio.to_thread(standby.promote)
        await work
        runs = await ended(store)
        assert len(runs) == LIVES
        for run in runs:
            await check_whole(store, run)
        await store.close()


async def ended(store: PostgresStore) -> list[RunRow]:
    runs, _ = await store.list_runs(TENANT, RunFilter(states=("succeeded",)), cursor="", limit=1000)
    return runs
