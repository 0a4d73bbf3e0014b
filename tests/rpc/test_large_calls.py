"""Calls with large arguments: whatever lists them stays within the size of a message, and whatever
cannot says so. One server serves the whole module; its run waits with 18 MiB of arguments.
"""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from entracte.v1 import agent_service_pb2 as agents
from entracte.v1 import inbox_service_pb2 as inbox
from entracte.v1 import options_pb2, run_pb2
from entracte.v1 import run_service_pb2 as runs
from entracte_server import Agent
from tests.rpc.support import MIB, Peer, js, once, ref, serving, stream

pytestmark = pytest.mark.asyncio(loop_scope="module")

CALLS = [f"c{i}" for i in range(6)]
ANYTHING = options_pb2.ClientTool(name="theirs", input_schema=js('{"type":"object"}'))


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def served() -> AsyncIterator[Peer]:
    """A peer of a server whose run `r` waits for the client's results of six large calls."""
    calls = [{"tool": "theirs", "id": call, "args": {"text": "x" * (3 * MIB)}} for call in CALLS]
    async with serving(Agent(id="hoards", model=once(*calls))) as (_, peer):
        watch = peer.open("WatchPendingCalls", inbox.WatchPendingCallsRequest(), timeout=None)
        assert (await watch.read()).snapshot_complete
        watches.append(watch)
        responses = await peer.call("Stream", stream("hoards", run_id="r", client_tools=[ANYTHING]))
        (finish,) = [c.finish for r in responses for c in r.chunks if c.HasField("finish")]
        assert [call.tool_call_id for call in finish.open_calls] == CALLS
        yield peer


watches: list[Any] = []
"""A watch of the inbox that began before there were calls."""


async def test_large_calls_that_open_together_are_told_in_messages_that_fit(served: Peer) -> None:
    """Six at once, to a watcher that was there before."""
    seen: list[str] = []
    while len(seen) < len(CALLS):
        response = await watches[0].read()
        assert response.ByteSize() <= 16 * MIB
        seen += [pending.tool_call_id for pending in response.opened]
    assert sorted(seen) == CALLS
    watches.pop().cancel()


async def listed(peer: Peer, method: str, request: Any, field: str) -> tuple[list[Any], int]:
    """All items of a list, and how many pages they came in."""
    items: list[Any] = []
    pages = 0
    while True:
        page = await peer.one(method, request)
        items += getattr(page, field)
        pages += 1
        request.page_token = page.next_page_token
        if not request.page_token:
            return items, pages


async def test_a_list_of_large_items_comes_in_pages_that_fit(served: Peer) -> None:
    """A page holds fewer items than asked for rather than more bytes than a message may have; with
    its token nothing is missing."""
    pending, pages = await listed(
        served, "ListPendingCalls", inbox.ListPendingCallsRequest(), "pending_calls"
    )
    assert [call.tool_call_id for call in pending] == CALLS
    assert 1 < pages <= len(CALLS)


async def test_the_snapshot_of_the_inbox_comes_in_messages_that_fit(served: Peer) -> None:
    """WatchPendingCalls shows all open calls, however large they are together."""
    call = served.open("WatchPendingCalls", inbox.WatchPendingCallsRequest())
    seen: list[str] = []
    async for response in call:
        assert response.ByteSize() <= 16 * MIB
        seen += [pending.tool_call_id for pending in response.opened]
        if response.snapshot_complete:
            break
    call.cancel()
    assert seen == CALLS


async def test_a_run_whose_calls_are_too_large_is_refused_by_name(served: Peer) -> None:
    """A run lists what waits. Where that is more than a message may hold, GetRun says so, with or
    without the result, and names the RPC that reads it."""
    for omit, rpc in ((False, "WatchRun"), (True, "ListPendingCalls")):
        refusal = await served.refuse("GetRun", runs.GetRunRequest(run_id="r", omit_result=omit))
        assert (refusal.code, refusal.reason) == ("OUT_OF_RANGE", "RESULT_TOO_LARGE")
        assert (refusal.metadata["run_id"], refusal.metadata["rpc"]) == ("r", rpc)
        assert int(refusal.metadata["bytes"]) > 15 * MIB


async def test_decisions_on_large_calls_come_in_pages_that_fit(served: Peer) -> None:
    """The audit keeps the arguments and the answers; its pages, and those of the decided calls, are
    cut by size as well."""
    pending, _ = await listed(served, "ListPendingCalls", inbox.ListPendingCallsRequest(), "pending_calls")
    for call in pending[:3]:
        await served.one(
            "SubmitToolResult",
            agents.SubmitToolResultRequest(
                call=ref(call.pending_call_id), result=js(json.dumps("y" * (3 * MIB)))
            ),
        )
    decisions, pages = await listed(served, "ListDecisions", inbox.ListDecisionsRequest(), "decisions")
    assert [decision.tool_call_id for decision in decisions] == CALLS[2::-1]
    assert pages == 3
    everything = inbox.ListPendingCallsRequest(include_decided=True)
    calls, _ = await listed(served, "ListPendingCalls", everything, "pending_calls")
    assert [(call.tool_call_id, call.HasField("decision")) for call in calls] == [
        (call, call in CALLS[:3]) for call in CALLS
    ]


async def test_a_run_with_large_calls_can_be_cancelled(served: Peer) -> None:
    """What cannot be shown in one message can be ended all the same."""
    cancelled = await served.one("CancelRun", runs.CancelRunRequest(run_id="r", wait=True))
    assert cancelled.run.state == run_pb2.RUN_STATE_CANCELLED
    (finish,) = [c for c in (await served.chunks("r"))[-1:] if c.HasField("finish")]
    assert finish.finish.open_calls == []
