"""Threads: what is sent, what is read, and with the server it is made for."""

import json
from typing import Any

import grpc
import pytest

import entracte
from entracte import Client, Memory, Thread, to_dict
from entracte.v1 import json_pb2, message_pb2, run_pb2, thread_pb2
from entracte.v1 import thread_service_pb2 as pb
from entracte_server import Agent, App, tool
from entracte_server.testing import scripted, serve
from tests.client.fake import FakeServer, Refuse, js
from tests.client.test_runs_and_inbox import pages


def stored() -> thread_pb2.Thread:
    """A thread with all there may be of it."""
    thread = thread_pb2.Thread(
        thread_id="t1",
        resource_id="ada",
        title="Hats",
        metadata=js('{"n":1}'),
        message_count=3,
        active_run_id="r1",
        active_run_state=run_pb2.RUN_STATE_SUSPENDED,
        queued_runs=2,
    )
    thread.create_time.FromJsonString("2026-01-02T03:04:05Z")
    return thread


async def test_threads_are_made_changed_and_deleted_once(server: FakeServer, client: Client) -> None:
    async def made(request: Any, _: Any) -> Any:
        return pb.CreateThreadResponse(thread=stored())

    server.handlers["CreateThread"] = made
    server.plans["CreateThread"] = [Refuse(take_first=True), None]
    thread = await client.threads.create("ada", thread_id="t1", title="Hats", metadata={"n": 1})
    assert (thread.thread_id, thread.resource_id, thread.title) == ("t1", "ada", "Hats")
    assert (thread.metadata, thread.message_count, thread.queued_runs) == ({"n": 1}, 3, 2)
    assert (thread.active_run_id, thread.active_run_state) == ("r1", "suspended")
    assert thread.create_time is not None
    assert thread.update_time is None
    first, second = server.asked("CreateThread")
    assert first == second
    assert (first.thread_id, first.resource_id, first.title) == ("t1", "ada", "Hats")
    assert (first.metadata.text, len(first.request_id)) == ('{"n":1}', 32)

    assert (await client.threads.get("t1")).active_run_state is None
    await client.threads.update("t1", title="")
    await client.threads.update("t1", metadata={}, request_id="q1")
    await client.threads.delete("t1", force=True, request_id="q2")
    title, metadata = server.asked("UpdateThread")
    assert (title.HasField("title"), title.title, title.HasField("metadata")) == (True, "", False)
    assert (metadata.HasField("title"), metadata.metadata.text, metadata.request_id) == (False, "{}", "q1")
    (deleted,) = server.asked("DeleteThread")
    assert (deleted.thread_id, deleted.force, deleted.request_id) == ("t1", True, "q2")


async def test_threads_and_messages_are_listed_page_by_page(server: FakeServer, client: Client) -> None:
    pages(server, "ListThreads", pb.ListThreadsResponse, "threads", "thread_id")
    pages(server, "ListThreadMessages", pb.ListThreadMessagesResponse, "messages", "id")
    five = ["x0", "x1", "x2", "x3", "x4"]
    assert [thread.thread_id async for thread in client.threads.list(resource_id="ada", page_size=2)] == five
    assert {request.resource_id for request in server.asked("ListThreads")} == {"ada"}
    listing = client.threads.messages("t1", roles=["user"], run_id="r1", newest_first=True, page_size=2)
    assert [message.id async for message in listing] == five
    requests = server.asked("ListThreadMessages")
    assert [request.page_token for request in requests] == ["", "2", "4"]
    for request in requests:
        assert (request.thread_id, request.run_id, request.page_size) == ("t1", "r1", 2)
        assert (list(request.roles), request.newest_first) == ([message_pb2.ROLE_USER], True)
    page = await client.threads.messages_page("t1", "2")
    assert ([message.id for message in page.items], page.next_page_token) == (["x2", "x3"], "4")
    with pytest.raises(ValueError, match="a role must be one of system, user"):
        await client.threads.messages_page("t1", roles=["boss"])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="resource_id"):
        await client.threads.list_page(resource="ada")  # type: ignore[call-arg]


async def test_every_part_is_read(server: FakeServer, client: Client) -> None:
    call = thread_pb2.ToolInvocation(tool_call_id="c", tool_name="pay", args=js('{"n":1}'))
    given: dict[str, Any] = {
        "text": message_pb2.TextPart(text="Hello"),
        "reasoning": message_pb2.ReasoningPart(text="Hm.", signature="s"),
        "tool_invocation": call,
        "image": message_pb2.ImagePart(data=b"PNG", media_type="image/png"),
        "file": message_pb2.FilePart(url="https://x.example", filename="a"),
        "source": thread_pb2.SourcePart(id="1", url="https://y.example", title="Y"),
        "error": thread_pb2.ErrorPart(code="timeout", message="too long"),
        "data": thread_pb2.DataPart(name="object", data=js("[1]")),
    }
    assert list(given) == [field.name for field in thread_pb2.ThreadPart.DESCRIPTOR.fields]

    async def answer(request: Any, _: Any) -> Any:
        said = thread_pb2.ThreadMessage(
            id="m1",
            position=2,
            role=message_pb2.ROLE_ASSISTANT,
            parts=[thread_pb2.ThreadPart(**{name: part}) for name, part in given.items()],
            author="support",
            run_id="r1",
            step=1,
            metadata=json_pb2.Json(text='{"a":1}'),
            aborted=True,
            omitted_parts=4,
        )
        said.parts.add()  # a kind that this version does not know
        for state in thread_pb2.ToolInvocationState.values():
            said.parts.add().tool_invocation.state = state
        return pb.ListThreadMessagesResponse(messages=[said])

    server.handlers["ListThreadMessages"] = answer
    [message] = [message async for message in client.threads.messages("t1")]
    assert (message.role, message.position, message.author, message.step) == ("assistant", 2, "support", 1)
    assert (message.metadata, message.aborted, message.omitted_parts) == ({"a": 1}, True, 4)
    assert message.text == "Hello"
    text, reasoning, invocation, image, file, source, error, data, *others = message.parts
    assert (text, image, file) == (
        entracte.TextPart("Hello"),
        entracte.ImagePart(data=b"PNG", media_type="image/png"),
        entracte.FilePart("https://x.example", filename="a"),
    )
    assert reasoning == entracte.ReasoningPart("Hm.", "s")
    assert source == entracte.SourcePart("1", "https://y.example", "Y")
    assert error == entracte.ErrorPart("timeout", "too long")
    assert isinstance(data, entracte.DataPart)
    assert (data.name, data.data) == ("object", [1])
    assert isinstance(invocation, entracte.ToolInvocationPart)
    assert (invocation.args, invocation.result) == ({"n": 1}, None)
    states = [part.state for part in others if isinstance(part, entracte.ToolInvocationPart)]
    assert states == ["unknown", "pending", "result", "error", "denied", "cancelled"]
    assert len(list(message.tool_invocations)) == 7
    plain = to_dict(message)
    json.dumps(plain)
    assert plain["parts"][2]["type"] == "tool-invocation"
    assert (plain["parts"][2]["args"], plain["parts"][7]["data"]) == ({"n": 1}, [1])


async def test_a_thread_that_is_had_is_not_asked_for_again(server: FakeServer, client: Client) -> None:
    """The caller decides what to do about it: the SDK does not wait behind its back."""
    metadata = {"thread_id": "t1", "run_id": "r1", "state": "running"}
    busy = Refuse(grpc.StatusCode.ABORTED, "THREAD_BUSY", metadata=metadata, retry_after=0.001)
    server.plans["Stream"] = [busy]
    server.plans["Generate"] = [busy]
    agent = client.agent("support")
    with pytest.raises(entracte.ThreadBusy) as caught:
        await agent.stream("Hi", memory=Memory("t1", "ada")).result()
    assert caught.value.metadata == metadata
    with pytest.raises(entracte.ThreadBusy):
        await agent.generate("Hi", memory=Memory("t1", "ada"))
    assert (len(server.asked("Stream")), len(server.asked("Generate"))) == (1, 1)


@tool(requires_approval=True)
async def refund(cents: int) -> dict[str, int]:
    """Pays back."""
    return {"cents": cents}


async def test_a_conversation_with_the_real_server() -> None:
    steps: list[list[dict[str, Any]]] = [
        [{"tool": "refund", "id": "c", "args": {"cents": 5}}],
        [{"text": "Paid."}],
    ]
    app = App(agents=[Agent(id="support", model=scripted([*steps]), tools=[refund])])
    async with serve(app) as server, Client(server.address) as client:
        agent = client.agent("support")
        memory = Memory(Thread("t1", "Refunds", {"n": 1}), "ada", on_busy_thread="queue")
        parked = await agent.generate("Refund it", memory=memory)
        thread = await client.threads.get("t1")
        assert (thread.title, thread.metadata, thread.active_run_id) == ("Refunds", {"n": 1}, parked.run_id)
        with pytest.raises(entracte.ThreadParked) as caught:
            await agent.generate("And now?", memory=memory)
        (call,) = parked.pending_calls
        assert caught.value.metadata["pending_call_ids"] == call.pending_call_id
        with pytest.raises(entracte.ThreadOfOtherResource):
            await agent.generate("Mine", memory=Memory("t1", "bea"))
        await agent.approve(call)
        messages = [message async for message in client.threads.messages("t1")]
        assert [message.text for message in messages] == ["Refund it", "", "Paid."]
        [invocation] = messages[1].tool_invocations
        assert (invocation.state, invocation.result) == ("result", {"cents": 5})
        with pytest.raises(entracte.ThreadExists):
            await client.threads.create("ada", thread_id="t1")
        assert await client.threads.delete("t1") == ()
        with pytest.raises(entracte.ThreadNotFound):
            await client.threads.get("t1")
        assert [thread async for thread in client.threads.list()] == []
