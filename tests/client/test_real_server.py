"""The SDK with the server it is made for."""

import asyncio
import socket
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import entracte
from entracte import Client, SyncClient
from entracte_server import Agent, App, ask_user, tool
from entracte_server.testing import scripted, serve


@tool(requires_approval=True)
async def refund(order_id: str, cents: int) -> dict[str, Any]:
    """Pays an order back."""
    return {"order_id": order_id, "cents": cents}


QUESTION = {
    "question": "Which?",
    "options": [{"label": "Tests"}, {"label": "Docs"}],
    "selection_mode": "multi_select",
}


def app(*steps: list[dict[str, Any]]) -> App:
    model = scripted([*steps])
    return App(agents=[Agent(id="support", model=model, instructions="Help.", tools=[refund, ask_user])])


def long_answer(words: int = 40, delay: float = 0.02) -> list[dict[str, Any]]:
    """An answer that takes its time."""
    parts: list[dict[str, Any]] = []
    for number in range(words):
        parts += [{"text": f"word{number} "}, {"delay": delay * 1000}]
    return parts


async def test_a_conversation_with_all_kinds_of_stops() -> None:
    def locate(city: str) -> str:
        """Finds a city."""
        return f"{city} is north"

    steps: list[list[dict[str, Any]]] = [
        [{"text": "One moment. "}, {"tool": "refund", "args": {"order_id": "7", "cents": 500}}],
        [{"tool": "ask_user", "args": QUESTION}],
        [{"tool": "locate", "args": {"city": "Kiel"}}],
        [{"tool": "refund", "args": {"order_id": "8", "cents": 1}}],
        [{"text": "All done."}],
    ]
    async with serve(app(*steps)) as server, Client(server.address) as client:
        agent = client.agent("support")
        stream = agent.stream("Hi", client_tools=[locate], max_steps=9)
        chunks = [chunk async for chunk in stream]
        result = await stream.result()
        assert result.finish_reason == "suspended"
        (call,) = result.pending_calls
        assert (call.kind, call.tool_name, call.args) == (
            "approval",
            "refund",
            {"order_id": "7", "cents": 500},
        )

        with pytest.raises(entracte.EditedArgsInvalid) as invalid:
            await agent.approve(call, edited_args={"order_id": "7", "cents": "many"})
        assert invalid.value.violations[0].field == "edited_args/cents"
        with pytest.raises(entracte.VerbMismatch):
            await agent.resume(call, "yes")
        result = await agent.approve(call, edited_args={"order_id": "7", "cents": 400})
        assert result.tool_results[0].result == {"order_id": "7", "cents": 400}

        (question,) = result.pending_calls
        assert question.suspend_payload == QUESTION
        with pytest.raises(entracte.ResumeDataInvalid):
            await agent.resume(question, "Tests")
        follow = agent.resume_stream(question, ["Tests", "Docs"], client_tools=[locate])
        chunks += [chunk async for chunk in follow]
        with pytest.raises(entracte.PendingCallAlreadyDecided) as late:
            await agent.resume(question, ["Docs"])
        assert late.value.metadata["verb"] == "resume"

        result = await follow.result()
        assert [chunk.result for chunk in result.tool_results][-1] == "Kiel is north"
        (call,) = result.pending_calls
        result = await agent.decline(call, reason="too little")
        assert (result.finish_reason, result.text) == ("stop", "One moment. All done.")

        run = await client.runs.get(stream.run_id)
        assert run.state == "succeeded"
        assert run.result == result
        everything = [chunk async for chunk in client.runs.watch(stream.run_id)]
        assert [chunk.sequence for chunk in everything] == list(range(1, run.last_sequence + 1))
        for after in range(run.last_sequence + 1):
            rest = [chunk async for chunk in client.runs.watch(stream.run_id, after=after)]
            assert rest == everything[after:]
        verbs = [decision.verb async for decision in client.inbox.decisions(run_id=stream.run_id)]
        assert verbs == ["decline", "submit", "resume", "approve"]
        assert [call async for call in client.inbox.list()] == []


async def test_generate_stream_and_get_run_agree() -> None:
    thinking = app([{"reasoning": "Hm."}, {"text": "Hello."}])
    async with serve(thinking) as server, Client(server.address) as client:
        agent = client.agent("support")
        generated = await agent.generate("Hi", run_id="a")
        stream = agent.stream("Hi", run_id="b")
        streamed = await stream.result()
        assert (generated.text, streamed.text, stream.text) == ("Hello.",) * 3
        assert generated.reasoning_text == streamed.reasoning_text == "Hm."
        assert generated == (await client.runs.get("a")).result
        assert streamed == (await client.runs.get("b")).result
        with pytest.raises(entracte.RunAlreadyExists):
            await agent.generate("Hi", run_id="a")
        with pytest.raises(entracte.AgentNotFound):
            await client.agent("nobody").stream("Hi").result()


async def test_the_same_request_joins_the_run_it_started() -> None:
    async with serve(app([{"text": "Hello."}])) as server, Client(server.address) as client:
        agent = client.agent("support")
        first = await agent.generate("Hi", run_id="a", request_id="q")
        assert await agent.generate("Hi", run_id="a", request_id="q") == first
        with pytest.raises(entracte.RequestIdReused):
            await agent.generate("Ho", run_id="a", request_id="q")

        second = await agent.generate("Hi", request_id="p")
        assert await agent.generate("Hi", request_id="p") == second
        assert second.run_id != first.run_id
        streams = [agent.stream("Hi", request_id="p") for _ in range(2)]
        assert streams[0].run_id == ""
        results = [await stream.result() for stream in streams]
        assert results[0] == results[1]
        assert streams[0].run_id == streams[1].run_id == results[0].run_id != second.run_id


async def test_a_stream_goes_on_when_the_server_is_replaced(tmp_path: Path) -> None:
    """The server stops in the middle of an answer; another one takes its place and its runs."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    store = tmp_path / "runs.db"
    the_app = app(long_answer(), [{"text": "never"}])
    async with AsyncExitStack() as servers, Client(address) as client:
        server = await servers.enter_async_context(serve(the_app, store=store, address=address))
        assert server.address == address
        stream = client.agent("support").stream("Hi")
        sequences: list[int] = []
        replaced = False
        async for chunk in stream:
            sequences.append(chunk.sequence)
            if len(sequences) == 10 and not replaced:
                replaced = True
                await servers.aclose()
                again = app(long_answer(delay=0.001))
                await servers.enter_async_context(serve(again, store=store, address=address))
        assert sequences == list(range(1, len(sequences) + 1))
        result = await stream.result()
        assert result.text.split() == [f"word{number}" for number in range(40)]
        assert stream.text == result.text


async def test_cancel_and_delete() -> None:
    async with serve(app(long_answer(400))) as server, Client(server.address) as client:
        aborts: list[str] = []
        stream = client.agent("support").stream("Hi", on_abort=lambda chunk: aborts.append(chunk.reason))
        async for chunk in stream:
            if chunk.type == "text-delta":
                break
        assert [run.run_id async for run in client.runs.list(states=["running"])] == [stream.run_id]
        with pytest.raises(entracte.RunNotFinished):
            await client.runs.delete(stream.run_id)
        run = await client.runs.cancel(stream.run_id, reason="enough", wait=True)
        assert run.state == "cancelled"
        result = await stream.result()
        assert (result.finish_reason, result.stop_cause) == ("aborted", "cancelled")
        assert result.text.startswith("word0")
        assert aborts == ["enough"]
        await client.runs.delete(stream.run_id)
        with pytest.raises(entracte.RunNotFound):
            await client.runs.get(stream.run_id)


async def test_the_inbox_is_watched_claimed_and_cleared() -> None:
    step = [{"tool": "refund", "args": {"order_id": "7", "cents": 5}}]
    async with serve(app(step, [{"text": "Done."}])) as server, Client(server.address) as client:
        changes: asyncio.Queue[entracte.InboxChange] = asyncio.Queue()

        async def watch() -> None:
            async for change in client.inbox.watch():
                changes.put_nowait(change)

        watching = asyncio.create_task(watch())
        assert (await asyncio.wait_for(changes.get(), 5)).snapshot_complete
        await client.agent("support").generate("Hi")
        (call,) = (await asyncio.wait_for(changes.get(), 5)).opened
        claimed = await client.inbox.claim(call, ttl=60)
        assert claimed.claim is not None
        assert (await asyncio.wait_for(changes.get(), 5)).opened == (claimed,)
        await client.inbox.release(call)
        await asyncio.wait_for(changes.get(), 5)
        await client.agent("support").approve(call)
        assert (await asyncio.wait_for(changes.get(), 5)).closed == (call.pending_call_id,)
        watching.cancel()
        decided = await client.inbox.get(call.pending_call_id)
        assert decided.decision is not None
        assert (decided.state, decided.decision.verb) == ("decided", "approve")


async def test_a_decision_may_be_made_without_waiting_for_what_comes_of_it() -> None:
    step = [{"tool": "refund", "args": {"order_id": "7", "cents": 5}}]
    async with serve(app(step, long_answer(4000))) as server, Client(server.address) as client:
        agent = client.agent("support")
        result = await agent.generate("Hi")
        stream = agent.approve_stream(result.pending_calls[0])
        decision = await stream.commit()
        assert decision.verb == "approve"
        assert await stream.commit() is decision
        chunk = await anext(aiter(stream))
        assert chunk.type == "tool-call-resolved"
        assert chunk.decision_id == decision.decision_id
        await client.runs.cancel(result.run_id, wait=True)


async def test_blocking_code() -> None:
    step = [{"tool": "refund", "args": {"order_id": "7", "cents": 5}}]

    def work(address: str) -> None:
        with SyncClient(address) as client:
            agent = client.agent("support")
            stream = agent.stream("Hi")
            waiting = [chunk for chunk in stream if chunk.type == "tool-call-approval"]
            for chunk in agent.approve_stream(waiting[0]):
                if chunk.type == "finish":
                    assert chunk.reason == "stop"
            assert client.runs.get(stream.run_id).state == "succeeded"

    async with serve(app(step, [{"text": "Done."}])) as server:
        await asyncio.wait_for(asyncio.to_thread(work, server.address), 20)


async def test_calls_wait_for_a_server_that_restarts(tmp_path: Path) -> None:
    """A client that reached the server once gives every unary call the time a restart takes."""
    file = tmp_path / "entracte.db"
    steps: list[list[dict[str, Any]]] = [
        [{"tool": "refund", "args": {"order_id": "7", "cents": 500}}],
        [{"text": "Done."}],
    ]
    async with AsyncExitStack() as stack:
        async with serve(app(*steps), store=file) as server:
            client = await stack.enter_async_context(Client(server.address))
            agent = client.agent("support")
            (call,) = (await agent.generate("Hi", run_id="r1")).pending_calls
        # More than the handful of attempts that a server gets which never answered.
        reading = asyncio.create_task(client.runs.get("r1"))
        deciding = asyncio.create_task(agent.approve(call))
        streaming = asyncio.create_task(agent.stream("Hi", run_id="r2").result())
        await asyncio.sleep(1.5)
        assert not any(task.done() for task in (reading, deciding, streaming))
        with pytest.raises((entracte.ServerUnreachable, entracte.DeadlineExceeded)):
            await client.runs.get("r1", timeout=0.3)
        async with serve(app(steps[1]), store=file, address=server.address):
            assert (await asyncio.wait_for(reading, 20)).run_id == "r1"
            assert (await asyncio.wait_for(deciding, 20)).text == "Done."
            assert (await asyncio.wait_for(streaming, 20)).text == "Done."
            (decision,) = [item async for item in client.inbox.decisions(run_id="r1")]
            assert decision.verb == "approve"


async def test_a_server_that_never_answered_is_given_up_quickly() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens there
        port = taken.getsockname()[1]
        async with Client(f"127.0.0.1:{port}") as client, asyncio.timeout(5):
            with pytest.raises(entracte.ServerUnreachable):
                await client.runs.get("r1")
