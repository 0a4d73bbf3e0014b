"""Runs that are bound to their readers: `cancel_on_disconnect`."""

import asyncio
from typing import Any

import pytest

from entracte.v1 import agent_service_pb2 as agents
from entracte.v1 import run_pb2
from entracte.v1 import run_service_pb2 as runs
from entracte_server import Agent, tool
from tests.rpc.support import (
    MIB,
    Peer,
    generate,
    kinds,
    once,
    peer_of,
    ref,
    refused,
    rest_of,
    saying,
    serving,
    stream,
    until,
)

pytestmark = pytest.mark.usefixtures("each_store")

GRACE = 0.3


async def state(peer: Peer, run_id: str) -> int:
    """A run's state."""
    return (await peer.run(run_id)).state


async def cancelled(peer: Peer, run_id: str) -> bool:
    """Whether a run was cancelled."""
    return await state(peer, run_id) == run_pb2.RUN_STATE_CANCELLED


async def stays(peer: Peer, run_id: str, expected: int, seconds: float = GRACE * 3) -> None:
    """A run's state does not change for a while."""
    for _ in range(10):
        assert await state(peer, run_id) == expected
        await asyncio.sleep(seconds / 10)


def bound(agent_id: str = "slow", **more: Any) -> Any:
    """A request for a run that is bound to its readers."""
    return stream(agent_id, cancel_on_disconnect=True, **more)


async def opened(peer: Peer, method: str, request: Any) -> Any:
    """A stream whose first message was read."""
    call = peer.open(method, request, timeout=None)
    await call.read()
    return call


async def test_a_run_ends_when_its_last_reader_has_left() -> None:
    """However the reader goes: by cancelling, by its deadline, or with its connection."""
    async with serving(disconnect_grace=GRACE) as (server, peer):
        (await opened(peer, "Stream", bound(run_id="cancels"))).cancel()
        late = peer.open("Stream", bound(run_id="deadline"), timeout=0.3)
        await late.read()
        async with peer_of(server.address) as other:
            await opened(other, "Stream", bound(run_id="drops"))
        waiting = peer.open(
            "Generate", generate("slow", cancel_on_disconnect=True, run_id="waits"), as_stream=True
        )
        await waiting.initial_metadata()
        waiting.cancel()
        for run_id in ("cancels", "deadline", "drops", "waits"):
            await until(lambda r=run_id: cancelled(peer, r), f"{run_id} is cancelled")  # type: ignore[misc]
            chunks = await peer.chunks(run_id)
            assert kinds(chunks)[-2:] == ["abort", "finish"]
            assert chunks[-2].abort.reason


async def test_without_the_option_nobody_need_follow() -> None:
    """A run outlives its client unless it was told not to."""
    async with serving(disconnect_grace=0.05) as (_, peer):
        (await opened(peer, "Stream", stream("slow", run_id="r"))).cancel()
        await stays(peer, "r", run_pb2.RUN_STATE_RUNNING)


async def test_another_reader_keeps_the_run_alive() -> None:
    """It ends only when the last one has left."""
    async with serving(disconnect_grace=GRACE) as (_, peer):
        first = await opened(peer, "Stream", bound(run_id="r"))
        second = await opened(peer, "WatchRun", runs.WatchRunRequest(run_id="r"))
        first.cancel()
        await stays(peer, "r", run_pb2.RUN_STATE_RUNNING)
        second.cancel()
        await until(lambda: cancelled(peer, "r"), "the run is cancelled when the last reader has left")


async def test_a_reader_that_comes_again_in_time_keeps_the_run_alive() -> None:
    """A re-attach within the grace time, again and again."""
    async with serving(disconnect_grace=1.0) as (_, peer):
        call = await opened(peer, "Stream", bound(run_id="r"))
        for _ in range(2):
            call.cancel()
            await asyncio.sleep(0.2)
            call = await opened(peer, "WatchRun", runs.WatchRunRequest(run_id="r"))
            await asyncio.sleep(1.1)
            assert await state(peer, "r") == run_pb2.RUN_STATE_RUNNING
        call.cancel()
        await until(lambda: cancelled(peer, "r"), "the run is cancelled in the end")


async def test_looking_is_not_following() -> None:
    """Reading a run or waiting for its cancellation keeps nothing alive."""
    async with serving(disconnect_grace=GRACE) as (_, peer):
        (await opened(peer, "Stream", bound(run_id="r"))).cancel()

        async def looked() -> bool:
            return (await peer.run("r")).state == run_pb2.RUN_STATE_CANCELLED

        await until(looked, "the run is cancelled although it is looked at")


async def test_a_parked_run_waits_for_its_decision_and_not_for_a_reader() -> None:
    """Nobody follows a run that waits for people for days: it is not cancelled."""
    async with serving(disconnect_grace=0.05) as (_, peer):
        run_id, (pending,) = await peer.parked("gate", cancel_on_disconnect=True)
        await stays(peer, run_id, run_pb2.RUN_STATE_SUSPENDED, 0.5)
        response = await peer.approved(pending)
        assert response.run.state == run_pb2.RUN_STATE_SUCCEEDED


async def test_the_option_is_stored_with_the_run() -> None:
    """After a suspension it holds as before: a run that was decided and that nobody follows then is
    cancelled; one that is followed in time is not."""
    gates = {"alone": asyncio.Event(), "followed": asyncio.Event()}

    @tool(requires_approval=True)
    async def work(name: str) -> str:
        """Works until it is let go."""
        await gates[name].wait()
        return "worked"

    agents_ = [
        Agent(
            id=name,
            model=once({"tool": "work", "id": "c", "args": {"name": name}}),
            tools=[work],
        )
        for name in gates
    ]
    async with serving(*agents_, disconnect_grace=GRACE) as (_, peer):
        watch: Any = None
        for name in gates:
            _, (pending,) = await peer.parked(name, run_id=name, cancel_on_disconnect=True)
            decided = await peer.one("Approve", agents.ApproveRequest(call=ref(pending.pending_call_id)))
            if name == "followed":
                request = runs.WatchRunRequest(run_id=name, after_sequence=decided.run.last_sequence)
                watch = peer.open("WatchRun", request, timeout=None)
        await until(lambda: cancelled(peer, "alone"), "the run that nobody follows is cancelled")
        assert await state(peer, "followed") == run_pb2.RUN_STATE_RUNNING
        gates["followed"].set()
        rest = [chunk for response in await rest_of(watch) for chunk in response.chunks]
        assert kinds(rest)[-1] == "finish"
        assert await state(peer, "followed") == run_pb2.RUN_STATE_SUCCEEDED


async def test_a_slow_reader_that_was_cut_off_did_not_leave() -> None:
    """READER_TOO_SLOW asks a reader to come again; the run is not cancelled meanwhile, however long
    that takes."""
    block = ("x" * 99_999 + " ") * 10
    gate = asyncio.Event()

    @tool
    async def wait_for_it() -> str:
        """Waits until it is let go."""
        await gate.wait()
        return "went on"

    agent = Agent(
        id="floods",
        model=once(*[{"text": block}] * 12, {"tool": "wait_for_it", "id": "c"}),
        tools=[wait_for_it],
    )
    options = [("grpc.http2.lookahead_bytes", 65536), ("grpc.http2.bdp_probe", 0)]
    async with (
        serving(agent, reader_timeout=0.3, disconnect_grace=0.1) as (server, peer),
        peer_of(server.address, options=options) as lazy,
    ):
        call = await opened(lazy, "Stream", bound("floods", run_id="r"))
        await asyncio.sleep(0.5)
        refusal = await refused(asyncio.wait_for(rest_of(call), 20))
        assert refusal.reason == "READER_TOO_SLOW"
        await stays(peer, "r", run_pb2.RUN_STATE_RUNNING)
        gate.set()
        chunks = await peer.chunks("r")
        assert sum(len(c.text_delta.text) for c in chunks if c.HasField("text_delta")) > 11 * MIB
        assert await state(peer, "r") == run_pb2.RUN_STATE_SUCCEEDED


async def test_a_run_that_ended_meanwhile_stays_as_it_ended() -> None:
    """The grace time of a run that ends within it has no effect."""
    agent = Agent(id="quick", model=saying({"delay": 100}, {"text": "done"}))
    async with serving(agent, disconnect_grace=GRACE) as (_, peer):
        (await opened(peer, "Stream", bound("quick", run_id="r"))).cancel()
        await asyncio.sleep(GRACE * 2)
        assert await state(peer, "r") == run_pb2.RUN_STATE_SUCCEEDED
