"""Streams: the run's id in the metadata, keep-alives, and following a run from any position."""

import asyncio
from typing import Any

import grpc
import grpc.aio
import pytest

from entracte.v1 import agent_service_pb2 as agents
from entracte.v1 import result_pb2, run_pb2
from entracte.v1 import run_service_pb2 as runs
from entracte_server import Agent, ToolContext, tool
from entracte_server.testing import ScriptedModel, TestServer
from tests.rpc.support import (
    Peer,
    generate,
    js,
    kinds,
    once,
    peer_of,
    ref,
    refused,
    rest_of,
    saying,
    serving,
    stream,
    until,
)

pytestmark = pytest.mark.usefixtures("each_store")


def after(run_id: str, sequence: int = 0, **more: Any) -> runs.WatchRunRequest:
    """A request to follow a run."""
    return runs.WatchRunRequest(run_id=run_id, after_sequence=sequence, **more)


# ---- the first things that arrive ----


@pytest.mark.parametrize("given", ["mine", ""])
async def test_the_run_id_comes_in_the_initial_metadata(peer: Peer, given: str) -> None:
    """As soon as the run is stored, long before the answer; the caller's own id or the one the server
    made. By then the run can be read."""
    for method, request in (
        ("Generate", generate("slow", run_id=given and f"{given}-1")),
        ("Stream", stream("slow", run_id=given and f"{given}-2")),
    ):
        call = peer.open(method, request, as_stream=True)
        metadata = dict(await call.initial_metadata())
        run_id = metadata["entracte-run-id"]
        assert run_id == request.options.run_id or not given
        assert (await peer.run(run_id)).state == run_pb2.RUN_STATE_RUNNING
        call.cancel()
        await peer.one("CancelRun", runs.CancelRunRequest(run_id=run_id, wait=True))


async def test_a_refused_run_has_no_id_in_the_metadata(peer: Peer) -> None:
    """Nothing was stored."""
    call = peer.open("Stream", stream("nobody"))
    with pytest.raises(grpc.aio.AioRpcError):
        await call.read()
    assert "entracte-run-id" not in dict(await call.initial_metadata())


async def test_the_chunks_of_a_stream_are_numbered_without_gaps_and_end_with_finish(peer: Peer) -> None:
    """Over a suspension as well; each stream ends with a `finish`, and only then is it OK."""
    responses = await peer.call("Stream", stream("gate"))
    first = [chunk for response in responses for chunk in response.chunks]
    assert first[-1].finish.reason == result_pb2.FINISH_REASON_SUSPENDED
    run_id = first[0].run_id
    (pending,) = first[-1].finish.open_calls
    decided = await peer.one("Approve", agents.ApproveRequest(call=ref(pending.pending_call_id)))
    rest = await peer.chunks(run_id, decided.run.last_sequence)
    assert rest[-1].finish.reason == result_pb2.FINISH_REASON_STOP
    everything = first + rest
    assert [chunk.sequence for chunk in everything] == list(range(1, len(everything) + 1))
    assert {chunk.run_id for chunk in everything} == {run_id}
    assert await peer.chunks(run_id) == everything


# ---- keep-alives ----


async def test_a_quiet_stream_has_keep_alives() -> None:
    """Empty messages that say up to where everything was sent, on streams that follow a run however
    they began, and on the inbox."""
    async with serving(keep_alive=0.1) as (_, peer):
        call = peer.open("Stream", stream("slow", run_id="r"))
        responses = [await call.read() for _ in range(4)]
        sent = [chunk for response in responses for chunk in response.chunks]
        assert kinds(sent) == ["start", "step_start"]
        quiet = [response for response in responses if not response.chunks]
        assert len(quiet) >= 2
        assert {response.through_sequence for response in quiet} == {2}
        watch = peer.open("WatchRun", after("r", 2))
        assert [(await watch.read()).through_sequence for _ in range(2)] == [2, 2]
        late = peer.open("WatchRun", after("r", 1))
        first = await late.read()
        assert [chunk.sequence for chunk in first.chunks] == [2]
        assert first.through_sequence == 0
        inbox = peer.open("WatchPendingCalls", b"")
        assert (await inbox.read()).snapshot_complete
        assert (await inbox.read()).ByteSize() == 0
        for opened in (call, watch, late, inbox):
            opened.cancel()


# ---- following from any position ----


async def through_two_suspensions(server: TestServer, peer: Peer) -> tuple[str, list[Any]]:
    """A run that was parked twice and has ended: its id and its chunks."""
    run_id, pending = await peer.parked("both", run_id="twice")
    by_tool = {call.tool_name: call for call in pending}
    await peer.one("Approve", agents.ApproveRequest(call=ref(by_tool["pay"].pending_call_id), wait=True))
    await peer.one(
        "Resume",
        agents.ResumeRequest(
            call=ref(by_tool["confirm"].pending_call_id), resume_data=js('{"ok":true}'), wait=True
        ),
    )
    return run_id, await peer.chunks(run_id)


async def test_a_run_is_followed_from_every_position() -> None:
    """From the beginning, from within a stored row, from the last chunk: always the rest, and nothing
    twice. The finish chunks of earlier suspensions are passed over."""
    async with serving() as (server, peer):
        run_id, chunks = await through_two_suspensions(server, peer)
        finishes = [chunk.finish.reason for chunk in chunks if chunk.HasField("finish")]
        assert finishes == [
            result_pb2.FINISH_REASON_SUSPENDED,
            result_pb2.FINISH_REASON_SUSPENDED,
            result_pb2.FINISH_REASON_STOP,
        ]
        rows, _ = await server.store.read_chunks("local", run_id, after=0, limit_bytes=10**9)
        within = [row for row in rows if row.last > row.first]
        assert within, "no row holds more than one chunk: the test does not test what it should"
        for position in range(len(chunks)):
            for until_finished in (False, True):
                request = after(run_id, position, until_finished=until_finished)
                found = [c for response in await peer.call("WatchRun", request) for c in response.chunks]
                assert found == chunks[position:], position
        assert await peer.chunks(run_id, len(chunks)) == []


async def test_a_position_beyond_the_end_is_refused() -> None:
    """OUT_OF_RANGE, SEQUENCE_AHEAD with the last sequence, whatever the run does."""
    async with serving() as (server, peer):
        ended, _ = await through_two_suspensions(server, peer)
        parked, _ = await peer.parked()
        running = peer.open("Stream", stream("slow", run_id="runs"))
        await running.initial_metadata()
        for run_id in (ended, parked, "runs"):
            last = (await peer.run(run_id)).last_sequence
            for position in (last + 1, last + 1000, 2**63 - 1, 2**63, 2**64 - 1):
                for until_finished in (False, True):
                    request = after(run_id, position, until_finished=until_finished)
                    refusal = await peer.refuse("WatchRun", request)
                    assert (refusal.code, refusal.reason) == ("OUT_OF_RANGE", "SEQUENCE_AHEAD")
                    assert refusal.metadata == {"run_id": run_id, "last_sequence": str(last)}
        running.cancel()


async def test_a_watch_of_a_parked_run_ends_at_its_tail(peer: Peer) -> None:
    """With everything up to the `finish`, or with nothing for one who has it all."""
    run_id, _ = await peer.parked()
    chunks = await peer.chunks(run_id)
    assert kinds(chunks)[-1] == "finish"
    assert await peer.chunks(run_id, len(chunks)) == []


async def test_a_watch_until_finished_waits_through_suspensions() -> None:
    """It sees every chunk as it comes, over two suspensions, and ends when the run has ended."""
    async with serving(keep_alive=5.0) as (_, peer):
        run_id, pending = await peer.parked("both")
        by_tool = {call.tool_name: call for call in pending}
        watch = peer.open("WatchRun", after(run_id, until_finished=True))
        seen: list[Any] = []

        async def follow() -> None:
            async for response in watch:
                seen.extend(response.chunks)

        following = asyncio.create_task(follow())
        await until(lambda: len(seen) > 0 and seen[-1].HasField("finish"), "the first parking is seen")
        await peer.one("Approve", agents.ApproveRequest(call=ref(by_tool["pay"].pending_call_id)))
        await until(lambda: sum(c.HasField("finish") for c in seen) == 2, "the second parking is seen")
        assert not following.done()
        confirm = ref(by_tool["confirm"].pending_call_id)
        await peer.one("Resume", agents.ResumeRequest(call=confirm, resume_data=js('{"ok":true}')))
        await asyncio.wait_for(following, 10)
        assert seen[-1].finish.reason == result_pb2.FINISH_REASON_STOP
        assert seen == await peer.chunks(run_id)


async def test_a_watch_that_begins_while_the_run_works_has_no_gap() -> None:
    """Readers that come at any moment of a running run see all of it, in order."""
    words = " ".join(f"w{i}" for i in range(300))
    agent = Agent(id="paced", model=ScriptedModel([[{"text": words}]], pace=0.001))
    async with serving(agent) as (_, peer):
        main = peer.open("Stream", stream("paced", run_id="r"))
        await main.initial_metadata()

        async def late(delay: float, position: int) -> list[Any]:
            await asyncio.sleep(delay)
            last = (await peer.run("r")).last_sequence
            return await peer.chunks("r", min(position, last))

        readers = [late(i * 0.02, (i % 4) * 10) for i in range(24)]
        results = await asyncio.gather(*readers)
        everything = [c for response in await rest_of(main) for c in response.chunks]
        assert everything == await peer.chunks("r")
        for found in results:
            assert found == everything[found[0].sequence - 1 :]
        joined = "".join(c.text_delta.text for c in everything if c.HasField("text_delta"))
        assert joined == words


async def test_the_same_bytes_are_sent_again(peer: Peer) -> None:
    """What a stream showed, a watch shows again byte for byte, from any position: the stored bytes
    are those that were sent."""
    call = peer.open("Stream", stream("both", run_id="bytes"), raw_responses=True)
    sent = b"".join([data async for data in call])
    again = [
        b"".join([data async for data in peer.open("WatchRun", after("bytes"), raw_responses=True)])
        for _ in range(2)
    ]
    assert again == [sent, sent]
    total = len(agents.StreamResponse.FromString(sent).chunks)
    for position in range(total):
        rest = peer.open("WatchRun", after("bytes", position), raw_responses=True)
        assert sent.endswith(b"".join([data async for data in rest])), position


# ---- runs and readers come to an end ----


async def test_a_watch_of_a_run_that_is_deleted_ends(peer: Peer) -> None:
    """A reader that waits through suspensions does not wait for a run that is no more."""
    run_id, _ = await peer.parked()
    watch = peer.open("WatchRun", after(run_id, until_finished=True))
    assert (await watch.read()).chunks
    await peer.one("DeleteRun", runs.DeleteRunRequest(run_id=run_id, force=True))

    refusal = await refused(asyncio.wait_for(rest_of(watch), 10))
    assert (refusal.code, refusal.reason) == ("NOT_FOUND", "RUN_NOT_FOUND")
    assert refusal.metadata == {"run_id": run_id}


async def test_a_client_that_goes_away_leaves_the_run_running() -> None:
    """Whether it cancels its stream, its wait, or drops the connection."""
    gate = asyncio.Event()

    @tool
    async def wait_for_it() -> str:
        """Waits until it is let go."""
        await gate.wait()
        return "went on"

    agent = Agent(id="waits", model=once({"tool": "wait_for_it", "id": "c"}), tools=[wait_for_it])
    async with serving(agent) as (server, peer):
        streamed = peer.open("Stream", stream("waits", run_id="streamed"))
        await streamed.read()
        streamed.cancel()
        waited = peer.open("Generate", generate("waits", run_id="waited"), as_stream=True)
        await waited.initial_metadata()
        waited.cancel()
        async with peer_of(server.address) as other:
            dropped = other.open("Stream", stream("waits", run_id="dropped"))
            await dropped.read()
        await asyncio.sleep(0.1)
        for run_id in ("streamed", "waited", "dropped"):
            assert (await peer.run(run_id)).state == run_pb2.RUN_STATE_RUNNING
        gate.set()
        for run_id in ("streamed", "waited", "dropped"):
            chunks = await peer.chunks(run_id)
            assert kinds(chunks)[-1] == "finish"
            assert (await peer.run(run_id)).state == run_pb2.RUN_STATE_SUCCEEDED


async def test_what_a_tool_writes_is_streamed_while_it_runs() -> None:
    """`tool-output` and `data-NAME` arrive before the tool returns."""
    gate = asyncio.Event()

    @tool
    async def report(ctx: ToolContext[Any]) -> str:
        """Reports."""
        ctx.write({"percent": 50})
        ctx.write({"row": 1}, name="table", id="t1")
        await gate.wait()
        return "reported"

    agent = Agent(id="reports", model=once({"tool": "report", "id": "c"}), tools=[report])
    async with serving(agent) as (_, peer):
        call = peer.open("Stream", stream("reports"))
        seen: list[Any] = []
        while not any(chunk.HasField("custom") for chunk in seen):
            seen.extend((await call.read()).chunks)
        assert not any(chunk.HasField("tool_result") for chunk in seen)
        (output,) = [chunk.tool_output for chunk in seen if chunk.HasField("tool_output")]
        assert output.output.text == '{"percent":50}'
        gate.set()
        for response in await rest_of(call):
            seen.extend(response.chunks)
        assert kinds(seen)[-1] == "finish"


async def test_a_failed_run_is_a_result_and_its_stream_ends_well() -> None:
    """`error`, then `finish`; the RPC is OK, and says what the provider said."""
    failure = {"message": "no more", "status": 503, "code": "busy", "retryable": True}
    agent = Agent(id="fails", model=saying({"text": "so far"}, {"error": failure}))
    async with serving(agent) as (_, peer):
        responses = await peer.call("Stream", stream("fails", run_id="r"))
        chunks = [chunk for response in responses for chunk in response.chunks]
        assert kinds(chunks)[-1] == "finish"
        (error,) = [chunk.error.error for chunk in chunks if chunk.HasField("error")]
        assert (error.provider_status, error.provider_code, error.retryable) == (503, "busy", True)
        response = await peer.one("Generate", generate("fails"))
        assert response.run.state == run_pb2.RUN_STATE_FAILED
        assert response.result.error == error
        assert response.result.text == "so far"
