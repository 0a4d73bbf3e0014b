"""Two processes on one store: what one of them is told reaches the run that the other executes.

Each test is played twice: with signals only (no rounds), and with rounds only (every signal is lost).
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from entracte.v1 import inbox_service_pb2 as inbox_pb
from entracte.v1 import run_service_pb2 as runs_pb
from entracte_server import Agent, App, ToolContext, tool
from entracte_server.engine import keeper
from entracte_server.store.interests import Interests
from entracte_server.testing import TestServer, scripted, serve
from tests.cases.support import Caller, chunks_of, finish_of, kind_of, read_refusal, reason_name
from tests.rpc.support import until


@pytest.fixture(params=["signals", "rounds"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How processes hear of each other."""
    if request.param == "signals":
        monkeypatch.setattr(keeper, "ROUND", 3600.0)
    else:
        monkeypatch.setattr(Interests, "_enqueue", lambda *_: None)
    return str(request.param)


class Work:
    """Tools that tell when they are entered and wait to be let go."""

    def __init__(self) -> None:
        self.entered: asyncio.Queue[str] = asyncio.Queue()
        self.gate = asyncio.Event()

        @tool(requires_approval=True)
        async def gated(ctx: ToolContext) -> str:
            """Needs approval."""
            self.entered.put_nowait(ctx.tool_call_id)
            return "gated"

        @tool
        async def works(ctx: ToolContext) -> str:
            """Works."""
            self.entered.put_nowait(ctx.tool_call_id)
            await self.gate.wait()
            return "worked"

        steps: Any = [
            [{"tool": "works", "id": "w"}, {"tool": "gated", "id": "g"}],
            [{"text": "the "}, {"text": "end"}],
        ]
        parked: Any = [[{"tool": "gated", "id": "p"}], [{"text": "the end"}]]
        self.app = App(
            agents=[
                Agent(id="agent", model=scripted(steps, position="transcript"), tools=[gated, works]),
                Agent(id="parks", model=scripted(parked, position="transcript"), tools=[gated]),
            ]
        )


@asynccontextmanager
async def two(
    folder: Path, app: App, **settings: Any
) -> AsyncIterator[tuple[TestServer, Caller, TestServer, Caller]]:
    """Two servers on one store, each with a caller."""
    settings.setdefault("log_level", "warning")
    store = folder / "db"
    async with (
        serve(app, store=store, **settings) as one,
        serve(app, store=store, **settings) as other,
        Caller(one.address) as first,
        Caller(other.address) as second,
    ):
        yield one, first, other, second


async def begun(caller: Caller, work: Work) -> str:
    """A run that executes a tool while another call of it waits."""
    run_id: str = (await anext(aiter(chunks_of(caller.open_stream())))).run_id
    assert await work.entered.get() == "w"
    return run_id


async def waiting_call(caller: Caller, run_id: str) -> Any:
    """The run's pending call, as soon as it is announced."""
    async for chunk in chunks_of(caller.open_watch(run_id)):
        if kind_of(chunk) == "tool_call_approval":
            return chunk.tool_call_approval.pending_call_id
    raise AssertionError("no call waits")


async def test_a_decision_reaches_the_process_that_executes_the_run(tmp_path: Path) -> None:
    """The approved tool is entered while its sibling still works, in the other process, once."""
    work = Work()
    async with two(tmp_path, work.app) as (one, first, other, second):
        run_id = await begun(first, work)
        pending = await waiting_call(second, run_id)
        await second.approve(pending, wait=False)
        assert await asyncio.wait_for(work.entered.get(), 15) == "g"
        assert (one.engine.active_runs, other.engine.active_runs) == (1, 0)
        work.gate.set()
        assert finish_of(await second.watch(run_id)).HasField("usage")
        assert await second.state(run_id) == "SUCCEEDED"
    assert work.entered.empty()


async def test_a_decision_is_waited_for_in_the_other_process(tmp_path: Path) -> None:
    """`wait` gives the result of a run that is executed elsewhere."""
    work = Work()
    async with two(tmp_path, work.app) as (_, first, __, second):
        run_id = await begun(first, work)
        deciding = asyncio.create_task(second.approve(await waiting_call(second, run_id), wait=True))
        assert await asyncio.wait_for(work.entered.get(), 15) == "g"
        work.gate.set()
        assert (await deciding).result.text == "the end"


async def test_a_cancellation_reaches_the_process_that_executes_the_run(tmp_path: Path) -> None:
    """And the one who asked for it sees the end."""
    work = Work()
    async with two(tmp_path, work.app) as (one, first, _, second):
        run_id = await begun(first, work)
        await second.cancel(run_id, wait=True)
        assert await second.state(run_id) == "CANCELLED"
        assert one.engine.active_runs == 0


async def test_a_reader_in_the_other_process_sees_every_chunk(tmp_path: Path) -> None:
    """As they come, over a parking, from a run that changes its process meanwhile."""
    work = Work()
    async with two(tmp_path, work.app) as (one, first, other, second):
        first.agent = "parks"
        started = await first.generate()
        run_id = started.run.run_id
        watches = [
            asyncio.create_task(caller.watch(run_id, until_finished=True)) for caller in (first, second)
        ]
        await until_listening(one, other)
        await second.approve(started.result.pending_calls[0], wait=False)
        seen = [await asyncio.wait_for(watch, 15) for watch in watches]
        assert seen[0] == seen[1] == await first.watch(run_id)
        assert reason_name(finish_of(seen[0]).reason) == "stop"


async def until_listening(*servers: TestServer) -> None:
    """Until readers in these servers wait for what other processes do, and those have heard so."""
    await until(lambda: all(server.engine.hub.remote for server in servers), "both listen")
    await asyncio.sleep(0.05)


async def test_a_reader_in_the_other_process_hears_of_a_deletion(tmp_path: Path) -> None:
    """It ends as if the run had never been."""
    work = Work()
    async with two(tmp_path, work.app) as (_, first, other, second):
        first.agent = "parks"
        run_id = (await first.generate()).run.run_id
        watching = asyncio.create_task(second.watch(run_id, until_finished=True))
        await until_listening(other)
        await first.runs.DeleteRun(runs_pb.DeleteRunRequest(run_id=run_id, force=True), timeout=20)
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await asyncio.wait_for(watching, 15)
        assert read_refusal(raised.value).reason == "RUN_NOT_FOUND"


async def test_the_inbox_of_the_other_process_changes(tmp_path: Path, way: str) -> None:
    """A watcher sees calls that are opened and decided elsewhere; without signals after the longest
    silence of the stream."""
    work = Work()
    async with two(tmp_path, work.app, keep_alive=1.0) as (_, first, __, second):
        first.agent = "parks"
        watch = second.inbox.WatchPendingCalls(inbox_pb.WatchPendingCallsRequest(), timeout=20)
        while not (await watch.read()).snapshot_complete:
            pass
        await asyncio.sleep(0.05)
        pending = (await first.generate()).result.pending_calls[0].pending_call_id
        while not (changed := await watch.read()).opened:
            pass
        assert [item.pending_call_id for item in changed.opened] == [pending]
        await first.approve(pending)
        while not (changed := await watch.read()).closed_pending_call_ids:
            pass
        assert list(changed.closed_pending_call_ids) == [pending]
        watch.cancel()
