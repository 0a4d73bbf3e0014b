"""Streams: each chunk once, whatever breaks."""

import asyncio
import gc
import time

import grpc
import pytest

import entracte
from entracte import Chunk, Client, RunStream
from entracte.v1 import chunk_pb2, run_service_pb2
from tests.client.fake import FakeServer, Log, Refuse, js, simple_log


async def collect(stream: RunStream) -> list[Chunk]:
    return [chunk async for chunk in stream]


def named(server: FakeServer, client: Client, **options: object) -> RunStream:
    """A stream of the server's run."""
    return client.agent("support").stream("Hi", run_id=server.log.run_id, **options)  # type: ignore[arg-type]


async def until(condition: object, seconds: float = 5) -> None:
    end = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, "it did not happen in time"
        await asyncio.sleep(0.005)


async def test_chunks_come_typed_and_in_order(server: FakeServer, client: Client) -> None:
    stream = named(server, client)
    chunks = await collect(stream)
    assert [chunk.sequence for chunk in chunks] == list(range(1, 11))
    assert [chunk.type for chunk in chunks] == [
        "start", "step-start", "text-start", "text-delta", "text-delta", "text-delta", "text-delta",
        "text-end", "step-finish", "finish",
    ]  # fmt: skip
    first = chunks[0]
    assert first.type == "start"
    assert (first.agent_id, first.run_id, first.source, first.agent_path) == ("support", "r1", "agent", ())
    assert first.emit_time is not None
    assert first.emit_time.isoformat() == "2026-01-02T03:04:05.678901+00:00"
    assert stream.text == "Hello, world!"
    last = chunks[-1]
    assert last.type == "finish"
    assert (last.reason, last.stop_cause, last.usage.total_tokens) == ("stop", "model-finished", 15)
    assert server.asked("WatchRun") == []


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("position", range(10))
async def test_a_stream_that_breaks_anywhere_equals_one_that_does_not(
    server: FakeServer, client: Client, position: int, batch: int
) -> None:
    whole = await collect(named(server, client))
    server.batch = batch
    server.plans["Stream"] = [Refuse(after=position)]
    assert await collect(named(server, client)) == whole
    if position:
        assert [request.after_sequence for request in server.asked("WatchRun")] == [position]
    else:
        first, second = server.asked("Stream")[-2:]
        assert first == second


@pytest.mark.parametrize(
    "refusal",
    [
        Refuse(reason="SERVER_DRAINING", retry_after=0.01),
        Refuse(reason="READER_TOO_SLOW", retry_after=0.0),
        Refuse(reason="STORE_UNAVAILABLE", retry_after=0.01),
        Refuse(grpc.StatusCode.ABORTED, reason="RUN_LEASE_LOST", retry_after=0.01),
        Refuse(grpc.StatusCode.RESOURCE_EXHAUSTED, reason="TOO_MANY_STREAMS", retry_after=0.01),
        Refuse(grpc.StatusCode.INTERNAL, message="Received RST_STREAM with error code 2"),
        Refuse(grpc.StatusCode.UNKNOWN, message="Stream removed"),
        Refuse(grpc.StatusCode.CANCELLED, message="proxy"),
    ],
    ids=lambda refusal: refusal.reason or refusal.code.name,
)
async def test_a_stream_attaches_again_after_what_passes(
    server: FakeServer, client: Client, refusal: Refuse
) -> None:
    refusal.after = 4
    server.plans["Stream"] = [refusal]
    refusal_again = Refuse(**{**refusal.__dict__, "after": 2})
    server.plans["WatchRun"] = [refusal_again, Refuse(after=0), None]
    chunks = await collect(named(server, client))
    assert [chunk.sequence for chunk in chunks] == list(range(1, 11))


async def test_a_first_call_that_a_stopping_server_cancelled_is_made_again(server: FakeServer) -> None:
    """gRPC cancels what arrives just as a server stops; beside it other processes serve."""
    server.plans["Stream"] = [Refuse(grpc.StatusCode.CANCELLED, message="")]
    async with Client(server.address) as client:
        assert len(await collect(named(server, client))) == 10
    server.plans["ListRuns"] = [Refuse(grpc.StatusCode.CANCELLED, message="")]
    async with Client(server.address) as client:
        await client.runs.list_page()
        assert len(server.asked("ListRuns")) == 2


async def test_a_stream_does_not_attach_again_after_what_lasts(server: FakeServer, client: Client) -> None:
    server.plans["Stream"] = [Refuse(grpc.StatusCode.INTERNAL, reason="INTERNAL", after=4)]
    with pytest.raises(entracte.Internal):
        await collect(named(server, client))
    assert server.asked("WatchRun") == []


async def test_retry_info_is_waited_for(server: FakeServer, client: Client) -> None:
    server.plans["Stream"] = [Refuse(reason="SERVER_DRAINING", retry_after=0.3, after=4)]
    start = time.monotonic()
    await collect(named(server, client))
    assert time.monotonic() - start >= 0.3


async def test_a_stream_that_ends_before_its_finish_is_a_broken_one(
    server: FakeServer, client: Client
) -> None:
    server.shown = 4  # the server says OK too early

    async def show_the_rest() -> None:
        await until(lambda: server.asked("WatchRun"))
        server.go_on()

    showing = asyncio.create_task(show_the_rest())
    chunks = await collect(named(server, client))
    await showing
    assert [chunk.sequence for chunk in chunks] == list(range(1, 11))


async def test_a_stream_without_end_is_given_up(server: FakeServer) -> None:
    server.shown = 4
    async with Client(server.address, reattach_timeout=0.2) as client:
        with pytest.raises(entracte.StreamBroken) as caught:
            await collect(named(server, client))
    assert caught.value.metadata == {"run_id": "r1", "sequence": "4"}


async def test_a_server_that_is_gone_is_given_up(server: FakeServer) -> None:
    server.plans["Stream"] = [Refuse(after=4)]
    server.plans["WatchRun"] = [Refuse() for _ in range(1000)]
    async with Client(server.address, reattach_timeout=0.2) as client:
        stream = named(server, client)
        with pytest.raises(entracte.ServerUnreachable):
            await collect(stream)
    assert stream.position == 4


async def test_chunks_that_come_again_are_dropped(server: FakeServer, client: Client) -> None:
    server.plans["Stream"] = [Refuse(after=6)]

    original = server.follow

    async def follow(method: str, request: object, context: object, response: type, after: int = 0) -> None:
        await original(method, request, context, response, max(0, after - 3))

    server.follow = follow  # type: ignore[method-assign]
    chunks = await collect(named(server, client))
    assert [chunk.sequence for chunk in chunks] == list(range(1, 11))


async def test_a_gap_is_an_error(server: FakeServer, client: Client) -> None:
    del server.log.chunks[4]
    server.shown = len(server.log.chunks)
    with pytest.raises(entracte.SequenceGap) as caught:
        await collect(named(server, client))
    assert caught.value.metadata == {"run_id": "r1", "expected": "5", "sequence": "6"}
    assert isinstance(caught.value, entracte.EntracteError)


def unknown(chunk: chunk_pb2.Chunk, ignorable: bool) -> chunk_pb2.Chunk:
    """The chunk with a payload of a later version: field 200, empty."""
    made = chunk_pb2.Chunk()
    made.CopyFrom(chunk)
    made.ClearField(made.WhichOneof("payload") or "start")
    made.ignorable = ignorable
    return chunk_pb2.Chunk.FromString(made.SerializeToString() + b"\xc2\x0c\x00")


async def test_an_unknown_chunk_is_skipped_if_it_may_be(server: FakeServer, client: Client) -> None:
    server.log.chunks[4] = unknown(server.log.chunks[4], ignorable=True)
    chunks = await collect(named(server, client))
    assert [chunk.sequence for chunk in chunks] == [1, 2, 3, 4, 6, 7, 8, 9, 10]


async def test_an_unknown_chunk_is_an_error_if_it_may_not_be_skipped(
    server: FakeServer, client: Client
) -> None:
    server.log.chunks[4] = unknown(server.log.chunks[4], ignorable=False)
    with pytest.raises(entracte.UnknownChunk):
        await collect(named(server, client))


async def test_keep_alives_are_not_chunks(server: FakeServer, client: Client) -> None:
    server.keep_alive = True
    assert len(await collect(named(server, client))) == 10


async def test_keep_alives_alone_are_no_progress(server: FakeServer) -> None:
    server.keep_alive = True
    server.plans["Stream"] = [Refuse(take_first=True) for _ in range(1000)]
    async with Client(server.address, reattach_timeout=0.2) as client:
        with pytest.raises(entracte.ServerUnreachable):
            await collect(named(server, client))


async def test_leaving_the_loop_cancels_the_call(server: FakeServer, client: Client) -> None:
    server.hold_after = 5
    async for chunk in named(server, client):
        if chunk.sequence == 5:
            break
    await until(lambda: server.cancelled == ["Stream"])


async def test_leaving_the_block_cancels_the_call_when_the_loop_fails(
    server: FakeServer, client: Client
) -> None:
    server.hold_after = 5

    async def failing() -> None:
        async with named(server, client) as stream:
            async for chunk in stream:
                if chunk.sequence == 5:
                    raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await failing()
    await until(lambda: server.cancelled == ["Stream"])


async def test_aclose_ends_the_loop_of_another_task(server: FakeServer, client: Client) -> None:
    server.hold_after = 5
    stream = named(server, client)
    reading = asyncio.create_task(collect(stream))
    await until(lambda: stream.position == 5)
    await stream.aclose()
    assert len(await reading) == 5
    await until(lambda: server.cancelled == ["Stream"])


async def test_a_cancelled_task_is_cancelled(server: FakeServer, client: Client) -> None:
    server.hold_after = 5
    stream = named(server, client)
    reading = asyncio.create_task(collect(stream))
    await until(lambda: stream.position == 5)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    await until(lambda: server.cancelled == ["Stream"])


async def test_another_loop_goes_on_after_the_last_chunk(server: FakeServer, client: Client) -> None:
    stream = named(server, client)
    server.batch = 4
    sequences: list[int] = []
    while len(sequences) < 10:
        async for chunk in stream:
            sequences.append(chunk.sequence)
            break
    assert sequences == list(range(1, 11))
    assert [chunk async for chunk in stream] == []


async def test_the_result_of_a_stream_that_was_left_is_the_runs(server: FakeServer, client: Client) -> None:
    server.result.text = "Hello, world!"
    stream = named(server, client)
    async for _ in stream:
        break
    result = await stream.result()
    assert result.text == "Hello, world!"
    assert stream.text == "Hello, world!"
    assert await stream.result() is result
    assert len(server.asked("GetRun")) == 1


async def test_only_one_loop_may_read(server: FakeServer, client: Client) -> None:
    stream = named(server, client)
    async for _ in stream:
        with pytest.raises(RuntimeError, match="being read"):
            await stream.result()
        break


async def test_nothing_is_sent_before_the_first_chunk_is_asked_for(
    server: FakeServer, client: Client
) -> None:
    stream = client.agent("support").stream("Hi")
    assert len(stream.run_id) == 32
    await asyncio.sleep(0.02)
    assert server.calls == []
    await stream.aclose()


async def test_text_stream_is_the_text(server: FakeServer, client: Client) -> None:
    assert [piece async for piece in named(server, client).text_stream] == ["Hello", ", ", "world", "!"]


async def test_leaving_the_text_stream_cancels_the_call(server: FakeServer, client: Client) -> None:
    server.hold_after = 5
    async for _ in named(server, client).text_stream:
        break
    gc.collect()
    await until(lambda: server.cancelled == ["Stream"])


async def test_a_void_attempt_is_shown_and_dropped_from_the_text() -> None:
    log = Log().add("start", step=0, agent_id="support")
    log.add("step_start").add("text_delta", id="t", text="Wro")
    log.add("tool_call", tool_call_id="c1", tool_name="look", args=js("{}"))
    log.add("text_delta", path=["researcher"], id="t", text="inner")
    log.add("step_start", attempt=2).add("text_delta", attempt=2, id="t", text="Right")
    log.add("step_finish", attempt=2).finish()
    async with FakeServer(log).running() as server, Client(server.address) as client:
        stream = named(server, client)
        chunks = await collect(stream)
    assert len(chunks) == len(log.chunks)
    assert stream.text == "Right"
    assert [step.tool_calls for step in stream.fold.steps] == [()]


async def test_a_timeout_bounds_the_wait(server: FakeServer, client: Client) -> None:
    server.hold_after = 5
    start = time.monotonic()
    with pytest.raises(entracte.DeadlineExceeded):
        await collect(named(server, client, timeout=0.2))
    assert 0.15 < time.monotonic() - start < 3


async def test_watching_from_a_position(server: FakeServer, client: Client) -> None:
    chunks = await collect(client.runs.watch("r1", after=7))
    assert [chunk.sequence for chunk in chunks] == [8, 9, 10]


async def test_watching_at_the_tail_of_a_parked_run_ends(server: FakeServer, client: Client) -> None:
    assert await collect(client.runs.watch("r1", after=10)) == []
    assert len(server.asked("WatchRun")) == 1


async def test_watching_until_finished_waits_through_suspensions() -> None:
    log = Log().add("start", step=0).wait_for("p1", "refund", "APPROVAL").park(("p1", "refund", "APPROVAL"))
    log.resolved("p1", "APPROVE").text("done").finish()
    async with FakeServer(log).running() as server, Client(server.address) as client:
        server.plans["WatchRun"] = [Refuse(after=3), None]  # breaks where a plain watch would end
        sequences = []
        async for chunk in client.runs.watch("r1", until_finished=True):
            sequences.append(chunk.sequence)
            if len(sequences) == 3:
                asyncio.get_running_loop().call_later(0.05, server.go_on)
        assert sequences == list(range(1, len(log.chunks) + 1))
        assert [request.until_finished for request in server.asked("WatchRun")] == [True, True]


async def test_a_watch_passes_over_earlier_parkings() -> None:
    log = Log().add("start", step=0).park(("p1", "refund", "APPROVAL")).resolved("p1", "APPROVE").finish()
    async with FakeServer(log).running() as server, Client(server.address) as client:
        server.go_on()
        assert len(await collect(client.runs.watch("r1"))) == 4


async def test_the_run_of_a_sub_agent_is_a_part_of_its_roots_log(client: Client, server: FakeServer) -> None:
    log = Log("root").add("start", step=0)
    for text in "abc":
        log.add("text_delta", path=["researcher"], id="t", text=text)
        log.add("text_delta", id="t", text="outer")
    log.add("finish", path=["researcher"])
    part = [chunk for chunk in log.chunks if chunk.agent_path]

    async def follow(method: str, request: object, context: object, response: type, after: int = 0) -> None:
        for chunk in part:
            await context.write(run_service_pb2.WatchRunResponse(chunks=[chunk]))  # type: ignore[attr-defined]

    server.follow = follow  # type: ignore[method-assign]
    chunks = await collect(client.runs.watch("child"))
    assert [chunk.sequence for chunk in chunks] == [2, 4, 6, 8]
    assert chunks[0].agent_path[0].agent_id == "researcher"


async def test_a_stream_survives_cut_connections() -> None:
    """Through a relay that cuts every connection after a few bytes."""
    log = Log().add("start", step=0, agent_id="support").text(*["word " * 40] * 60).finish()
    async with FakeServer(log).running() as server:
        host, port = server.address.split(":")
        budget = 600

        async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limit: int) -> None:
            try:
                while limit > 0 and (data := await reader.read(256)):
                    writer.write(data)
                    await writer.drain()
                    limit -= len(data)
            except ConnectionError:
                pass
            finally:
                writer.transport.abort()

        connections = 0

        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal budget, connections
            connections += 1
            budget += 400
            up_reader, up_writer = await asyncio.open_connection(host, int(port))
            await asyncio.gather(pump(reader, up_writer, 1 << 30), pump(up_reader, writer, budget))

        proxy = await asyncio.start_server(relay, "127.0.0.1", 0)
        address = f"127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
        options = {"grpc.initial_reconnect_backoff_ms": 100, "grpc.min_reconnect_backoff_ms": 100}
        async with proxy, Client(address, channel_options=options) as client:
            chunks = await collect(named(server, client))
        assert [chunk.sequence for chunk in chunks] == list(range(1, len(log.chunks) + 1))
        assert connections > 2


def test_a_log_is_what_the_tests_say() -> None:
    assert [chunk.sequence for chunk in simple_log().chunks] == list(range(1, 11))
