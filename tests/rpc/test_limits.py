"""Limits: RPCs that a principal may have open, and how long a unary RPC may take."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest

from entracte.v1 import agent_service_pb2 as agents
from entracte.v1 import inbox_service_pb2 as inbox
from entracte.v1 import run_pb2
from entracte.v1 import run_service_pb2 as runs
from entracte_server import Agent, tool
from entracte_server.testing import scripted
from tests.rpc.support import Peer, generate, once, parts_of, ref, refused, saying, serving, stream, until


async def opened(peer: Peer) -> Any:
    """A stream that stays open, and is."""
    call = peer.open("WatchPendingCalls", inbox.WatchPendingCallsRequest(), timeout=None)
    await call.read()
    return call


async def test_more_rpcs_than_a_principal_may_have_open_are_refused_at_once() -> None:
    """RESOURCE_EXHAUSTED, TOO_MANY_STREAMS with the limit and RetryInfo, for streams and for unary
    RPCs, on one connection; none of them waits silently. A place that is given back can be taken."""
    async with serving(streams_per_principal=3) as (_, peer):
        streams = [await opened(peer) for _ in range(3)]
        attempts: list[Any] = [
            peer.call("WatchPendingCalls", inbox.WatchPendingCallsRequest()),
            peer.call("Stream", stream()),
            peer.call("Generate", generate()),
            peer.call("ListRuns", runs.ListRunsRequest()),
        ]
        for refusal in await asyncio.gather(*(refused(attempt) for attempt in attempts)):
            assert (refusal.code, refusal.reason) == ("RESOURCE_EXHAUSTED", "TOO_MANY_STREAMS")
            assert refusal.metadata == {"limit": "3"}
            assert refusal.retry_after
        streams.pop().cancel()

        async def served() -> bool:
            try:
                await peer.call("ListRuns", runs.ListRunsRequest())
            except grpc.aio.AioRpcError as error:
                refusal = error
            else:
                return True
            return parts_of(refusal).reason != "TOO_MANY_STREAMS"

        await until(served, "a place that was given back can be taken")
        for call in streams:
            call.cancel()


async def test_many_streams_on_one_connection() -> None:
    """Three hundred at once, each of them served."""
    async with serving() as (_, peer):
        streams = await asyncio.gather(*(opened(peer) for _ in range(300)))
        await peer.parked()
        responses = await asyncio.gather(*(call.read() for call in streams))
        assert all(len(response.opened) == 1 for response in responses)
        for call in streams:
            call.cancel()


@pytest.mark.parametrize("ends", ["OK", "refused", "cancelled"])
async def test_every_end_of_an_rpc_gives_its_place_back(ends: str) -> None:
    """Otherwise a principal would be locked out after a while."""
    async with serving(streams_per_principal=2) as (_, peer):
        for _ in range(10):
            if ends == "OK":
                await peer.call("Stream", stream())
            elif ends == "refused":
                await peer.refuse("WatchRun", runs.WatchRunRequest(run_id="nobody"))
            else:
                call = await opened(peer)
                call.cancel()
                await asyncio.sleep(0.02)
        await peer.call("Stream", stream())


# ---- deadlines ----


async def deadline_exceeded(call: Any) -> None:
    """The status of a wait that the server cut off; it is a refusal like any other."""
    refusal = await refused(call)
    assert (refusal.code, refusal.reason) == ("DEADLINE_EXCEEDED", "WAIT_TOO_LONG")
    assert "request_id" in refusal.text


async def test_a_wait_is_bounded_by_the_server_and_can_be_taken_up_again() -> None:
    """A caller that sets no deadline is cut off after `waiting_deadline`. The run goes on, and the same
    request joins it: one run, one call of the model."""
    calls = []

    def answer(request: Any) -> list[dict[str, Any]]:
        calls.append(request)
        return [{"delay": 700}, {"text": "late"}]

    async with serving(
        Agent(id="late", model=scripted(answer)), waiting_deadline=0.2, quick_deadline=30.0
    ) as (_, peer):
        request = generate("late", request_id="q")
        joined = None
        cut = 0
        while joined is None:
            try:
                joined = await peer.one("Generate", request, timeout=None)
            except grpc.aio.AioRpcError as error:
                refusal = parts_of(error)
                cut += 1
            else:
                break
            assert (refusal.code, refusal.reason) == ("DEADLINE_EXCEEDED", "WAIT_TOO_LONG")
        assert cut > 0
        assert (joined.replayed, joined.result.text) == (True, "late")
        assert len(calls) == 1
        assert len((await peer.one("ListRuns", runs.ListRunsRequest())).runs) == 1


@asynccontextmanager
async def always(action: Callable[[], None]) -> AsyncIterator[None]:
    """Do something at the end, also when the test failed."""
    try:
        yield
    finally:
        action()


async def test_every_waiting_rpc_is_bounded() -> None:
    """A decision with `wait` and a cancellation with `wait`; without it neither waits. What was asked
    for happens all the same, and the same request gets the result."""
    entered = asyncio.Event()
    released = asyncio.Event()

    @tool(requires_approval=True)
    async def work() -> str:
        """Works until it is let go, whatever happens."""
        entered.set()
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                continue
        return "worked"

    agent = Agent(id="works", model=once({"tool": "work", "id": "c"}), tools=[work])
    async with serving(agent, waiting_deadline=0.2) as (_, peer), always(released.set):
        run_id, (pending,) = await peer.parked("works")
        approve = agents.ApproveRequest(call=ref(pending.pending_call_id), request_id="q", wait=True)
        await deadline_exceeded(peer.call("Approve", approve, timeout=None))
        assert entered.is_set()
        assert (await peer.run(run_id)).state == run_pb2.RUN_STATE_RUNNING
        cancel = runs.CancelRunRequest(run_id=run_id, request_id="q", wait=True)
        await deadline_exceeded(peer.call("CancelRun", cancel, timeout=None))
        released.set()
        await until(lambda: _ended(peer, run_id), "the run ends")
        assert (await peer.one("Approve", approve)).replayed
        cancelled = await peer.one("CancelRun", cancel)
        assert (cancelled.replayed, cancelled.run.state) == (True, run_pb2.RUN_STATE_CANCELLED)


async def _ended(peer: Peer, run_id: str) -> bool:
    return (await peer.run(run_id)).state == run_pb2.RUN_STATE_CANCELLED


async def test_a_quick_rpc_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """One whose database does not answer in time is cut off after `quick_deadline`."""
    async with serving(quick_deadline=0.2) as (server, peer):

        async def never(*_: Any, **__: Any) -> Any:
            await asyncio.Event().wait()

        with monkeypatch.context() as patched:
            patched.setattr(server.store, "load", never)
            await deadline_exceeded(peer.call("GetRun", runs.GetRunRequest(run_id="x"), timeout=None))
        assert (await peer.refuse("GetRun", runs.GetRunRequest(run_id="x"))).reason == "RUN_NOT_FOUND"


async def test_streams_are_not_bounded_by_a_deadline_of_the_server() -> None:
    """They have keep-alives instead: one lives on past both deadlines."""
    async with serving(waiting_deadline=0.1, quick_deadline=0.1, keep_alive=0.15) as (_, peer):
        call = await opened(peer)
        for _ in range(3):
            response = await call.read()
            assert not response.opened
        call.cancel()


async def test_the_deadline_of_a_caller_bounds_its_wait_and_not_the_run() -> None:
    """After a deadline of the caller the run goes on; the same request joins it."""
    late = Agent(id="late", model=saying({"delay": 500}, {"text": "late"}))
    async with serving(late) as (_, peer):
        request = generate("late", request_id="q", run_id="r")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await peer.call("Generate", request, timeout=0.15)
        assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        response = await peer.one("Generate", request)
        assert (response.replayed, response.result.text) == (True, "late")


async def test_a_decision_with_a_short_deadline_is_made_once() -> None:
    """The caller does not know whether it was made; the same request says so."""
    ran: list[float] = []

    @tool(requires_approval=True)
    async def slow() -> str:
        """Takes its time."""
        ran.append(time.monotonic())
        await asyncio.sleep(0.4)
        return "done"

    agent = Agent(id="slowly", model=once({"tool": "slow", "id": "c"}), tools=[slow])
    async with serving(agent) as (_, peer):
        _, (pending,) = await peer.parked("slowly")
        request = agents.ApproveRequest(call=ref(pending.pending_call_id), request_id="q", wait=True)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await peer.call("Approve", request, timeout=0.15)
        assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        response = await peer.one("Approve", request)
        assert (response.replayed, response.run.state) == (True, run_pb2.RUN_STATE_SUCCEEDED)
        assert len(ran) == 1
