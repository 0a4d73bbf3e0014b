"""Several server processes on one database."""

import asyncio
import signal
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest

from entracte import Client
from tests.cases.process import ServerProcess, forked
from tests.cases.support import Caller, chunks_of, gap_free, read_refusal
from tests.cases.test_restart import Place, call
from tests.invariants.world import plan


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


async def several(
    stack: AsyncExitStack, place: Place, count: int, **environment: str
) -> list[tuple[ServerProcess, Caller]]:
    return [await stack.enter_async_context(place.server(forked, **environment)) for _ in range(count)]


async def test_one_approval_wins_over_two_processes(place: Place) -> None:
    """SR-02: twenty approvals at once through two processes: one wins, the tool is entered once."""
    async with AsyncExitStack() as stack:
        servers = await several(stack, place, 2)
        one = servers[0][1]
        waiting = (await one.generate(plan([call("gated", "c1", v=1)]))).result.pending_calls[0]
        outcomes = await asyncio.gather(
            *(servers[i % 2][1].approve(waiting, wait=False) for i in range(20)), return_exceptions=True
        )
        (won,) = [o for o in outcomes if not isinstance(o, BaseException)]
        for outcome in outcomes:
            if isinstance(outcome, grpc.aio.AioRpcError):
                refusal = read_refusal(outcome)
                assert refusal.reason == "PENDING_CALL_ALREADY_DECIDED"
                assert refusal.metadata["decision_id"] == won.decision.decision_id
            else:
                assert outcome is won
        for _, caller in servers:
            assert gap_free(await caller.watch(won.run.run_id))
    assert [entry["call"] for entry in place.entries()] == ["c1"]


async def test_many_runs_park_and_go_on_in_four_processes(place: Place) -> None:
    """PS-02: fifty runs suspend and resume at the same time in four processes on one SQLite file, each
    answered through other processes than its own: no error reaches a client."""
    steps = plan([call("gated", "g", v=1), call("asks", "s", v=2)])
    async with AsyncExitStack() as stack:
        callers = [caller for _, caller in await several(stack, place, 4)]

        async def one(number: int) -> str:
            started = (await callers[number % 4].generate(steps)).result
            waiting = {c.tool_call_id: c for c in started.pending_calls}
            await asyncio.gather(
                callers[(number + 1) % 4].approve(waiting["g"]),
                callers[(number + 2) % 4].resume(waiting["s"], number),
            )
            chunks = await callers[(number + 3) % 4].watch(started.run_id, until_finished=True)
            assert gap_free(chunks)
            return str((await callers[number % 4].get_run(started.run_id)).result.text)

        assert set(await asyncio.gather(*(one(number) for number in range(50)))) == {"the end"}
    entered = Counter((entry["run"], entry["call"], entry["resumed"]) for entry in place.entries())
    assert set(entered.values()) == {1}
    assert len(entered) == 150


async def test_deltas_come_in_order_through_another_process(place: Place) -> None:
    """ST-12: a thousand small deltas of a run, read through a process that does not execute it."""
    deltas: list[dict[str, Any]] = [{"text": f"{number} "} for number in range(1000)]
    slow = [part for delta in deltas for part in (delta, {"delay": 1})]
    async with AsyncExitStack() as stack:
        (_, one), (_, other) = await several(stack, place, 2)
        run_id = (await anext(aiter(chunks_of(one.open_stream(plan(slow)))))).run_id
        chunks = await other.watch(run_id)
        assert gap_free(chunks)
        texts = [chunk.text_delta.text for chunk in chunks if chunk.HasField("text_delta")]
        assert texts == [f"{number} " for number in range(1000)]
        assert chunks == await one.watch(run_id)


async def test_a_fleet_changes_under_its_clients(place: Place) -> None:
    """GR-05: connections end after a while, so that clients spread anew; a stream goes on over that, over a
    new process and over the end of an old one, whole and in order."""
    parts: list[dict[str, Any]] = []
    for number in range(40):
        parts += [{"text": f"{number} "}, {"delay": 100}]
    environment = {"ENTRACTE_CONNECTION_AGE": "0.5", "ENTRACTE_CONNECTION_AGE_GRACE": "0.2"}
    async with AsyncExitStack() as stack:
        (first, one), (second, _) = await several(stack, place, 2, **environment)
        run_id = (await anext(aiter(chunks_of(one.open_stream(plan(parts)))))).run_id
        async with Client(second.address) as client:
            kept: dict[int, str] = {}
            stopped = False
            async for chunk in client.runs.watch(run_id):
                assert chunk.sequence not in kept
                kept[chunk.sequence] = chunk.text if chunk.type == "text-delta" else ""
                if chunk.sequence > 15 and not stopped:
                    stopped = True
                    await several(stack, place, 1)
                    first.send(signal.SIGTERM)
            assert list(kept) == list(range(1, len(kept) + 1))
            result = (await client.runs.get(run_id)).result
            assert result is not None
            assert result.text == "".join(f"{number} " for number in range(40))
            assert await first.ended() == 0
