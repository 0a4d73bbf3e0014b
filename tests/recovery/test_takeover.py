"""Runs whose process died, fell silent or stops: another living process goes on with them."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from entracte import Client
from entracte.v1 import chunk_pb2
from entracte_server import Agent, App, ToolContext, tool
from entracte_server.testing import scripted, serve
from tests.cases.process import ServerProcess, forked
from tests.cases.support import (
    Caller,
    chunks_of,
    finish_of,
    gap_free,
    kind_of,
    read_refusal,
    reason_name,
    value_of,
)
from tests.invariants.world import JOURNAL, plan

WORLD = "tests.invariants.world:app"
RECOVERY = chunk_pb2.PENDING_CALL_KIND_RECOVERY

LONG = 60_000


class Place:
    """A database and a journal for several servers."""

    def __init__(self, folder: Path) -> None:
        self.store = folder / "db"
        self.journal = folder / "journal"

    def entries(self, event: str = "enter") -> list[dict[str, Any]]:
        if not self.journal.exists():
            return []
        lines = map(json.loads, self.journal.read_text().splitlines())
        return [entry for entry in lines if entry["event"] == event]

    async def entered(self, count: int) -> None:
        for _ in range(4000):
            if len(self.entries()) >= count:
                return
            await asyncio.sleep(0.005)
        raise AssertionError(f"entered {self.entries()}")

    @asynccontextmanager
    async def server(self, **environment: str) -> AsyncIterator[tuple[ServerProcess, Caller]]:
        together = {JOURNAL: str(self.journal), **environment}
        async with (
            forked(WORLD, self.store, environment=together) as server,
            Caller(server.address, agent="world") as caller,
        ):
            yield server, caller


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def call(name: str, id: str, **args: Any) -> dict[str, Any]:
    return {"tool": name, "id": id, "args": args}


async def first_chunk(caller: Caller, steps: str) -> chunk_pb2.Chunk:
    """The first chunk of a run that goes on without a reader."""
    chunk: chunk_pb2.Chunk = await anext(aiter(chunks_of(caller.open_stream(steps))))
    return chunk


async def until_text(rpc: Any, text: str) -> list[chunk_pb2.Chunk]:
    """The chunks of a stream up to this delta."""
    seen = []
    async for chunk in chunks_of(rpc):
        seen.append(chunk)
        if chunk.HasField("text_delta") and chunk.text_delta.text == text:
            return seen
    raise AssertionError([kind_of(chunk) for chunk in seen])


async def test_a_living_process_goes_on_with_the_runs_of_a_killed_one(place: Place) -> None:
    """The answer that was being received is asked for again as the next attempt; a finished tool is not
    executed again; what was shown before stays."""
    steps = plan([call("plain", "c1", v=1)], [{"text": "a"}, {"delay": 400}, {"text": "b"}])
    async with place.server() as (first, one), place.server() as (_, other):
        before = await until_text(rpc := one.open_stream(steps), "a")
        run_id = before[0].run_id
        watching = other.open_watch(run_id)
        await anext(aiter(chunks_of(watching)))
        await first.kill()
        rpc.cancel()
        chunks = [chunk async for chunk in chunks_of(other.open_watch(run_id))]
        assert gap_free(chunks)
        assert chunks[: len(before)] == before
        assert reason_name(finish_of(chunks).reason) == "stop"
        last = [chunk for chunk in chunks if chunk.step == 2]
        assert {chunk.attempt for chunk in last} == {1, 2}
        kept = [c.text_delta.text for c in last if c.attempt == 2 and c.HasField("text_delta")]
        assert kept == ["a", "b"]
        assert (await other.get_run(run_id)).result.text == "ab"
    assert [entry["call"] for entry in place.entries()] == ["c1"]


async def test_a_crash_in_a_tool_is_found_by_a_living_process(place: Place) -> None:
    """A tool that may be run again is, with the same key; of the other it is asked what happened."""
    steps = plan([call("slow", "c1", v=1, ms=LONG), call("slow_safe", "c2", v=2, ms=LONG)])
    async with place.server() as (_, other):
        async with place.server() as (first, one):
            run_id = (await first_chunk(one, steps)).run_id
            await place.entered(2)
            await first.kill()
        await place.entered(3)
        keys = [entry["key"] for entry in place.entries() if entry["call"] == "c2"]
        assert len(keys) == 2
        assert len(set(keys)) == 1
        (waiting,) = await other.pending(run_id)
        assert (waiting.tool_call_id, waiting.kind) == ("c1", RECOVERY)
        assert value_of(waiting.args) == {"v": 1, "ms": LONG}
        assert await other.state(run_id) == "RUNNING"
        await other.cancel(run_id)


async def test_a_silent_process_loses_its_runs_and_writes_nothing_more(place: Place) -> None:
    """SIGSTOP for longer than the lease: another process goes on. When the first wakes up it says that it
    lost its lease, writes and enters nothing, and serves on as another process."""
    steps = plan([{"text": "a"}, {"delay": 3_000}, {"text": "b"}, call("slow_safe", "c", v=1, ms=10)])
    quiet = {"ENTRACTE_LEASE": "2", "ENTRACTE_KEEP_ALIVE": "600"}
    async with place.server(**quiet) as (first, one), place.server(**quiet) as (_, other):
        stream = one.open_stream(steps)
        before = await until_text(stream, "a")
        run_id = before[0].run_id
        first.send(signal.SIGSTOP)
        chunks = await other.watch(run_id)
        first.send(signal.SIGCONT)
        await first.says("lease_lost")
        # The stream of the process that slept goes on, without a word from it, to the end.
        rest = [chunk async for chunk in chunks_of(stream)]
        assert rest == chunks[-len(rest) :]
        assert gap_free(chunks)
        assert chunks[: len(before)] == before
        assert reason_name(finish_of(chunks).reason) == "stop"
        assert [entry["call"] for entry in place.entries()] == ["c"]
        assert await other.watch(run_id) == chunks
        async with Client(first.address) as client:
            again = await client.agent("world").generate(plan([call("plain", "d", v=1)]))
        assert again.text == "the end"
        assert await one.watch(run_id) == chunks


async def test_a_process_that_stops_hands_its_runs_over(place: Place) -> None:
    """A client of the SDK sees one whole answer although the process it came from stopped in the middle of
    it; a tool that is executed keeps the run until it ends."""
    text = plan([{"text": "a"}, {"delay": 1_500}, {"text": "b"}], name="text")
    busy = plan([call("slow", "c1", v=1, ms=700)], name="busy")
    async with place.server() as (_, other):
        async with place.server(ENTRACTE_GRACE="10") as (first, one):
            before = await until_text(one.open_stream(text), "a")
            run_id = before[0].run_id
            other_id = (await first_chunk(one, busy)).run_id
            await place.entered(1)
            first.send(signal.SIGTERM)
            assert await first.ended() == 0
            assert "lease_lost" not in first.output
        chunks = await other.watch(run_id)
        assert gap_free(chunks)
        assert chunks[: len(before)] == before
        assert (await other.get_run(run_id)).result.text == "ab"
        assert reason_name(finish_of(await other.watch(other_id)).reason) == "stop"
        assert not await other.pending()
    assert [entry["call"] for entry in place.entries()] == ["c1"]
    assert [entry["call"] for entry in place.entries("leave")] == ["c1"]


async def test_the_sdk_follows_a_run_from_process_to_process(place: Place) -> None:
    """A stream of the SDK goes on after the process it was read from was killed, without a void word."""
    steps = plan([{"text": "a"}, {"delay": 500}, {"text": "b"}])
    async with place.server() as (first, one), place.server() as (_, other):
        run_id = (await until_text(one.open_stream(steps), "a"))[0].run_id
        async with Client(other.address) as client:
            texts = []
            async for chunk in client.runs.watch(run_id):
                if chunk.type == "text-delta":
                    texts.append((chunk.attempt, chunk.text))
                    if len(texts) == 1:
                        await first.kill()
        assert texts == [(1, "a"), (2, "a"), (2, "b")]


async def test_a_run_that_kills_its_processes_is_given_up(tmp_path: Path) -> None:
    """After three takeovers without progress the run fails, so that it does not kill every process in
    turn; its calls are settled."""
    place = Place(tmp_path)
    steps = plan([call("slow_safe", "c1", v=1, ms=LONG)])
    run_id = ""
    for round in range(4):
        async with place.server() as (server, caller):
            run_id = run_id or (await first_chunk(caller, steps)).run_id
            await place.entered(round + 1)
            await server.kill()
    async with place.server() as (_, caller):
        chunks = await caller.watch(run_id)
        assert reason_name(finish_of(chunks).reason) == "error"
        (error,) = [chunk.error.error for chunk in chunks if chunk.HasField("error")]
        assert error.kind == "recovery_exhausted"
        assert await caller.state(run_id) == "FAILED"
        assert (await caller.get_run(run_id)).result.error.kind == "recovery_exhausted"
    assert len(place.entries()) == 4


async def test_progress_counts_takeovers_anew(place: Place) -> None:
    """A run that comes further each time is not given up."""
    steps = plan(*([call("slow_safe", f"c{i}", v=i, ms=LONG if i % 2 else 1)] for i in range(6)))
    run_id = ""
    entered = 0
    for _ in range(2):
        async with place.server() as (server, caller):
            run_id = run_id or (await first_chunk(caller, steps)).run_id
            entered += 2 if not entered else 1
            await place.entered(entered)
            await server.kill()
    async with place.server() as (_, caller):
        await place.entered(entered + 1)
        assert await caller.state(run_id) == "RUNNING"
        await caller.cancel(run_id)


async def test_nobody_takes_over_what_he_cannot_execute(tmp_path: Path) -> None:
    """A run whose agent is not registered in any living process waits for one that has it; its readers
    are told, its decisions refused, and it can be cancelled."""
    store = tmp_path / "db"
    entered: asyncio.Queue[str] = asyncio.Queue()

    @tool
    async def hangs(ctx: ToolContext) -> str:
        """Hangs."""
        entered.put_nowait(ctx.run_id)
        await asyncio.sleep(60)
        return "done"

    model = scripted([[{"tool": "hangs", "id": "c"}], [{"text": "end"}]], position="transcript")
    other = Agent(id="other", model=model)
    with_agent = App(agents=[Agent(id="agent", model=model, tools=[hangs]), other])
    ids = ("one", "two")
    async with serve(with_agent, store=store) as server, Caller(server.address) as caller:
        for run_id in ids:
            await first_chunk_of(caller, run_id)
        assert {await entered.get(), await entered.get()} == set(ids)
    async with serve(App(agents=[other]), store=store) as server, Caller(server.address) as caller:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await caller.watch("one")
        assert read_refusal(raised.value).reason == "AGENT_UNAVAILABLE"
        assert await caller.state("one") == "RUNNING"
        await caller.cancel("one")
        assert await caller.state("one") == "CANCELLED"
        assert await caller.state("two") == "RUNNING"
        async with serve(with_agent, store=store) as second, Caller(second.address) as again:
            assert kind_of((await again.watch("two"))[-1]) == "finish"
            (waiting,) = await again.pending("two")
            assert waiting.kind == RECOVERY
            done = await again.submit(waiting, "it happened")
            assert done.result.text == "end"
    assert entered.empty()


async def first_chunk_of(caller: Caller, run_id: str) -> None:
    await anext(aiter(chunks_of(caller.open_stream("go", run_id=run_id))))


async def test_a_run_that_fails_in_a_way_that_nobody_foresaw_is_given_up_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for it for ever, and its model is not asked for ever."""
    monkeypatch.setattr("entracte_server.engine.keeper.ROUND", 0.02)
    model = scripted([[{"throw": "later", "retryAfter": 1e300}]])  # a time that no message can hold
    app = App(agents=[Agent(id="one", model=model)])
    async with serve(app, store=tmp_path / "db") as server, Client(server.address, timeout=30) as client:
        result = await client.agent("one").generate("go")
        assert (await client.runs.get(result.run_id)).state == "failed"
    assert (result.finish_reason, result.stop_cause) == ("error", "error")
    assert result.error is not None
    assert (result.error.kind, model.calls) == ("recovery_exhausted", 4)
