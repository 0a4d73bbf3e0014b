"""What waits in memory is bounded: for tools that write, for readers that do not read, for a database
that does not answer.
"""

import asyncio
import threading
from pathlib import Path
from typing import Any

import psycopg
import pytest

from entracte_server import Agent, ToolContext, tool
from entracte_server.engine import outlet
from entracte_server.engine.hub import EVENT_BYTES, Event, Subscription
from entracte_server.engine.runlog import RunLog
from entracte_server.store.base import StoreUnavailable
from entracte_server.store.postgres import PostgresStore
from entracte_server.store.postgres import writer as postgres_writer
from entracte_server.store.sqlite import SQLiteStore
from entracte_server.store.sqlite import store as sqlite_store
from entracte_server.testing.store_conformance.builders import a_cancel, a_write, chunks, created
from tests.rpc.support import MIB, generate, once, serving

FLOOD = {"tool": "flood", "id": "c", "args": {}}
BLOCK = "x" * (256 * 1024)


@pytest.fixture
def unwritten(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How much of a run waited to be written, each time something was added."""
    seen: list[int] = []
    extend = RunLog.extend

    def watching(self: RunLog, payloads: Any) -> None:
        extend(self, payloads)
        seen.append(self.unwritten)

    monkeypatch.setattr(RunLog, "extend", watching)
    return seen


class TestTools:
    async def outputs(self, *tools: Any) -> list[Any]:
        """What the tools of one step wrote, and how they ended."""
        async with serving(Agent(id="floods", model=once(FLOOD), tools=tools), only=True) as (_, peer):
            response = await peer.one("Generate", generate("floods"))
            return await peer.chunks(response.run.run_id)

    async def test_a_synchronous_tool_waits_for_the_store(self, unwritten: list[int]) -> None:
        """It writes 64 MiB as fast as it can; all of it arrives, in order, and little of it waits."""

        @tool
        def flood(ctx: ToolContext[Any]) -> str:
            """Writes and writes."""
            assert threading.current_thread() is not threading.main_thread()
            for number in range(256):
                ctx.write({"n": number, "block": BLOCK})
            return "done"

        found = [chunk for chunk in await self.outputs(flood) if chunk.HasField("tool_output")]
        heads = [chunk.tool_output.output.text[:20] for chunk in found]
        assert [int(head.split(":")[1].split(",")[0]) for head in heads] == list(range(256))
        assert max(unwritten) < 2 * MIB

    async def test_an_asynchronous_tool_waits_when_it_drains(self, unwritten: list[int]) -> None:
        @tool
        async def flood(ctx: ToolContext[Any]) -> str:
            """Writes and writes, and waits."""
            for number in range(256):
                ctx.write(number, name="n", id="x" * 1000)
                ctx.write({"block": BLOCK})
                await ctx.drain()
            return "done"

        found = [chunk for chunk in await self.outputs(flood) if chunk.HasField("custom")]
        assert [chunk.custom.data.text for chunk in found] == [str(number) for number in range(256)]
        assert max(unwritten) < 2 * MIB

    async def test_one_that_does_not_is_stopped(self, unwritten: list[int]) -> None:
        """Its author reads what to do about it."""

        @tool
        async def flood(ctx: ToolContext[Any]) -> str:
            """Writes and writes."""
            for _ in range(256):
                ctx.write({"block": BLOCK})
            return "done"

        [error] = [chunk for chunk in await self.outputs(flood) if chunk.HasField("tool_error")]
        assert "await ctx.drain() now and then" in error.tool_error.message
        assert max(unwritten) < outlet.MAX_UNWRITTEN + 2 * MIB

    async def test_a_tool_that_was_left_behind_does_not_hang(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Nobody waits for it any more, and it is told so by not having to wait."""
        monkeypatch.setattr(outlet, "LOOK_SECONDS", 0.05)
        ended = threading.Event()
        go_on = threading.Event()

        @tool(timeout=0.2)
        def flood(ctx: ToolContext[Any]) -> str:
            """Goes on when its time is over."""
            go_on.wait(20)
            for _ in range(256):
                ctx.write({"block": BLOCK})
            ended.set()
            return "done"

        [error] = [chunk for chunk in await self.outputs(flood) if chunk.HasField("tool_error")]
        assert error.tool_error.code == "timeout"
        go_on.set()
        assert await asyncio.to_thread(ended.wait, 20)


async def test_a_readers_queue_counts_what_has_no_chunks() -> None:
    """A run that is decided again and again has events without chunks."""
    subscription = Subscription(("t", "r"), 100 * EVENT_BYTES, True)
    found = []
    for count in (100, 101):
        for _ in range(count):
            subscription.push(Event(None, "running"))
        found.append((subscription.lagging, len(subscription.take())))
    assert found == [(False, 100), (True, 0)]


class TestDatabase:
    async def test_nor_do_they_for_postgres(self, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """The same, while somebody has locked the table."""
        monkeypatch.setattr(postgres_writer, "MAX_WAITING", 10)
        store = await PostgresStore.open(postgres_url)
        run = await created(store)
        connection = await psycopg.AsyncConnection.connect(postgres_url)
        await connection.execute("LOCK TABLE entracte.runs IN ACCESS EXCLUSIVE MODE")
        gone = [asyncio.ensure_future(store.cancel(a_cancel(run)))]
        await asyncio.sleep(0.1)  # that one is taken up, and waits with the database
        gone += [asyncio.ensure_future(store.cancel(a_cancel(run))) for _ in range(10)]
        await asyncio.sleep(0.05)
        for task in gone:
            task.cancel()
        await asyncio.gather(*gone, return_exceptions=True)
        with pytest.raises(StoreUnavailable, match="too many changes wait"):
            await store.cancel(a_cancel(run))
        writing = store.submit(a_write(run, chunks=chunks(1, 1)))
        await connection.close()
        await writing
        assert (await store.cancel(a_cancel(run))).run.cancel_reason is not None
        await store.close()

    async def test_requests_do_not_queue_without_end(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """While the database is slow, callers that go away leave their requests behind: beyond a limit
        new ones are refused, and the owners of runs still write."""
        monkeypatch.setattr(sqlite_store, "MAX_WAITING", 10)
        store = await SQLiteStore.open(tmp_path / "store.db", read_connections=1)
        run = await created(store)
        release = threading.Event()
        databases = store._writer._database, store._readers[0]
        slow = [asyncio.ensure_future(each.call(lambda raw: release.wait(20))) for each in databases]
        await asyncio.sleep(0.05)
        gone: list[asyncio.Future[Any]] = [asyncio.ensure_future(store.cancel(a_cancel(run)))]
        await asyncio.sleep(0.05)  # that one is taken up, and waits with the database
        gone += [asyncio.ensure_future(store.cancel(a_cancel(run))) for _ in range(10)]
        gone += [asyncio.ensure_future(store.get_run(run.tenant, run.run_id)) for _ in range(9)]
        await asyncio.sleep(0.05)
        for task in gone:
            task.cancel()
        await asyncio.gather(*gone, return_exceptions=True)
        with pytest.raises(StoreUnavailable, match="too many changes wait"):
            await store.cancel(a_cancel(run))
        with pytest.raises(StoreUnavailable, match="too many reads wait"):
            await store.get_run(run.tenant, run.run_id)
        writing = store.submit(a_write(run, chunks=chunks(1, 1)))
        release.set()
        await asyncio.gather(*slow)
        await writing
        assert (await store.cancel(a_cancel(run))).run.cancel_reason is not None
        assert (await store.get_run(run.tenant, run.run_id)).last_sequence == 1
        await store.close()
