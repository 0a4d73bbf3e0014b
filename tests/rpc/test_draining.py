"""A server that stops: it says so first, takes nothing new, tells its readers to come again, leaves what
is parked alone, and ends in good order.
"""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from entracte.v1 import agent_service_pb2 as agents_pb
from entracte.v1 import inbox_service_pb2 as inbox
from entracte.v1 import run_pb2
from entracte.v1 import run_service_pb2 as runs
from entracte_server import Agent, App, tool
from entracte_server.app.running import Running, running
from entracte_server.app.settings import Settings
from tests.rpc.support import (
    Peer,
    Refusal,
    agents,
    generate,
    js,
    kinds,
    once,
    peer_of,
    ref,
    refused,
    rest_of,
    serving,
    stream,
    until,
)

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class Stopping:
    """A server, its peer, and `begin` to have it stop."""

    def __init__(self, it: Running, peer: Peer, stop: asyncio.Event) -> None:
        self.engine = it.engine
        self.peer = peer
        self._stop = stop

    async def begin(self) -> None:
        """Returns when the server has begun to stop."""
        self._stop.set()
        await until(lambda: self.engine.draining, "the server begins to stop")


@asynccontextmanager
async def stoppable(folder: Path, *more: Agent, grace: float = 5.0) -> AsyncIterator[Stopping]:
    """A server that a test stops while it looks on. At the end of the context the server has stopped."""
    values = Settings(
        address="127.0.0.1:0", store=f"sqlite:///{folder}/entracte.db", grace=grace, keep_alive=60.0
    )
    stop = asyncio.Event()
    started: asyncio.Future[Running] = asyncio.get_running_loop().create_future()

    async def serve() -> None:
        async with running(App(agents=[*agents(), *more]), values) as it:
            started.set_result(it)
            await stop.wait()

    task = asyncio.create_task(serve())
    try:
        it = await started
        async with peer_of(f"127.0.0.1:{it.server.port}") as peer:
            yield Stopping(it, peer, stop)
            stop.set()
            await asyncio.wait_for(asyncio.shield(task), 20)
    finally:
        stop.set()
        await task


def told_to_come_again(refusal: Refusal) -> None:
    """UNAVAILABLE, SERVER_DRAINING with RetryInfo."""
    assert (refusal.code, refusal.reason) == ("UNAVAILABLE", "SERVER_DRAINING")
    assert refusal.retry_after


class Work:
    """A tool that works until it is let go."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.gate = asyncio.Event()

        @tool
        async def work() -> str:
            """Works."""
            self.entered.set()
            await self.gate.wait()
            return "worked"

        self.agent = Agent(id="works", model=once({"tool": "work", "id": "c"}), tools=[work])


async def test_health_says_so_before_anything_is_refused(tmp_path: Path) -> None:
    """A watch of the health service sees NOT_SERVING for the server and for each service at once, while
    running work still has its time."""
    work = Work()
    async with stoppable(tmp_path, work.agent) as server:
        stub: Any = health_pb2_grpc.HealthStub(server.peer.channel)
        names = ["", *(f"entracte.v1.{name}Service" for name in ("Agent", "Run", "Inbox"))]
        watches = [stub.Watch(health_pb2.HealthCheckRequest(service=name)) for name in names]
        assert [(await watch.read()).status for watch in watches] == [SERVING] * 4
        await server.peer.open("Stream", stream("works", run_id="r")).initial_metadata()
        await work.entered.wait()
        await server.begin()
        assert [(await watch.read()).status for watch in watches] == [NOT_SERVING] * 4
        assert server.engine.active_runs == 1
        work.gate.set()
        for watch in watches:
            watch.cancel()


async def test_nothing_new_is_taken_and_readers_are_told_to_come_again(tmp_path: Path) -> None:
    """New runs, decisions and cancellations are refused with SERVER_DRAINING; so end streams: of a run
    that works or thinks, of a parked run, of the inbox, and waits for a result. What is stored can be
    read. A tool that ends within its time is not executed again, and the next process goes on."""
    work = Work()
    async with stoppable(tmp_path, work.agent, grace=2.0) as server:
        peer = server.peer
        run_id, (pending,) = await peer.parked()
        quiet = peer.open("Stream", stream("slow"))
        await quiet.read()
        waits = asyncio.create_task(refused(peer.call("Generate", generate("slow"))))
        follows = peer.open("WatchRun", runs.WatchRunRequest(run_id=run_id, until_finished=True))
        await follows.read()
        watches = peer.open("WatchPendingCalls", inbox.WatchPendingCallsRequest())
        assert (await watches.read()).opened
        works = peer.open("Stream", stream("works", run_id="w"))
        await work.entered.wait()
        await server.begin()
        for call in (follows, watches, quiet, works):
            told_to_come_again(await refused(asyncio.wait_for(rest_of(call), 4)))
        told_to_come_again(await asyncio.wait_for(waits, 4))
        call_ref = ref(pending.pending_call_id)
        for method, request in {
            "Generate": generate(),
            "Stream": stream(),
            "Approve": agents_pb.ApproveRequest(call=call_ref),
            "Decline": agents_pb.DeclineRequest(call=call_ref),
            "Resume": agents_pb.ResumeRequest(call=call_ref, resume_data=js("1")),
            "SubmitToolResult": agents_pb.SubmitToolResultRequest(call=call_ref, result=js("1")),
            "CancelRun": runs.CancelRunRequest(run_id=run_id),
        }.items():
            refusal = await peer.refuse(method, request)
            if refusal.reason != "VERB_MISMATCH":
                told_to_come_again(refusal)
        assert (await peer.run(run_id)).state == run_pb2.RUN_STATE_SUSPENDED
        assert kinds(await peer.chunks(run_id))[-1] == "finish"
        work.entered.clear()
        work.gate.set()
    async with serving(work.agent, store=tmp_path / "entracte.db") as (_, peer):
        await until(lambda: _succeeded(peer, "w"), "the run that works ends")
        assert not work.entered.is_set()


async def test_a_run_that_does_not_end_in_time_is_left_to_the_next_process(tmp_path: Path) -> None:
    """Its readers are told to come again, not cut off without a word; the next process goes on with it
    and shows the same chunks, and more."""
    work = Work()
    async with stoppable(tmp_path, work.agent, grace=0.3) as server:
        call = server.peer.open("Stream", stream("works", run_id="r"))
        await work.entered.wait()
        await server.begin()
        before: list[Any] = []

        async def read() -> None:
            while (response := await call.read()) is not grpc.aio.EOF:
                before.extend(response.chunks)

        told_to_come_again(await refused(asyncio.wait_for(read(), 10)))
    work.gate.set()
    async with serving(work.agent, store=tmp_path / "entracte.db") as (_, peer):
        await until(lambda: _recovers(peer), "the call asks what happened")
        chunks = await peer.chunks("r")
        assert chunks[: len(before)] == before
        assert (await peer.run("r")).pending_calls[0].kind == 4


async def _succeeded(peer: Peer, run_id: str) -> bool:
    return (await peer.run(run_id)).state == run_pb2.RUN_STATE_SUCCEEDED


async def _recovers(peer: Peer) -> bool:
    return (await peer.run("r")).state == run_pb2.RUN_STATE_SUSPENDED


async def test_a_parked_run_is_answered_after_the_restart(tmp_path: Path) -> None:
    """Nothing of it was touched: not a chunk, not the ids it is decided by."""
    async with stoppable(tmp_path) as server:
        run_id, (pending,) = await server.peer.parked()
        before = await server.peer.chunks(run_id)
    async with serving(store=tmp_path / "entracte.db") as (_, peer):
        assert await peer.chunks(run_id) == before
        assert (await peer.approved(pending)).run.state == run_pb2.RUN_STATE_SUCCEEDED


async def test_a_run_that_nobody_follows_while_the_server_stops_is_not_cancelled(tmp_path: Path) -> None:
    """Readers that were told to come again did not leave, so `cancel_on_disconnect` has no effect."""
    async with stoppable(tmp_path, grace=0.3) as server:
        call = server.peer.open("Stream", stream("slow", run_id="r", cancel_on_disconnect=True))
        await call.read()
        await server.begin()
        told_to_come_again(await refused(asyncio.wait_for(rest_of(call), 10)))
    async with serving(store=tmp_path / "entracte.db") as (_, peer):
        assert (await peer.run("r")).state == run_pb2.RUN_STATE_RUNNING


# ---- the port ----


async def test_a_taken_port_is_an_error(tmp_path: Path) -> None:
    """A second server does not share the port silently; the database it opened is free again."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        values = Settings(address=address, store=f"sqlite:///{tmp_path}/entracte.db")
        with pytest.raises(RuntimeError):
            async with running(App(agents=agents()), values):
                pytest.fail("it serves")
    async with running(App(agents=agents()), values):
        second = Settings(address=address, store=f"sqlite:///{tmp_path}/other.db")
        with pytest.raises(RuntimeError):
            async with running(App(agents=agents()), second):
                pytest.fail("it serves")


# ---- a process ----

AGENTS = """
from entracte_server import Agent, App
from entracte_server.testing import scripted

app = App(agents=[Agent(id="slow", model=scripted(lambda request: [{"text": "a"}, {"delay": 3600000}]))])
"""


@asynccontextmanager
async def process(folder: Path, address: str = "127.0.0.1:0") -> AsyncIterator[asyncio.subprocess.Process]:
    """`entracte serve` as a person starts it."""
    (folder / "agents_of_a_test.py").write_text(AGENTS)
    started = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "entracte_server.app.cli", "serve", "agents_of_a_test:app"),
        *("--address", address, "--store", f"sqlite:///{folder}/entracte.db"),
        cwd=folder,
        env={**os.environ, "ENTRACTE_GRACE": "0.3"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        yield started
    finally:
        if started.returncode is None:
            started.kill()
        await started.wait()


async def output_of(started: asyncio.subprocess.Process, first: str = "") -> str:
    """Everything a process printed, once it has ended."""
    assert started.stdout is not None
    rest = await asyncio.wait_for(started.stdout.read(), 20)
    await started.wait()
    return first + rest.decode()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_process_ends_well_on_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    """With a stream open and a run in the middle of its answer: the reader is told to come again, the
    exit code is 0, and there is no traceback."""
    async with process(tmp_path) as started:
        assert started.stdout is not None
        first = ""
        while "Entracte serves on " not in first:
            line = await asyncio.wait_for(started.stdout.readline(), 30)
            assert line, first
            first += line.decode()
        address = first.split("Entracte serves on ")[1].split(",")[0]
        async with peer_of(address) as peer:
            call = peer.open("Stream", stream("slow"))
            assert (await call.read()).chunks
            started.send_signal(number)
            told_to_come_again(await refused(asyncio.wait_for(rest_of(call), 15)))
            printed = await output_of(started, first)
    assert started.returncode == 0, printed
    assert "Traceback" not in printed
    assert "Error" not in printed


async def test_a_process_whose_port_is_taken_says_so(tmp_path: Path) -> None:
    """In one line, with an exit code that scripts can see."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        async with process(tmp_path, address) as started:
            printed = await output_of(started)
    assert started.returncode == 1
    assert "Traceback" not in printed
    assert address in printed
    assert printed.strip().splitlines()[-1].startswith("error: ")
