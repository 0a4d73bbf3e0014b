"""The client for blocking code, against a server in another thread."""

import asyncio
import inspect
import os
import signal
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import entracte
from entracte import Client, SyncClient
from entracte._sync_bridge import LoopThread
from entracte.v1 import inbox_service_pb2, pending_call_pb2, run_service_pb2
from tests.client.fake import FakeServer, Log


@asynccontextmanager
async def serving(log: Log | None = None) -> AsyncIterator[FakeServer]:
    async with FakeServer(log).running() as server:
        yield server


async def in_thread(work: Any, *args: Any) -> Any:
    """Run blocking code beside the server, which has the test's loop."""
    return await asyncio.wait_for(asyncio.to_thread(work, *args), 20)


async def test_generate_and_decide() -> None:
    async with serving() as server:
        server.result.text = "Hello"

        def work() -> None:
            with SyncClient(server.address) as client:
                agent = client.agent("support")
                assert agent.id == "support"
                assert agent.generate("Hi", max_steps=3).text == "Hello"
                assert agent.approve("p1").text == "Hello"
                assert agent.resume("p1", "yes").text == "Hello"
                assert client.runs.get("r1").state == "succeeded"
                with pytest.raises(TypeError):
                    agent.generate("Hi", nonsense=1)  # type: ignore[call-arg]

        await in_thread(work)
        assert server.asked("Generate")[0].options.max_steps == 3


async def test_a_stream_is_iterated() -> None:
    async with serving() as server:
        server.result.text = "Hello, world!"

        def work() -> None:
            with SyncClient(server.address) as client:
                stream = client.agent("support").stream("Hi", run_id="r1")
                assert [chunk.sequence for chunk in stream] == list(range(1, 11))
                assert (stream.run_id, stream.text, stream.position) == ("r1", "Hello, world!", 10)
                assert stream.result().text == "Hello, world!"
                assert stream.decision is None
                assert stream.fold.finish is not None
                texts = client.agent("support").stream("Hi", run_id="r1").text_stream
                assert list(texts) == ["Hello", ", ", "world", "!"]

        await in_thread(work)


async def test_leaving_the_loop_cancels_the_call() -> None:
    async with serving() as server:
        server.hold_after = 5

        def work() -> None:
            with SyncClient(server.address) as client:
                for chunk in client.agent("support").stream("Hi", run_id="r1"):
                    if chunk.sequence == 5:
                        break
                end = time.monotonic() + 5
                while server.cancelled != ["Stream"]:
                    assert time.monotonic() < end
                    time.sleep(0.005)

        await in_thread(work)


async def test_another_loop_goes_on_after_the_last_chunk() -> None:
    async with serving() as server:

        def work() -> list[int]:
            sequences: list[int] = []
            with SyncClient(server.address) as client:
                stream = client.agent("support").stream("Hi", run_id="r1")
                while len(sequences) < 10:
                    for chunk in stream:
                        sequences.append(chunk.sequence)
                        break
            return sequences

        assert await in_thread(work) == list(range(1, 11))


async def test_close_ends_the_loop_of_another_thread() -> None:
    async with serving() as server:
        server.hold_after = 5

        def work() -> None:
            with SyncClient(server.address) as client:
                stream = client.agent("support").stream("Hi", run_id="r1")
                threading.Timer(0.1, stream.close).start()
                assert len(list(stream)) == 5
                with client.agent("support").stream("Hi", run_id="r1") as other:
                    next(iter(other))

        await in_thread(work)


async def test_errors_are_the_same() -> None:
    async with serving() as server:

        def work() -> None:
            with SyncClient("127.0.0.1:1") as nowhere, pytest.raises(entracte.ServerUnreachable):
                nowhere.runs.get("r1")
            with SyncClient(server.address) as client:
                del server.log.chunks[4]
                with pytest.raises(entracte.SequenceGap):
                    list(client.runs.watch("r1"))
            with pytest.raises(RuntimeError, match="closed"):
                client.runs.get("r1")
            client.close()

        await in_thread(work)


async def test_lists_and_watches_are_iterated() -> None:
    async def runs(request: Any, _: Any) -> Any:
        response = run_service_pb2.ListRunsResponse(next_page_token="" if request.page_token else "2")
        response.runs.add(run_id=f"x{request.page_token}")
        return response

    async def watch(_: Any, context: Any) -> None:
        response = inbox_service_pb2.WatchPendingCallsResponse(snapshot_complete=True)
        response.opened.append(pending_call_pb2.PendingCall(pending_call_id="p1"))
        await context.write(response)
        await asyncio.sleep(60)

    async with serving() as server:
        server.handlers.update(ListRuns=runs, WatchPendingCalls=watch)

        def work() -> None:
            with SyncClient(server.address) as client:
                assert [run.run_id for run in client.runs.list()] == ["x", "x2"]
                for change in client.inbox.watch():
                    assert change.opened[0].pending_call_id == "p1"
                    break

        await in_thread(work)
        for _ in range(200):
            if server.cancelled:
                break
            await asyncio.sleep(0.01)
        assert server.cancelled == ["WatchPendingCalls"]


async def test_callbacks_and_client_tools_may_use_the_client() -> None:
    log = Log().add("start", step=0).wait_for("p1", "look", "CLIENT_TOOL", '{"place":"x"}')
    log.park(("p1", "look", "CLIENT_TOOL")).resolved("p1", "SUBMIT").add("step_finish").finish()
    async with serving(log) as server:

        def work() -> None:
            with SyncClient(server.address) as client:

                def look(place: str) -> str:
                    """Looks."""
                    return place + client.runs.get("r1").run_id

                states: list[str] = []
                client.agent("support").generate(
                    "Hi",
                    run_id="r1",
                    client_tools=[look],
                    on_step_finish=lambda _: states.append(client.runs.get("r1").state),
                )
                assert states == ["succeeded"]

        await in_thread(work)
        assert server.asked("SubmitToolResult")[0].result.text == '"xr1"'


async def test_threads_may_share_a_client() -> None:
    async with serving() as server:

        def work() -> None:
            with SyncClient(server.address) as client:
                counts: list[int] = []

                def read() -> None:
                    counts.append(len(list(client.runs.watch("r1"))))

                threads = [threading.Thread(target=read) for _ in range(8)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                assert counts == [10] * 8

        await in_thread(work)


def test_an_interrupt_cancels_what_was_waited_for() -> None:
    loop = LoopThread()
    gone = threading.Event()

    async def forever() -> None:
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            await asyncio.sleep(60)
        finally:
            gone.set()

    with pytest.raises(KeyboardInterrupt):
        loop.run(forever())
    assert gone.wait(5)
    loop.close()


@pytest.mark.parametrize(
    ("blocking", "original"),
    [
        (entracte.SyncAgentClient, entracte.AgentClient),
        (entracte.SyncRunsClient, entracte.RunsClient),
        (entracte.SyncInboxClient, entracte.InboxClient),
        (entracte.SyncThreadsClient, entracte.ThreadsClient),
    ],
)
def test_the_blocking_side_has_all_methods(blocking: type, original: type) -> None:
    def public(cls: type) -> set[str]:
        return {name for name, value in vars(cls).items() if not name.startswith("_") and callable(value)}

    assert public(blocking) == public(original)
    for name in public(original):
        assert inspect.signature(getattr(blocking, name)) == inspect.signature(getattr(original, name))
        assert getattr(blocking, name).__doc__ == getattr(original, name).__doc__


def test_both_clients_take_the_same_options() -> None:
    assert inspect.signature(SyncClient) == inspect.signature(Client)
