"""How many runs a server executes: more are refused, nothing that was begun is."""

import asyncio
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from entracte.v1 import agent_service_pb2 as agents
from entracte.v1 import run_pb2
from entracte.v1 import run_service_pb2 as runs
from entracte_server import Agent, tool
from entracte_server.app.settings import ApiKey
from entracte_server.testing import TestServer, scripted
from tests.rpc.support import Peer, generate, once, parts_of, peer_of, ref, saying, serving, stream, until


async def busy(peer: Peer, server: TestServer, count: int, agent_id: str = "slow") -> list[Any]:
    """Streams of runs that execute until they are cancelled."""
    calls = []
    for number in range(count):
        calls.append(peer.open("Stream", stream(agent_id, run_id=f"busy-{number}"), timeout=None))
        await calls[-1].read()
    assert server.engine.active_runs == count
    return calls


async def test_a_run_too_many_is_refused() -> None:
    """RESOURCE_EXHAUSTED, TOO_MANY_RUNS with the limit and RetryInfo; nothing of it is stored. A place
    that is given back can be taken."""
    async with serving(max_runs=2) as (server, peer):
        await busy(peer, server, 2)
        for method, request in (
            ("Generate", generate(run_id="more")),
            ("Stream", stream(run_id="more", request_id="q")),
        ):
            refusal = await peer.refuse(method, request)
            assert (refusal.code, refusal.reason) == ("RESOURCE_EXHAUSTED", "TOO_MANY_RUNS")
            assert refusal.metadata == {"limit": "2", "scope": "server"}
            assert refusal.retry_after == 1.0
        refusal = await peer.refuse("GetRun", runs.GetRunRequest(run_id="more"))
        assert refusal.reason == "RUN_NOT_FOUND"
        await peer.one("CancelRun", runs.CancelRunRequest(run_id="busy-0", wait=True))
        await until(lambda: server.engine.active_runs < 2, "the place is given back")
        response = await peer.one("Generate", generate(run_id="more", request_id="q2"))
        assert response.result.text == "good day"


async def test_of_many_at_once_as_many_start_as_may() -> None:
    """However they come."""
    async with serving(max_runs=5) as (server, peer):
        calls = [peer.open("Stream", stream("slow", run_id=f"r{n}"), timeout=None) for n in range(40)]

        async def begun(call: Any) -> str:
            try:
                await call.read()
            except grpc.aio.AioRpcError as error:
                return parts_of(error).reason
            return "started"

        outcomes = await asyncio.gather(*map(begun, calls))
        assert outcomes.count("started") == 5
        assert outcomes.count("TOO_MANY_RUNS") == 35
        assert server.engine.active_runs == 5


async def test_a_repeated_request_starts_nothing_and_is_not_refused() -> None:
    """It joins its run, the one that fills the server and the one that has ended."""
    async with serving(max_runs=1) as (server, peer):
        ended = await peer.one("Generate", generate(run_id="ended", request_id="first"))
        await peer.call("Stream", stream(run_id="streamed", request_id="second"))
        full = peer.open("Stream", stream("slow", run_id="full", request_id="third"), timeout=None)
        await full.read()
        again = await peer.one("Generate", generate(run_id="ended", request_id="first"))
        assert again.replayed
        assert again.result == ended.result
        responses = await peer.call("Stream", stream(run_id="streamed", request_id="second"))
        assert responses[0].replayed
        assert responses[-1].chunks[-1].HasField("finish")
        joined = peer.open("Stream", stream("slow", run_id="full", request_id="third"), timeout=None)
        assert (await joined.read()).replayed
        refusal = await peer.refuse(
            "Generate", generate(text="another body", run_id="ended", request_id="first")
        )
        assert refusal.reason == "REQUEST_ID_REUSED"
        assert server.engine.active_runs == 1


async def test_what_people_decide_is_never_refused() -> None:
    """Parked runs take no place; a decision is taken on a full server, and its run goes on."""
    async with serving(max_runs=1) as (server, peer):
        parked = [await peer.parked("gate") for _ in range(3)]
        parked.append(await peer.parked("suspends"))
        await until(lambda: server.engine.active_runs == 0, "the runs have parked")
        await busy(peer, server, 1)
        for _, (pending,) in parked[:3]:
            response = await peer.approved(pending)
            assert response.run.state == run_pb2.RUN_STATE_SUCCEEDED
        decline = agents.DeclineRequest(call=ref(parked[3][1][0].pending_call_id), wait=True)
        assert (await peer.one("Decline", decline)).run.state == run_pb2.RUN_STATE_SUCCEEDED
        assert (await peer.refuse("Generate", generate())).reason == "TOO_MANY_RUNS"


async def test_a_principal_has_a_limit_of_its_own() -> None:
    """Of the runs it started: who decides on them does not count."""
    keys = [
        ApiKey.model_validate({"key": f"key-of-{name}", "principal": name, "tenant": tenant})
        for name, tenant in (("alice", "one"), ("bob", "one"), ("carol", "two"))
    ]
    entered = asyncio.Event()

    @tool(requires_approval=True)
    async def work() -> None:
        """Works until it is cut off."""
        entered.set()
        await asyncio.Event().wait()

    works = Agent(id="works", model=once({"tool": "work", "id": "c"}), tools=[work])
    async with (
        serving(works, api_keys=keys, runs_per_principal=2) as (server, _),
        peer_of(server.address, "key-of-alice") as alice,
        peer_of(server.address, "key-of-bob") as bob,
        peer_of(server.address, "key-of-carol") as carol,
    ):
        _, (pending,) = await bob.parked("works")
        await until(lambda: server.engine.active_runs == 0, "the run has parked")
        await busy(alice, server, 2)
        refusal = await alice.refuse("Generate", generate())
        assert (refusal.code, refusal.reason) == ("RESOURCE_EXHAUSTED", "TOO_MANY_RUNS")
        assert refusal.metadata == {"limit": "2", "scope": "principal"}
        approve = agents.ApproveRequest(call=ref(pending.pending_call_id))
        await alice.one("Approve", approve)
        await entered.wait()
        await carol.one("Generate", generate())
        started = bob.open("Stream", stream("slow"), timeout=None)
        await started.read()
        assert (await bob.refuse("Generate", generate())).metadata["scope"] == "principal"


async def test_runs_that_are_taken_over_go_on(tmp_path: Path) -> None:
    """A server with little room does not leave them lying; it starts no new ones."""
    path = tmp_path / "store.db"
    started: list[str] = []

    def answer(request: Any) -> list[dict[str, Any]]:
        started.append("asked")
        return [{"delay": 3_600_000}]

    slow = Agent(id="works", model=scripted(answer))
    async with serving(slow, only=True, store=path) as (server, peer):
        await busy(peer, server, 3, "works")
    talk = Agent(id="talk", model=saying({"text": "hello"}))
    async with serving(slow, talk, only=True, store=path, max_runs=1) as (server, peer):
        await until(lambda: server.engine.active_runs == 3, "the runs are taken over")
        assert (await peer.refuse("Generate", generate())).reason == "TOO_MANY_RUNS"
        for number in range(3):
            await peer.one("CancelRun", runs.CancelRunRequest(run_id=f"busy-{number}", wait=True))
        await until(lambda: server.engine.active_runs == 0, "the places are given back")
        assert (await peer.one("Generate", generate())).result.text == "hello"
    assert len(started) == 6


@pytest.mark.parametrize("ends", ["ends", "fails", "parks", "is cancelled"])
async def test_every_end_gives_the_place_back(ends: str) -> None:
    """Otherwise a server would be full for good after a while."""
    broken = Agent(id="broken", model=saying({"error": "broken"}))
    async with serving(broken, max_runs=1) as (server, peer):
        for number in range(5):
            if ends == "is cancelled":
                call = peer.open("Stream", stream("slow", run_id=f"r{number}"), timeout=None)
                await call.read()
                await peer.one("CancelRun", runs.CancelRunRequest(run_id=f"r{number}", wait=True))
            else:
                agent_id = {"ends": "talk", "fails": "broken", "parks": "gate"}[ends]
                await peer.one("Generate", generate(agent_id))
            await until(lambda: server.engine.active_runs == 0, "the place is given back")
