"""Threads over RPC: what was said is shown whole, pages stay under the limit of a message, a thread is had
by one run at a time, and a deleted one leaves nothing behind.
"""

import asyncio
import json
from typing import Any

import pytest

from entracte.v1 import agent_service_pb2 as agents
from entracte.v1 import inbox_service_pb2 as inbox
from entracte.v1 import message_pb2, options_pb2, run_pb2, thread_pb2
from entracte.v1 import run_service_pb2 as runs
from entracte.v1 import thread_service_pb2 as threads
from entracte_server import Agent, tool
from tests.rpc.support import (
    MIB,
    Peer,
    generate,
    js,
    kinds,
    once,
    pay,
    ref,
    rest_of,
    saying,
    serving,
    stream,
    until,
)

pytestmark = pytest.mark.usefixtures("each_store")

USER, ASSISTANT = message_pb2.ROLE_USER, message_pb2.ROLE_ASSISTANT
QUEUE: dict[str, Any] = {
    "on_busy_thread": options_pb2.ON_BUSY_THREAD_QUEUE,
    "on_parked_thread": options_pb2.ON_PARKED_THREAD_QUEUE,
}
PAGES = 16 * MIB
"""What a response may have."""


def on(thread_id: str, resource: str = "ada", **options: Any) -> options_pb2.MemoryOptions:
    """The memory of a run on a thread."""
    return options_pb2.MemoryOptions(thread=options_pb2.ThreadRef(id=thread_id), resource=resource, **options)


async def listed(
    peer: Peer, thread_id: str, size: int = 1000, **where: Any
) -> list[list[thread_pb2.ThreadMessage]]:
    """The messages of a thread, page by page, each of which fits into a response."""
    found: list[list[thread_pb2.ThreadMessage]] = []
    token = ""
    while token or not found:
        request = threads.ListThreadMessagesRequest(
            thread_id=thread_id, page_size=size, page_token=token, **where
        )
        page = await peer.one("ListThreadMessages", request)
        assert page.ByteSize() <= PAGES
        found.append(list(page.messages))
        token = page.next_page_token
    return found


async def said(peer: Peer, thread_id: str, **where: Any) -> list[thread_pb2.ThreadMessage]:
    """All messages of a thread."""
    return [message for page in await listed(peer, thread_id, **where) for message in page]


async def thread_of(peer: Peer, thread_id: str) -> thread_pb2.Thread:
    """Reads a thread."""
    thread: thread_pb2.Thread = (
        await peer.one("GetThread", threads.GetThreadRequest(thread_id=thread_id))
    ).thread
    return thread


# ---- what is shown ----


@tool
async def fails() -> str:
    """Fails."""
    raise ValueError("no such customer")


async def test_everything_that_was_said_is_shown() -> None:
    """Each kind of part, with what came of every call: a result, a failure, a refusal, none yet. What is
    shown survives the run, whose parts are completed where they stand."""
    calls: list[dict[str, Any]] = [
        {"reasoning": "Hm."},
        {"text": "A moment."},
        {"tool": "fails", "id": "c-1", "args": {}},
        {"tool": "pay", "id": "c-2", "args": {"amount": 1}},
    ]
    agent = Agent(id="all", model=once(*calls, then="Sorry."), tools=[fails, pay])
    async with serving(agent) as (_, peer):
        request = generate("all", "Look:", memory=on("t"))
        request.messages[0].parts.add(image=message_pb2.ImagePart(data=b"PNG", media_type="image/png"))
        request.messages[0].parts.add(
            file=message_pb2.FilePart(url="https://x.example/a", filename="a", media_type="text/plain")
        )
        request.messages[0].metadata.text = '{"from":"phone"}'
        parked = await peer.one("Generate", request)
        [pending] = parked.result.pending_calls
        asked, waiting = await said(peer, "t")
        assert (asked.role, asked.author, asked.step, asked.run_id) == (USER, "local", 0, parked.run.run_id)
        assert asked.metadata.text == '{"from":"phone"}'
        text, image, file = asked.parts
        assert text.text.text == "Look:"
        assert (image.image.data, image.image.media_type) == (b"PNG", "image/png")
        assert (file.file.url, file.file.filename) == ("https://x.example/a", "a")
        assert waiting.parts[-1].tool_invocation.state == thread_pb2.TOOL_INVOCATION_STATE_PENDING

        call = ref(pending.pending_call_id)
        await peer.one("Decline", agents.DeclineRequest(call=call, reason="too much", wait=True))
        _, first, second = await said(peer, "t")
        assert (first.id, first.position, first.author, first.step) == (waiting.id, 2, "all", 1)
        assert first.create_time == waiting.create_time
        thought, words, failure, denial = first.parts
        assert (thought.reasoning.text, words.text.text) == ("Hm.", "A moment.")
        assert failure.tool_invocation.state == thread_pb2.TOOL_INVOCATION_STATE_ERROR
        assert failure.tool_invocation.error == "no such customer"
        assert denial.tool_invocation.state == thread_pb2.TOOL_INVOCATION_STATE_DENIED
        assert denial.tool_invocation.error == "too much"
        assert [part.text.text for part in second.parts] == ["Sorry."]
        assert not any(message.aborted or message.omitted_parts for message in (first, second))
        assert (await thread_of(peer, "t")).message_count == 3


async def test_how_an_answer_ended_is_shown() -> None:
    """An object is data, a failure an error, and what was cut off says so."""
    broken = Agent(id="broken", model=saying({"text": "Well"}, {"error": "overloaded", "status": 400}))
    data = Agent(id="data", model=saying({"text": '{"n":1}'}))
    async with serving(broken, data) as (_, peer):
        schema = options_pb2.StructuredOutput(schema=js('{"type":"object"}'))
        await peer.one("Generate", generate("data", memory=on("t"), structured_output=schema))
        run = (await peer.one("Generate", generate("broken", memory=on("t")))).run
        _, answer, _, failed = await said(peer, "t")
        [value] = [part.data for part in answer.parts if part.HasField("data")]
        assert (value.name, json.loads(value.data.text)) == ("object", {"n": 1})
        assert failed.aborted
        [error] = [part.error for part in failed.parts if part.HasField("error")]
        assert (error.code, error.message) == (run.error.kind, run.error.message)


# ---- sizes ----


async def test_a_thread_with_20_megabytes_is_listed() -> None:
    """In pages that fit into responses, whatever size is asked for, in both orders, by filters too."""
    async with serving() as (_, peer):
        for number in range(3):
            text = f"{number}" * (7 * MIB)
            await peer.one("Generate", generate("talk", text, memory=on("t", last_messages=0)))
        pages = await listed(peer, "t")
        assert [[message.position for message in page] for page in pages] == [[1, 2], [3, 4], [5, 6]]
        backwards = await listed(peer, "t", newest_first=True)
        everything = [message for page in pages for message in page]
        assert [message for page in backwards for message in page] == everything[::-1]
        assert await said(peer, "t", roles=[USER]) == everything[::2]
        assert [len(page) for page in await listed(peer, "t", size=1)] == [1] * 6


async def test_a_message_that_is_larger_than_a_response_is_shown_in_part() -> None:
    """Its largest parts are left out, and it says how many; the list goes on behind it."""

    @tool
    async def much(n: int) -> str:
        """Gives much."""
        return f"{n}" * (4 * MIB - 16)

    calls = [{"tool": "much", "id": f"c-{n}", "args": {"n": n}} for n in range(5)]
    agent = Agent(id="much", model=once({"text": "See:"}, *calls, then="That."), tools=[much])
    async with serving(agent) as (_, peer):
        start = generate("much", memory=on("t"))
        run_id = "too-much"
        start.options.run_id = run_id
        refusal = await peer.refuse("Generate", start)
        assert refusal.reason == "RESULT_TOO_LARGE"
        asked, large, last = await said(peer, "t")
        assert (asked.omitted_parts, last.omitted_parts) == (0, 0)
        assert large.parts[0].text.text == "See:"
        assert large.omitted_parts == 5 - (len(large.parts) - 1) == 2
        results = [chunk for chunk in await peer.chunks(run_id) if chunk.HasField("tool_result")]
        assert len(results) == 5


async def test_threads_with_much_metadata_are_listed() -> None:
    """A page ends before it is too large."""
    metadata = js('{"a":"' + "x" * 65_000 + '"}')
    async with serving() as (_, peer):
        ids = [f"t-{number:03}" for number in range(230)]
        for start in range(0, len(ids), 10):
            await asyncio.gather(*(peer.thread(i, metadata=metadata) for i in ids[start : start + 10]))
        found: list[str] = []
        token, pages = "", 0
        while token or not pages:
            request = threads.ListThreadsRequest(page_size=1000, page_token=token)
            page = await peer.one("ListThreads", request)
            assert page.ByteSize() <= PAGES
            found += [thread.thread_id for thread in page.threads]
            token, pages = page.next_page_token, pages + 1
        assert sorted(found) == ids
        assert pages > 1


# ---- who has a thread ----


async def test_a_thread_that_is_had_says_who_has_it() -> None:
    """THREAD_BUSY while a run executes, THREAD_PARKED with its calls while one waits for people,
    THREAD_QUEUE_FULL where as many wait as may, THREAD_OF_OTHER_RESOURCE for a stranger; a run that only
    reads is let in."""
    async with serving(thread_queue=1) as (_, peer):
        call = peer.open("Stream", stream("slow", memory=on("busy"), run_id="holder"))
        await call.read()
        for method, make in (("Generate", generate), ("Stream", stream)):
            busy = await peer.refuse(method, make("talk", memory=on("busy")))
            assert (busy.code, busy.reason) == ("ABORTED", "THREAD_BUSY")
            assert busy.metadata == {"thread_id": "busy", "run_id": "holder", "state": "running"}
            assert busy.retry_after
        waiting = peer.open("Stream", stream("talk", memory=on("busy", **QUEUE), run_id="waits"))
        await until_queued(peer, "busy", 1)
        full = await peer.refuse("Generate", generate("talk", memory=on("busy", **QUEUE)))
        assert (full.code, full.reason) == ("RESOURCE_EXHAUSTED", "THREAD_QUEUE_FULL")
        assert full.metadata == {"thread_id": "busy", "limit": "1"}
        assert full.retry_after
        refused = await peer.refuse("Generate", generate("talk", memory=on("busy")))
        assert refused.reason == "THREAD_BUSY"
        stranger = await peer.refuse("Generate", generate("talk", memory=on("busy", "bea")))
        assert (stranger.code, stranger.reason) == ("FAILED_PRECONDITION", "THREAD_OF_OTHER_RESOURCE")
        assert stranger.metadata == {"thread_id": "busy"}
        kept = await peer.refuse("DeleteThread", threads.DeleteThreadRequest(thread_id="busy"))
        assert (kept.code, kept.reason, kept.metadata) == (busy.code, busy.reason, busy.metadata)
        reading = await peer.one("Generate", generate("talk", memory=on("busy", read_only=True)))
        assert reading.run.state == run_pb2.RUN_STATE_SUCCEEDED
        waiting.cancel()
        call.cancel()

        run_id, (pending,) = await peer.parked("gate", memory=on("parked"))
        parked = await peer.refuse("Generate", generate("talk", memory=on("parked")))
        assert (parked.code, parked.reason) == ("FAILED_PRECONDITION", "THREAD_PARKED")
        assert parked.metadata == {
            "thread_id": "parked",
            "run_id": run_id,
            "pending_call_ids": pending.pending_call_id,
        }


async def until_queued(peer: Peer, thread_id: str, count: int) -> None:
    """Until so many runs wait for a thread."""

    async def enough() -> bool:
        return (await thread_of(peer, thread_id)).queued_runs == count

    await until(enough, f"{count} runs wait for {thread_id}")


# ---- deletion ----


async def test_a_deleted_thread_takes_its_runs_with_it() -> None:
    """By force also those that have it or wait for it: they are cancelled, their readers see the end, and
    then they are gone with their calls; a thread made anew under the same id is empty, and what is said
    on it meanwhile stays."""
    async with serving() as (_, peer):
        done = (await peer.one("Generate", generate("talk", memory=on("t")))).run.run_id
        kept = (await peer.one("Generate", generate("talk", memory=on("other")))).run.run_id
        parked, (pending,) = await peer.parked("gate", memory=on("t"))
        reader = peer.open("WatchRun", runs.WatchRunRequest(run_id=parked, until_finished=True))
        await reader.read()
        waiting = asyncio.create_task(
            peer.call("Stream", stream("talk", memory=on("t", **QUEUE), run_id="waits"))
        )
        await until_queued(peer, "t", 1)

        response = await peer.one("DeleteThread", threads.DeleteThreadRequest(thread_id="t", force=True))
        assert sorted(response.cancelled_run_ids) == sorted([parked, "waits"])
        missing = await peer.refuse("GetThread", threads.GetThreadRequest(thread_id="t"))
        assert (missing.code, missing.reason) == ("NOT_FOUND", "THREAD_NOT_FOUND")
        chunks = [chunk for message in await rest_of(reader) for chunk in message.chunks]
        assert [c.abort.reason for c in chunks if c.HasField("abort")] == ["Its thread was deleted."]
        last = [chunk for message in await waiting for chunk in message.chunks][-1]
        assert last.finish.reason != 0

        anew = (await peer.one("Generate", generate("talk", "again", memory=on("t", "bea")))).run.run_id
        for run_id in (done, parked, "waits"):

            async def gone(run_id: str = run_id) -> bool:
                page = await peer.one("ListRuns", runs.ListRunsRequest(page_size=1000))
                return run_id not in {run.run_id for run in page.runs}

            await until(gone, f"{run_id} is deleted")
        call = inbox.GetPendingCallRequest(pending_call_id=pending.pending_call_id)
        assert (await peer.refuse("GetPendingCall", call)).reason == "PENDING_CALL_NOT_FOUND"
        page = await peer.one("ListRuns", runs.ListRunsRequest())
        assert {run.run_id for run in page.runs} == {kept, anew}
        assert [m.parts[0].text.text for m in await said(peer, "t")] == ["again", "good day"]
        await peer.one("DeleteRun", runs.DeleteRunRequest(run_id=kept))
        assert len(await said(peer, "other")) == 2  # what was said stays


async def test_a_running_run_of_a_deleted_thread_ends() -> None:
    """It is cut off, and what it still says goes nowhere."""
    async with serving() as (_, peer):
        call = peer.open("Stream", stream("slow", memory=on("t"), run_id="holder"))
        await call.read()
        response = await peer.one("DeleteThread", threads.DeleteThreadRequest(thread_id="t", force=True))
        assert list(response.cancelled_run_ids) == ["holder"]
        chunks = [chunk for message in await rest_of(call) for chunk in message.chunks]
        assert kinds(chunks)[-2:] == ["abort", "finish"]
        await peer.thread("t")
        assert await said(peer, "t") == []


async def test_a_thread_is_deleted_and_made_while_runs_want_it() -> None:
    """Whatever comes first, each run has a thread of its own or is cancelled with it; nothing hangs, and
    the last thread has only whole answers."""
    async with serving() as (_, peer):

        async def talk(number: int) -> str:
            response = await peer.one("Generate", generate("talk", f"{number}", memory=on("t", **QUEUE)))
            return run_pb2.RunState.Name(response.run.state)

        async def delete() -> None:
            await asyncio.gather(
                peer.call("DeleteThread", threads.DeleteThreadRequest(thread_id="t", force=True)),
                return_exceptions=True,
            )

        work: list[Any] = [talk(number) for number in range(12)]
        for place in (9, 6, 3):
            work.insert(place, delete())
        ended = await asyncio.wait_for(asyncio.gather(*work), 30)
        states = [state for state in ended if state is not None]
        assert set(states) <= {"RUN_STATE_SUCCEEDED", "RUN_STATE_CANCELLED"}
        await peer.one("Generate", generate("talk", "last", memory=on("t", **QUEUE)))
        messages = await said(peer, "t")
        assert [message.position for message in messages] == list(range(1, len(messages) + 1))
        assert [message.role for message in messages] == [USER, ASSISTANT] * (len(messages) // 2)
