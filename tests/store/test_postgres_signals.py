"""Signals over NOTIFY: what a broken connection costs, and what is not sent at all."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from entracte_server.store.interests import Interests
from entracte_server.store.postgres import PostgresStore, notify
from entracte_server.store.postgres.connection import Connection, Result, Statement
from entracte_server.store.postgres.notify import MAX_WAITING, Notifier, channel_of
from entracte_server.testing.store_conformance.builders import a_write, chunks, created, unique
from entracte_server.testing.store_conformance.signals import Ear, settled, told
from tests.postgres import Postgres

LISTENING = "query LIKE 'LISTEN%' OR query LIKE '%pg_notify%'"

OpenEar = Callable[[], Awaitable[Ear]]


@pytest.fixture
async def open_ear(postgres_url: str) -> AsyncIterator[OpenEar]:
    stores: list[PostgresStore] = []

    async def open_one() -> Ear:
        stores.append(await PostgresStore.open(postgres_url))
        return await Ear(stores[-1]).enter()

    yield open_one
    for store in stores:
        await store.close()


async def test_a_broken_connection(open_ear: OpenEar, postgres: Postgres, postgres_database: str) -> None:
    """Another one is made, and all is announced anew."""
    one, two = await open_ear(), await open_ear()
    two.store.signals.watch("topic")
    await told(one, two, "topic")
    for _ in range(3):
        assert postgres.terminate(postgres_database, LISTENING) == 2
        two.heard.clear()
        await told(one, two, "topic")
        one.store.signals.watch("back")
        one.heard.clear()
        await told(two, one, "back")
        one.store.signals.unwatch("back")


async def test_a_restarted_server(open_ear: OpenEar, postgres: Postgres) -> None:
    one, two = await open_ear(), await open_ear()
    two.store.signals.watch("topic")
    await told(one, two, "topic")
    await asyncio.to_thread(postgres.restart)
    two.heard.clear()
    await told(one, two, "topic")


async def test_nothing_is_sent_to_who_does_not_watch(
    open_ear: OpenEar, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, three = await open_ear(), await open_ear(), await open_ear()
    two.store.signals.watch("topic")
    await told(one, two, "topic")
    await settled(one, three)
    sent: list[str] = []
    run = Connection.run

    def seen(self: Connection, statements: list[Statement], seconds: float) -> "asyncio.Future[list[Result]]":
        sent.extend(str(values[0]) for sql, values in statements if "pg_notify" in sql)
        return run(self, statements, seconds)

    monkeypatch.setattr(Connection, "run", seen)
    for _ in range(5):
        one.store.signals.tell("nobody watches this")
    one.store.signals.tell("topic")
    one.store.signals.tell("topic")
    run_row = await created(one.store)
    await one.store.write(a_write(run_row, chunks=chunks(1, 1)))
    await settled(one, two)
    assert set(sent) == {channel_of(one.process_id), channel_of(two.process_id)}
    assert sent.count(channel_of(two.process_id)) == 2  # both of the topic, and what `settled` sends


async def test_all_of_one_iteration_makes_one_trip(
    open_ear: OpenEar, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = await open_ear(), await open_ear()
    await settled(one, two)
    trips: list[int] = []
    run = Connection.run

    def seen(self: Connection, statements: list[Statement], seconds: float) -> "asyncio.Future[list[Result]]":
        trips.append(sum("pg_notify" in sql for sql, _ in statements))
        return run(self, statements, seconds)

    monkeypatch.setattr(Connection, "run", seen)
    for number in range(40):
        one.store.signals.send(f"other-{number}", "topic")
    one.store.signals.send(two.process_id, "last")
    await two.hears("last")
    assert max(trips) == 41
    assert len(trips) <= 2


async def test_channels_of_any_process() -> None:
    names = {channel_of(process) for process in ("a", "b", "\ud800", "x" * 1000, "'\"\0")}
    assert len(names) == 5
    assert all(len(name) <= 63 and name.replace("_", "").isalnum() for name in names)


async def test_what_waits_to_be_sent_is_bounded(postgres_url: str) -> None:
    store = await PostgresStore.open(postgres_url)
    await store.enter(unique("process"), 600)
    notifier = store._notifier
    assert all(notifier.broadcast(f"{number}") for number in range(MAX_WAITING - 10))
    while notifier.send("somebody", "x"):
        assert len(notifier._waiting) <= MAX_WAITING
    await store.close()


async def test_without_a_connection_nothing_waits() -> None:
    async def nobody() -> Connection:
        raise AssertionError("not asked to connect")

    notifier = Notifier(nobody, Interests())
    assert notifier.broadcast("text")
    assert not notifier._waiting
    await notifier.close()


async def test_notifications_that_do_not_arrive_are_told_of(
    open_ear: OpenEar, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As behind a pooler."""
    monkeypatch.setattr(notify, "PROBE_SECONDS", 0.05)
    monkeypatch.setattr(notify, "_NOTIFY", "SELECT $1::text || $2::text")
    await open_ear()
    async with asyncio.timeout(20):
        while "set store_listen_url" not in caplog.text:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
