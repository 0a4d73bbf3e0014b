"""Decisions: which request each verb sends, and what follows it."""

from typing import Any

import grpc
import pytest

import entracte
from entracte import Chunk, Client, PendingCall, RawJson
from entracte.v1 import chunk_pb2, pending_call_pb2
from tests.client.fake import FakeServer, Log, Refuse, js


def parked_log() -> Log:
    log = Log().add("start", step=0).add("step_start").text("Let me see")
    log.add("tool_call", tool_call_id="c-p1", tool_name="refund", args=js('{"cents":5}'))
    log.wait_for("p1", "refund", "APPROVAL", '{"cents":5}').park(("p1", "refund", "APPROVAL"))
    log.resolved("p1", "APPROVE")
    log.add("tool_result", tool_call_id="c-p1", tool_name="refund", result=js("true"))
    log.add("step_finish").add("step_start", step=2).text("Done", step=2)
    return log.add("step_finish", step=2).finish()


async def parked(client: Client) -> entracte.ToolCallApprovalChunk:
    """Start the run; the chunk that waits."""
    waiting = [
        chunk
        async for chunk in client.agent("support").stream("Hi", run_id="r1")
        if chunk.type == "tool-call-approval"
    ]
    return waiting[0]


async def test_approve_sends_what_was_shown() -> None:
    async with FakeServer(parked_log()).running() as server, Client(server.address) as client:
        chunk = await parked(client)
        await client.agent("support").approve(
            chunk, edited_args={"cents": 3}, comment="less", on_behalf_of="bob"
        )
        (request,) = server.asked("Approve")
    assert request.call == pending_call_pb2.CallRef(pending_call_id="p1")
    assert request.args_digest == b"digest of p1"
    assert request.edited_args.text == '{"cents":3}'
    assert (request.comment, request.on_behalf_of, request.wait) == ("less", "bob", True)
    assert len(request.request_id) == 32


async def test_a_call_may_be_named_in_many_ways(server: FakeServer, client: Client) -> None:
    agent = client.agent("support")
    shown = pending_call_pb2.PendingCall(pending_call_id="p1", run_id="r1", args_digest=b"d")
    call = entracte._result_codec.pending_call_of(shown)
    assert isinstance(call, PendingCall)
    await agent.approve(call)
    await agent.approve("p1")
    await agent.approve(run_id="r1", tool_call_id="c1")
    await agent.approve(run_id="r1")
    await agent.approve(entracte.OpenCall("p1", "c1", "refund", "approval"))
    named = [(request.call, request.args_digest) for request in server.asked("Approve")]
    by_id = pending_call_pb2.CallRef(pending_call_id="p1")
    assert named == [
        (by_id, b"d"),
        (by_id, b""),
        (pending_call_pb2.CallRef(run_id="r1", tool_call_id="c1"), b""),
        (pending_call_pb2.CallRef(run_id="r1"), b""),
        (by_id, b""),
    ]
    with pytest.raises(TypeError, match="name the call"):
        await agent.approve()
    with pytest.raises(TypeError, match="name the call"):
        await agent.decline(tool_call_id="c1")


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("The main repo", '"The main repo"'),
        (["Add tests", "Update docs"], '["Add tests","Update docs"]'),
        (None, "null"),
        (False, "false"),
        (0, "0"),
        ("", '""'),
        ([], "[]"),
        (10**30, "1" + "0" * 30),
        (RawJson('{"n": 1.0}'), '{"n": 1.0}'),
        ("köln 🎉", '"köln 🎉"'),
    ],
)
async def test_any_json_value_is_an_answer(
    server: FakeServer, client: Client, answer: Any, text: str
) -> None:
    await client.agent("support").resume("p1", answer)
    (request,) = server.asked("Resume")
    assert request.HasField("resume_data")
    assert request.resume_data.text == text


async def test_what_cannot_be_sent_is_refused_here(server: FakeServer, client: Client) -> None:
    agent = client.agent("support")
    with pytest.raises(TypeError, match="an answer is needed"):
        await agent.resume("p1")
    with pytest.raises(ValueError, match="JSON compliant"):
        await agent.resume("p1", float("nan"))
    with pytest.raises(TypeError, match="not JSON serializable"):
        await agent.resume("p1", object())
    with pytest.raises(TypeError, match="a result or an error"):
        await agent.submit_tool_result("p1")
    with pytest.raises(TypeError, match="a result or an error"):
        await agent.submit_tool_result("p1", 1, error="no")
    assert server.calls == []


async def test_decline_tells_why(server: FakeServer, client: Client) -> None:
    await client.agent("support").decline("p1", reason="too much", reason_data={"limit": 5})
    await client.agent("support").decline("p1", reason_data=None)
    first, second = server.asked("Decline")
    assert (first.reason, first.reason_json.text) == ("too much", '{"limit":5}')
    assert second.reason_json.text == "null"


async def test_submit_hands_in_a_result_or_an_error(server: FakeServer, client: Client) -> None:
    agent = client.agent("support")
    await agent.submit_tool_result("p1", None)
    await agent.submit_tool_result("p1", error="it broke")
    first, second = server.asked("SubmitToolResult")
    assert (first.WhichOneof("outcome"), first.result.text) == ("result", "null")
    assert (second.WhichOneof("outcome"), second.error) == ("error", "it broke")


async def test_a_decision_is_followed_from_where_it_was_made() -> None:
    async with FakeServer(parked_log()).running() as server, Client(server.address) as client:
        chunk = await parked(client)
        stream = client.agent("support").approve_stream(chunk)
        assert stream.run_id == "r1"
        chunks = [chunk async for chunk in stream]
        assert server.asked("Approve")[0].wait is False
        position = chunks[0].sequence - 1
        assert [request.after_sequence for request in server.asked("WatchRun")] == [position]
    assert chunks[0].type == "tool-call-resolved"
    assert chunks[-1].type == "finish"
    assert stream.decision is not None
    assert stream.decision.decision_id == "d-p1"
    assert stream.text == "Done"


async def test_a_decision_whose_answer_was_lost_is_followed_from_where_it_was_made() -> None:
    async with FakeServer(parked_log()).running() as server, Client(server.address) as client:
        await parked(client)
        server.plans["Approve"] = [Refuse(take_first=True)]
        chunks: list[Chunk] = []
        stream = client.agent("support").approve_stream("p1")
        assert stream.run_id == ""
        async for chunk in stream:
            chunks.append(chunk)
            assert stream.run_id == "r1"
        first, second = server.asked("Approve")
        assert first == second
    assert [chunk.type for chunk in chunks][:2] == ["tool-call-resolved", "tool-result"]
    assert stream.text == "Done"


async def test_a_decision_stream_attaches_again() -> None:
    async with FakeServer(parked_log()).running() as server, Client(server.address) as client:
        chunk = await parked(client)
        server.plans["WatchRun"] = [Refuse(), Refuse(after=2), Refuse(after=1), None]
        chunks = [chunk async for chunk in client.agent("support").approve_stream(chunk)]
    first = chunks[0].sequence
    assert [chunk.sequence for chunk in chunks] == list(range(first, len(parked_log().chunks) + 1))


async def test_every_verb_has_a_stream(server: FakeServer, client: Client) -> None:
    agent = client.agent("support")
    streams = [
        agent.resume_stream("p1", 1),
        agent.approve_stream("p1"),
        agent.decline_stream("p1", reason="no"),
        agent.submit_tool_result_stream("p1", 2),
    ]
    for stream in streams:
        server.shown = 5
        await stream.result()
    asked = [name for name, _ in server.calls if name not in ("WatchRun", "GetRun")]
    assert asked == ["Resume", "Approve", "Decline", "SubmitToolResult"]


async def test_a_waited_decision_with_callbacks_is_followed() -> None:
    seen: list[Chunk] = []
    async with FakeServer(parked_log()).running() as server, Client(server.address) as client:
        await parked(client)
        await client.agent("support").approve("p1", on_chunk=seen.append)
        assert server.asked("Approve")[0].wait is False
    assert seen[-1].type == "finish"


async def test_a_refused_decision_is_a_typed_error(server: FakeServer, client: Client) -> None:
    metadata = {"pending_call_id": "p1", "verb": "approve", "principal": "anna"}
    server.plans["Decline"] = [
        Refuse(grpc.StatusCode.FAILED_PRECONDITION, "PENDING_CALL_ALREADY_DECIDED", "late", metadata)
    ]
    server.plans["Resume"] = [
        Refuse(
            grpc.StatusCode.INVALID_ARGUMENT,
            "RESUME_DATA_INVALID",
            "does not fit",
            violations={"resume_data/ok": "is not a boolean"},
        )
    ]
    agent = client.agent("support")
    with pytest.raises(entracte.PendingCallAlreadyDecided) as caught:
        await agent.decline("p1")
    assert caught.value.metadata == metadata
    with pytest.raises(entracte.ResumeDataInvalid) as invalid:
        await agent.resume_stream("p1", {"ok": 1}).result()
    assert invalid.value.violations == (entracte.FieldViolation("resume_data/ok", "is not a boolean"),)


def test_the_kinds_are_those_of_the_contract() -> None:
    assert set(chunk_pb2.PendingCallKind.keys()) == {
        "PENDING_CALL_KIND_UNSPECIFIED",
        "PENDING_CALL_KIND_APPROVAL",
        "PENDING_CALL_KIND_SUSPENSION",
        "PENDING_CALL_KIND_CLIENT_TOOL",
        "PENDING_CALL_KIND_RECOVERY",
    }
