"""Readers that are slow or do not read at all: the run is not held up, the server's memory does not
grow, and nothing is lost for a reader that comes again.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from entracte.v1 import inbox_service_pb2 as inbox
from entracte.v1 import run_pb2
from entracte.v1 import run_service_pb2 as runs
from entracte_server import Agent, ToolContext, tool
from entracte_server.engine import hub
from tests.rpc.support import (
    MIB,
    Peer,
    kinds,
    once,
    peer_of,
    refused,
    rest_of,
    saying,
    serving,
    stream,
    until,
)

SMALL_WINDOW = [
    ("grpc.http2.lookahead_bytes", 65536),
    ("grpc.http2.bdp_probe", 0),
]
"""A client that takes little before its program reads: what it does not read stays with the server."""


@asynccontextmanager
async def lazy_peer(address: str) -> AsyncIterator[Peer]:
    """A peer that holds little of what it does not read."""
    async with peer_of(address, options=SMALL_WINDOW) as peer:
        yield peer


def following(first: list[Any], rest: list[Any]) -> list[Any]:
    """Chunks put together, which must have no gap."""
    chunks = first + rest
    assert [chunk.sequence for chunk in chunks] == list(range(1, len(chunks) + 1))
    return chunks


async def ended(peer: Peer, run_id: str) -> bool:
    """Whether a run has ended well."""
    return (await peer.run(run_id)).state == run_pb2.RUN_STATE_SUCCEEDED


async def test_a_reader_that_stops_is_cut_off_and_can_come_again() -> None:
    """A client reads one message and stops while 100 000 deltas come. The run ends all the same, other
    readers have all of it; the stream ends UNAVAILABLE, READER_TOO_SLOW with RetryInfo, and following
    on from the last chunk that was read leaves no gap."""
    words = "word " * 100_000
    agent = Agent(id="talks", model=saying(*[{"text": words[i : i + 5000]} for i in range(0, 500_000, 5000)]))
    async with serving(agent, reader_timeout=0.5) as (server, peer), lazy_peer(server.address) as lazy:
        call = lazy.open("Stream", stream("talks", run_id="r"), timeout=None)
        first = list((await call.read()).chunks)
        other = asyncio.create_task(peer.chunks("r"))
        await until(lambda: ended(peer, "r"), "the run ends while its reader does not read", 40)
        everything = await other
        assert sum(chunk.HasField("text_delta") for chunk in everything) == 100_000
        await asyncio.sleep(0.6)

        async def read_on() -> None:
            while (response := await call.read()) is not grpc.aio.EOF:
                first.extend(response.chunks)

        refusal = await refused(read_on())
        assert (refusal.code, refusal.reason) == ("UNAVAILABLE", "READER_TOO_SLOW")
        assert refusal.metadata == {"run_id": "r"}
        assert refusal.retry_after
        assert following(first, await peer.chunks("r", first[-1].sequence)) == everything


async def test_what_is_held_for_a_reader_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """However much comes while a reader does not read, the server holds a backlog of a fixed size for
    it; the rest is in the log."""
    held: list[int] = []
    push = hub.Subscription.push

    def counting(self: hub.Subscription, event: hub.Event) -> None:
        push(self, event)
        held.append(sum(len(e.row.data) for e in self._events if e.row is not None))

    monkeypatch.setattr(hub.Subscription, "push", counting)
    block = "x" * 99_999 + " "
    agent = Agent(id="floods", model=saying(*[{"text": block * 10}] * 40))
    async with serving(agent) as (server, peer), lazy_peer(server.address) as lazy:
        call = lazy.open("Stream", stream("floods", run_id="r"), timeout=None)
        await call.read()
        await until(lambda: ended(peer, "r"), "the run ends", 40)
        assert max(held) <= 3 * MIB
        assert sum(held) > 0
        call.cancel()


def _resident() -> int:
    """The memory of this process, in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
async def test_readers_that_do_not_read_take_no_memory() -> None:
    """Twenty of them, of a run of 40 MB: the process does not grow by twenty times that."""
    block = "x" * 99_999 + " "
    agent = Agent(id="floods", model=saying(*[{"text": block * 10}] * 40))
    async with serving(agent) as (server, peer), lazy_peer(server.address) as lazy:
        before = _resident()
        calls = [lazy.open("Stream", stream("floods", run_id="r"), timeout=None)]
        await calls[0].read()
        for _ in range(19):
            watch = lazy.open("WatchRun", runs.WatchRunRequest(run_id="r"), timeout=None)
            await watch.read()
            calls.append(watch)
        await until(lambda: ended(peer, "r"), "the run ends", 40)
        assert _resident() - before < 200 * MIB
        for call in calls:
            call.cancel()


async def test_a_reader_that_takes_its_time_gets_everything_and_the_end() -> None:
    """A reader that was busy while more came than is held for it, the end of the run included, is sent
    back to the log: it gets the rest and the end, and does not wait for what has happened already."""
    written = asyncio.Event()
    release = asyncio.Event()

    @tool
    async def finish_large(ctx: ToolContext[Any]) -> str:
        """Writes something small, waits, and returns more than is held for a reader."""
        ctx.write("small")
        await asyncio.sleep(0.05)
        written.set()
        await release.wait()
        return "z" * (2 * MIB)

    block = ("y" * 4999 + " ") * 1000
    agent = Agent(
        id="ends-large",
        model=saying({"text": block}, {"tool": "finish_large", "id": "c"}),
        tools=[finish_large],
        max_steps=1,
    )
    async with serving(agent, keep_alive=0.2) as (server, peer), lazy_peer(server.address) as lazy:
        call = lazy.open("Stream", stream("ends-large", run_id="r"), timeout=None)
        first = list((await call.read()).chunks)
        await written.wait()
        release.set()
        await until(lambda: ended(peer, "r"), "the run ends")
        rest = await asyncio.wait_for(rest_of(call), 20)
        chunks = following(first, [chunk for response in rest for chunk in response.chunks])
        assert kinds(chunks)[-1] == "finish"
        assert chunks == await peer.chunks("r")


@tool(requires_approval=True)
async def note(text: str) -> str:
    """Notes something."""
    return text


async def test_a_watcher_of_the_inbox_that_does_not_read_is_cut_off() -> None:
    """The same bound holds for the inbox: a watcher that does not read is told to come again."""
    calls = [{"tool": "note", "id": f"c{i}", "args": {"text": "x" * 500_000}} for i in range(8)]
    many = Agent(id="many", model=once(*calls), tools=[note])
    async with serving(many, reader_timeout=0.3) as (server, peer), lazy_peer(server.address) as lazy:
        watch = lazy.open("WatchPendingCalls", inbox.WatchPendingCallsRequest(), timeout=None)
        assert (await watch.read()).snapshot_complete
        for _ in range(4):
            await peer.call("Stream", stream("many"))
        await asyncio.sleep(0.6)
        refusal = await refused(asyncio.wait_for(rest_of(watch), 20))
        assert (refusal.code, refusal.reason) == ("UNAVAILABLE", "READER_TOO_SLOW")
        assert refusal.metadata == {}
        assert refusal.retry_after
