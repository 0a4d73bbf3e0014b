"""Runs and the inbox: lists, reads, claims, and a watch that outlives its connection."""

import asyncio
from datetime import timedelta
from typing import Any

import grpc
import pytest

import entracte
from entracte import Client
from entracte.v1 import inbox_service_pb2 as inbox
from entracte.v1 import pending_call_pb2, run_pb2, run_service_pb2
from tests.client.fake import FakeServer, Refuse, js


def pages(server: FakeServer, method: str, response: type[Any], field: str, key: str) -> None:
    """Have a list of five items in pages of two."""

    async def answer(request: Any, _: Any) -> Any:
        start = int(request.page_token or 0)
        page = response(next_page_token=str(start + 2) if start < 4 else "")
        for number in range(start, min(start + 2, 5)):
            getattr(page, field).add(**{key: f"x{number}"})
        return page

    server.handlers[method] = answer


async def test_runs_are_listed_page_by_page(server: FakeServer, client: Client) -> None:
    pages(server, "ListRuns", run_service_pb2.ListRunsResponse, "runs", "run_id")
    filters: Any = {
        "states": ["running", "suspended"],
        "agent_id": "support",
        "thread_id": "t1",
        "include_children": True,
        "page_size": 2,
    }
    found = [run.run_id async for run in client.runs.list(**filters)]
    assert found == ["x0", "x1", "x2", "x3", "x4"]
    requests = server.asked("ListRuns")
    assert [request.page_token for request in requests] == ["", "2", "4"]
    for request in requests:
        request.page_token = ""
    assert requests[0] == requests[1] == requests[2]
    assert list(requests[0].states) == [run_pb2.RUN_STATE_RUNNING, run_pb2.RUN_STATE_SUSPENDED]
    assert (requests[0].agent_id, requests[0].thread_id, requests[0].page_size) == ("support", "t1", 2)
    page = await client.runs.list_page("2")
    assert [run.run_id for run in page.items] == ["x2", "x3"]
    assert page.next_page_token == "4"


async def test_a_list_that_is_left_asks_for_no_more(server: FakeServer, client: Client) -> None:
    pages(server, "ListRuns", run_service_pb2.ListRunsResponse, "runs", "run_id")
    async for _ in client.runs.list():
        break
    assert len(server.asked("ListRuns")) == 1


async def test_wrong_filters_are_refused_here(server: FakeServer, client: Client) -> None:
    with pytest.raises(ValueError, match="a run's state must be one of queued, running"):
        await client.runs.list_page(states=["asleep"])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="agent_id"):
        await client.inbox.list_page(agent="x")  # type: ignore[call-arg]
    assert server.calls == []


async def test_a_run_is_read(server: FakeServer, client: Client) -> None:
    async def answer(request: Any, _: Any) -> Any:
        response = run_service_pb2.GetRunResponse()
        run = response.run
        run.run_id, run.state, run.last_sequence = "r1", run_pb2.RUN_STATE_FAILED, 9
        run.create_time.FromJsonString("2026-01-02T03:04:05Z")
        run.error.kind = "stall"
        run.error.retry_after.FromMilliseconds(1500)
        run.request_context.CopyFrom(js('{"tenant":"x"}'))
        run.pending_calls.add(pending_call_id="p1")
        if not request.omit_result:
            response.result.text = "so far"
        return response

    server.handlers["GetRun"] = answer
    run = await client.runs.get("r1")
    assert (run.state, run.last_sequence, run.request_context) == ("failed", 9, {"tenant": "x"})
    assert run.create_time is not None
    assert run.create_time.isoformat() == "2026-01-02T03:04:05+00:00"
    assert run.finish_time is None
    assert run.error is not None
    assert run.error.retry_after == timedelta(seconds=1.5)
    assert run.result is not None
    assert run.result.text == "so far"
    assert (await client.runs.get("r1", omit_result=True)).result is None


async def test_runs_are_cancelled_and_deleted_once(server: FakeServer, client: Client) -> None:
    server.plans["CancelRun"] = [Refuse(take_first=True), None]
    run = await client.runs.cancel("r1", reason="enough", wait=True)
    assert run.run_id == "r1"
    first, second = server.asked("CancelRun")
    assert first == second
    assert (first.reason, first.wait, len(first.request_id)) == ("enough", True, 32)
    await client.runs.delete("r1", force=True, request_id="q1")
    (request,) = server.asked("DeleteRun")
    assert (request.force, request.request_id) == (True, "q1")


async def test_the_inbox_is_listed(server: FakeServer, client: Client) -> None:
    pages(server, "ListPendingCalls", inbox.ListPendingCallsResponse, "pending_calls", "pending_call_id")
    found = [
        call.pending_call_id
        async for call in client.inbox.list(
            run_id="r", agent_id="a", thread_id="t", resource_id="u", include_decided=True, page_size=2
        )
    ]
    assert found == ["x0", "x1", "x2", "x3", "x4"]
    request = server.asked("ListPendingCalls")[0]
    assert (request.run_id, request.agent_id, request.thread_id, request.resource_id) == ("r", "a", "t", "u")
    assert request.include_decided


async def test_decisions_are_listed(server: FakeServer, client: Client) -> None:
    pages(server, "ListDecisions", inbox.ListDecisionsResponse, "decisions", "decision_id")
    found = [decision.decision_id async for decision in client.inbox.decisions(principal="anna")]
    assert found == ["x0", "x1", "x2", "x3", "x4"]
    assert server.asked("ListDecisions")[0].principal == "anna"


def call(pending_call_id: str, claimed_by: str = "") -> pending_call_pb2.PendingCall:
    made = pending_call_pb2.PendingCall(
        pending_call_id=pending_call_id, state=pending_call_pb2.PENDING_CALL_STATE_OPEN, args=js('{"a":1}')
    )
    if claimed_by:
        made.claim.principal = claimed_by
    return made


async def test_calls_are_read_claimed_and_released(server: FakeServer, client: Client) -> None:
    async def read(*_: Any) -> Any:
        return inbox.GetPendingCallResponse(pending_call=call("p1"))

    async def claimed(*_: Any) -> Any:
        return inbox.ClaimPendingCallResponse(pending_call=call("p1", "anna"))

    server.handlers.update(GetPendingCall=read, ClaimPendingCall=claimed)
    shown = await client.inbox.get("p1")
    assert (shown.args, shown.state, shown.claim, shown.kind) == ({"a": 1}, "open", None, "unknown")
    held = await client.inbox.claim(shown, ttl=timedelta(minutes=1))
    assert held.claim is not None
    assert held.claim.principal == "anna"
    await client.inbox.release("p1")
    (request,) = server.asked("ClaimPendingCall")
    assert (request.pending_call_id, request.ttl.seconds, len(request.request_id)) == ("p1", 60, 32)
    (request,) = server.asked("ReleasePendingCall")
    assert request.pending_call_id == "p1"


async def test_a_watch_of_the_inbox_outlives_its_connection(server: FakeServer, client: Client) -> None:
    """After a break the snapshot comes again; only what changed meanwhile is told."""
    connections = 0

    async def watch(request: Any, context: Any) -> None:
        nonlocal connections
        connections += 1
        assert request.agent_id == "support"
        response = inbox.WatchPendingCallsResponse
        if connections == 1:
            await context.write(response(opened=[call("p1"), call("p2")]))
            await context.write(response(opened=[call("p3")], snapshot_complete=True))
            await context.write(response(closed_pending_call_ids=["p1", "never-shown"]))
            await Refuse().do(context)
        await context.write(response(opened=[call("p3", "anna"), call("p4")]))
        await context.write(response(snapshot_complete=True))
        await context.write(response(opened=[call("p5")]))
        await asyncio.sleep(60)

    server.handlers["WatchPendingCalls"] = watch
    told = []
    async for change in client.inbox.watch(agent_id="support"):
        opened = [item.pending_call_id for item in change.opened]
        told.append((opened, list(change.closed), change.snapshot_complete))
        if opened == ["p5"]:
            break
    assert told == [
        (["p1", "p2"], [], False),
        (["p3"], [], True),
        ([], ["p1"], False),
        (["p3", "p4"], [], False),
        ([], ["p2"], False),
        (["p5"], [], False),
    ]
    for _ in range(200):
        if server.cancelled:
            break
        await asyncio.sleep(0.01)
    assert server.cancelled == ["WatchPendingCalls"]


async def test_an_empty_inbox_says_so_once(server: FakeServer, client: Client) -> None:
    async def watch(_: Any, context: Any) -> None:
        await context.write(inbox.WatchPendingCallsResponse(snapshot_complete=True))
        await asyncio.sleep(60)

    server.handlers["WatchPendingCalls"] = watch
    async for change in client.inbox.watch():
        assert (change.opened, change.closed, change.snapshot_complete) == ((), (), True)
        break


async def test_a_refused_watch_is_an_error(server: FakeServer, client: Client) -> None:
    async def watch(_: Any, context: Any) -> None:
        await Refuse(grpc.StatusCode.PERMISSION_DENIED, "ROLE_REQUIRED", metadata={"role": "decide"}).do(
            context
        )

    server.handlers["WatchPendingCalls"] = watch
    with pytest.raises(entracte.RoleRequired):
        async for _ in client.inbox.watch():
            pass
