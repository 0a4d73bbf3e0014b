"""Cancelling ends a run at any point, and leaves a history that is whole."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from entracte.v1 import chunk_pb2, pending_call_pb2, result_pb2
from entracte_server import ToolContext, tool
from entracte_server.testing import scripted
from tests.cases.backend import Stall, Status, asking
from tests.cases.backend import text as said
from tests.cases.support import (
    Caller,
    already_decided,
    announced,
    app_of,
    chunks_of,
    finish_of,
    gap_free,
    kind_of,
    kinds,
    payloads,
    reason_name,
    serving,
    text_of,
    until,
)

pytestmark = pytest.mark.usefixtures("each_store")

entered: list[str] = []


@pytest.fixture(autouse=True)
def _nobody_entered() -> None:
    entered.clear()


@tool(requires_approval=True)
async def gated(ctx: ToolContext) -> str:
    entered.append(ctx.tool_call_id)
    return "done"


@tool
async def plain(ctx: ToolContext) -> str:
    entered.append(ctx.tool_call_id)
    return "done"


@tool
async def endless(ctx: ToolContext) -> str:
    entered.append(ctx.tool_call_id)
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        entered.append("cancelled")
        raise
    return "never"


def open_and_closed(result: Any) -> tuple[list[str], list[str]]:
    """The ids of the calls and of the results in a history."""
    calls = [p.tool_call.tool_call_id for m in result.messages for p in m.parts if p.HasField("tool_call")]
    results = [
        p.tool_result.tool_call_id for m in result.messages for p in m.parts if p.HasField("tool_result")
    ]
    return calls, results


@pytest.mark.parametrize("restart", [False, True], ids=["same process", "after a restart"])
async def test_cancelling_a_parked_run(restart: bool, tmp_path: Path) -> None:
    """SR-16: every pending call is settled as cancelled, the run is cancelled, nothing is listed as
    waiting, and a late approval is told so. (New messages on its thread: with threads.)"""
    step = [{"tool": "plain", "id": "p"}, {"tool": "gated", "id": "a"}, {"tool": "gated", "id": "b"}]
    app = app_of(scripted([[{"text": "Wait. "}, *step]]), [gated, plain])
    store = tmp_path / "db"
    async with serving(app, store=store) as caller:
        first = await caller.stream()
        run_id = first[0].run_id
        if not restart:
            await check_cancel(caller, run_id, first)
    if restart:
        async with serving(app, store=store) as caller:
            await check_cancel(caller, run_id, first)
    assert entered == ["p"]


async def check_cancel(caller: Caller, run_id: str, first: list[Any]) -> None:
    cancelled = await caller.cancel(run_id, "not needed any more")
    assert cancelled.run.finish_reason == result_pb2.FINISH_REASON_ABORTED
    assert await caller.state(run_id) == "CANCELLED"
    assert not await caller.pending()
    for waiting in announced(first):
        with already_decided() as refusal:
            await caller.approve(waiting)
        assert refusal.metadata["verb"] == "cancel"
    decisions = await caller.decisions(run_id)
    assert [d.verb for d in decisions] == [chunk_pb2.DECISION_VERB_CANCEL] * 2
    chunks = await caller.watch(run_id)
    assert gap_free(chunks)
    assert kinds(chunks)[-2:] == ["abort", "finish"]
    assert payloads(chunks, "abort")[0].reason == "not needed any more"
    assert finish_of(chunks).stop_cause == result_pb2.STOP_CAUSE_CANCELLED
    result = (await caller.get_run(run_id)).result
    assert result.text == "Wait. "
    assert open_and_closed(result) == (["p", "a", "b"], ["p", "a", "b"])
    again = await caller.cancel(run_id, "another reason")
    assert again.run.state == cancelled.run.state
    assert len(await caller.watch(run_id)) == len(chunks)


async def test_cancelling_in_a_tool() -> None:
    """CT-03: cancelled while a tool runs and others wait: the tool is told, every call has a result, and
    what the tool says later is dropped."""
    step = [{"tool": "endless", "id": "e"}, {"tool": "gated", "id": "g"}, {"tool": "plain", "id": "p"}]
    async with serving(app_of(scripted([step]), [endless, gated, plain])) as caller:
        rpc = caller.open_stream()
        reader = aiter(chunks_of(rpc))
        chunks: list[Any] = []
        while not (chunks and kind_of(chunks[-1]) == "tool_result"):
            chunks.append(await anext(reader))
        await caller.cancel(chunks[0].run_id)
        chunks += [chunk async for chunk in reader]
        assert kinds(chunks)[-2:] == ["abort", "finish"]
        result = (await caller.get_run(chunks[0].run_id)).result
        calls, results = open_and_closed(result)
        assert sorted(calls) == sorted(results) == ["e", "g", "p"]
        assert sorted(entered) == ["cancelled", "e", "p"]
        assert [r.tool_call_id for r in payloads(chunks, "tool_result")] == ["p"]


async def test_cancelling_in_an_answer() -> None:
    """CT-04: what the caller had seen of an answer stays in the result, its step marked as aborted, and
    the provider's connection is closed. (Its message on the thread: with threads.)"""
    async with asking(app_of("mock/m"), [said("One ", "two ", "three"), Stall()]) as (caller, provider):
        rpc = caller.open_stream()
        reader = aiter(chunks_of(rpc))
        chunks: list[Any] = []
        while text_of(chunks) != "One two three":
            chunks.append(await anext(reader))
        await caller.cancel(chunks[0].run_id)
        chunks += [chunk async for chunk in reader]
        result = (await caller.get_run(chunks[0].run_id)).result
        assert result.text == text_of(chunks) == "One two three"
        assert reason_name(result.finish_reason) == "aborted"
        assert [reason_name(s.finish_reason) for s in result.steps] == ["aborted"]
        assert kinds(chunks)[-2:] == ["abort", "finish"]
        await until(lambda: provider.closed > 0)


async def test_a_call_in_an_answer_that_was_cancelled_is_not_executed() -> None:
    """CT-04: a call that was whole when its answer was cut off is not executed and not kept."""
    model = scripted([[{"text": "Hm. "}, {"tool": "plain", "id": "p"}, {"delay": 60_000}]])
    async with serving(app_of(model, [plain])) as caller:
        rpc = caller.open_stream()
        reader = aiter(chunks_of(rpc))
        async for chunk in reader:
            if kind_of(chunk) == "tool_call":
                break
        await caller.cancel(chunk.run_id)
        result = (await caller.get_run(chunk.run_id)).result
        assert open_and_closed(result) == ([], [])
        assert result.text == "Hm. "
        assert not entered


WAITS: dict[str, Any] = {
    "back-off": Status(503, {"error": "x"}, {"retry-after": "30"}),
    "no first byte": [Stall()],
}


@pytest.mark.parametrize("how", WAITS)
async def test_cancelling_ends_the_retries(how: str) -> None:
    """CT-08: cancelled in the pause before another attempt, or while the provider has not answered at
    all, the run ends at once and nothing is asked after that."""
    async with asking(app_of("mock/m"), WAITS[how], provider={"max_retries": 5}) as (caller, provider):
        run_id = (await anext(aiter(chunks_of(caller.open_stream())))).run_id
        await until(lambda: bool(provider.requests))
        await asyncio.sleep(0.05)
        async with asyncio.timeout(5):
            await caller.cancel(run_id)
        assert await caller.state(run_id) == "CANCELLED"
        await asyncio.sleep(0.1)
        assert len(provider.requests) == 1


async def test_cancelling_while_connecting() -> None:
    """CT-08: cancelled while the connection to the provider is being made, the run ends at once."""
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0, backlog=1)
    port = server.sockets[0].getsockname()[1]
    # Connections beyond the backlog hang: nobody accepts them.
    server.close()
    providers = {"mock": {"base_url": f"http://192.0.2.1:{port}/v1", "requires_key": False}}
    async with serving(app_of("mock/m"), providers=providers) as caller:
        run_id = (await anext(aiter(chunks_of(caller.open_stream())))).run_id
        async with asyncio.timeout(5):
            await caller.cancel(run_id)
        assert await caller.state(run_id) in ("CANCELLED", "FAILED")


async def test_cancelling_at_once_and_twice() -> None:
    """SR-16: cancellations that race with each other, with decisions and with the end of the run leave
    one end, one `abort`, and no call without a result."""
    step = [{"tool": "gated", "id": "a"}, {"tool": "gated", "id": "b"}]
    async with serving(app_of(scripted([step, [{"text": "end"}]], position="transcript"), [gated])) as caller:
        for _ in range(20):
            entered.clear()
            waiting = (await caller.generate()).result.pending_calls
            run_id = waiting[0].run_id
            outcomes = await asyncio.gather(
                *(caller.cancel(run_id, f"reason {i}") for i in range(3)),
                *(caller.approve(w, wait=False) for w in waiting),
                return_exceptions=True,
            )
            assert not [o for o in outcomes[:3] if isinstance(o, BaseException)]
            chunks = await caller.watch(run_id)
            assert gap_free(chunks)
            assert kinds(chunks).count("abort") <= 1
            assert kind_of(chunks[-1]) == "finish"
            assert await caller.state(run_id) in ("CANCELLED", "SUCCEEDED")
            assert not await caller.pending(run_id)
            calls, results = open_and_closed((await caller.get_run(run_id)).result)
            assert sorted(calls) == sorted(results) == ["a", "b"]
            assert len(entered) == len(set(entered))
            decided = await caller.decisions(run_id)
            assert len({d.pending_call_id for d in decided}) == len(decided) == 2


async def test_a_request_to_cancel_can_be_repeated() -> None:
    """SR-16: the same request to cancel joins the first; the call is settled once."""
    async with serving(app_of(scripted([[{"tool": "gated", "id": "a"}]]), [gated])) as caller:
        run_id = (await caller.generate()).run.run_id
        assert not (await caller.cancel(run_id, request_id="r1")).replayed
        assert (await caller.cancel(run_id, request_id="r1")).replayed
        settled = await caller.pending(run_id, include_decided=True)
        assert [c.state for c in settled] == [pending_call_pb2.PENDING_CALL_STATE_DECIDED]
