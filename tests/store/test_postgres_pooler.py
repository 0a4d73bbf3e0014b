"""The PostgreSQL store through a pooler that gives every transaction another connection.

All clients share two connections to the server. What a session would keep (prepared statements, settings,
locks, LISTEN) is the next client's, or gone.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator

import pytest

from entracte_server.store.base import StoreUnavailable
from entracte_server.store.postgres import PostgresStore, retrying
from entracte_server.testing.store_conformance.builders import (
    TENANT,
    created,
    waiting,
)
from entracte_server.testing.store_conformance.closing import CancellationSuite
from entracte_server.testing.store_conformance.decisions import DecisionSuite
from entracte_server.testing.store_conformance.owner import OwnerSuite
from entracte_server.testing.store_conformance.processes import LeaseSuite
from entracte_server.testing.store_conformance.signals import SignalSuite
from entracte_server.testing.store_conformance.suite import OpenStore
from entracte_server.testing.store_conformance.upkeep import RetentionSuite
from tests.pooler import Pooler
from tests.postgres import NoPostgres, Postgres


@pytest.fixture(scope="module")
def pooler(postgres: Postgres) -> Iterator[Pooler]:
    try:
        running = Pooler(postgres)
    except NoPostgres as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    with running:
        yield running


@pytest.fixture
async def open_store(pooler: Pooler, postgres_url: str, postgres_database: str) -> AsyncIterator[OpenStore]:
    opened: list[PostgresStore] = []

    async def open_one() -> PostgresStore:
        store = await PostgresStore.open(pooler.url(postgres_database), listen_url=postgres_url)
        opened.append(store)
        return store

    yield open_one
    for store in opened:
        await store.close()


class TestOwner(OwnerSuite):
    pass


class TestDecisions(DecisionSuite):
    pass


class TestLeases(LeaseSuite):
    pass


class TestSignals(SignalSuite):
    pass


class TestRetention(RetentionSuite):
    pass


class TestCancellation(CancellationSuite):
    pass


async def test_more_clients_than_connections(open_store: OpenStore) -> None:
    """Four stores with eight connections each, and two for all of them."""
    stores = [await open_store() for _ in range(4)]

    async def life(number: int) -> None:
        store = stores[number % len(stores)]
        run, _, _ = await waiting(store)
        assert (await store.load(TENANT, run.run_id)).run == run

    await asyncio.gather(*(life(number) for number in range(100)))


async def test_the_first_one_through_a_pooler_migrates(postgres: Postgres, pooler: Pooler) -> None:
    database = postgres.create_database()
    url, direct = pooler.url(database), postgres.url(database)
    stores = await asyncio.gather(*(PostgresStore.open(url, listen_url=direct) for _ in range(4)))
    run = await created(stores[0])
    assert await stores[1].get_run(TENANT, run.run_id) == run
    for store in stores:
        await store.close()
    postgres.drop_database(database)


async def test_without_a_direct_url_it_is_told_what_to_do(
    pooler: Pooler, postgres_url: str, postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Statements are prepared on one connection and executed on another, where they are not known."""
    monkeypatch.setattr(retrying, "PATIENCE_SECONDS", 0.3)
    store, other = [await PostgresStore.open(pooler.url(postgres_database)) for _ in range(2)]

    async def at_once() -> None:
        for _ in range(200):
            await asyncio.gather(created(store), created(other))

    with pytest.raises(StoreUnavailable, match="set store_listen_url"):
        await at_once()
    await store.close()
    await other.close()
