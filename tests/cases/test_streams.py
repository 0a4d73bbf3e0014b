"""Streams: they end, they say how, they can be taken up again, and no reader holds up a run."""

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

import entracte
from entracte.v1 import chunk_pb2, result_pb2, run_service_pb2
from entracte_server import ToolContext, ask_user, tool
from entracte_server.models import ResponseFormats
from entracte_server.testing import scripted
from tests.cases.backend import Answer, Stall, asking
from tests.cases.backend import text as said
from tests.cases.support import (
    WAIT,
    Caller,
    announced,
    app_of,
    chunks_of,
    finish_of,
    gap_free,
    kind_of,
    kinds,
    payloads,
    read_refusal,
    reason_name,
    served,
    serving,
    text_of,
    until,
)


@tool(requires_approval=True)
async def gated(v: int = 0) -> int:
    return v


@tool
async def plain(v: int = 0) -> int:
    return v


@tool
async def fails() -> None:
    raise ValueError("no")


def gate(id: str = "c1") -> dict[str, Any]:
    return {"tool": "gated", "id": id, "args": {}}


async def test_a_stream_ends_when_its_run_parks() -> None:
    """ST-01: the last chunk of a parked run is `finish` with all that waits; the stream ends OK, and
    Generate says the same."""
    question = {"tool": "ask_user", "id": "q", "args": {"question": "Q?"}}
    step = [{"text": "Wait. "}, gate(), question, {"tool": "plain", "id": "p"}]
    model = scripted([step], position="transcript")
    async with serving(app_of(model, [gated, plain, ask_user])) as caller:
        async with asyncio.timeout(5):
            chunks = await caller.stream()
        async with asyncio.timeout(5):
            generated = await caller.generate()
        finish = finish_of(chunks)
        assert finish.reason == result_pb2.FINISH_REASON_SUSPENDED
        assert finish.stop_cause == result_pb2.STOP_CAUSE_SUSPENDED
        assert {c.tool_call_id for c in finish.open_calls} == {"c1", "q"}
        assert {c.pending_call_id for c in finish.open_calls} == {
            c.pending_call_id for c in announced(chunks)
        }
        stored = (await caller.get_run(chunks[0].run_id)).result
        for result in (generated.result, stored):
            assert result.finish_reason == finish.reason
            assert result.text == text_of(chunks) == "Wait. "
            assert result.usage == finish.usage
            waiting = [(c.tool_call_id, c.tool_name, c.kind) for c in result.pending_calls]
            assert waiting == [(c.tool_call_id, c.tool_name, c.kind) for c in finish.open_calls]


async def test_what_a_resumed_run_shows_can_be_understood_alone(tmp_path: Path) -> None:
    """ST-02: a client that comes in after a decision gets, from the start, each call before its result;
    and each result by itself names its call, tool and arguments."""
    step = [{"tool": "gated", "id": "c1", "args": {"v": 7}}, {"tool": "plain", "id": "c2"}]
    app = app_of(scripted([step, [{"text": "end"}]], position="transcript"), [gated, plain])
    store = tmp_path / "db"
    async with serving(app, store=store) as caller:
        first = await caller.stream()
    async with serving(app, store=store) as caller:
        decided = await caller.approve(announced(first)[0], wait=False)
        since = await caller.watch(first[0].run_id, decided.run.last_sequence)
        (result,) = payloads(since, "tool_result")
        assert (result.tool_call_id, result.tool_name, result.args.text) == ("c1", "gated", '{"v":7}')
        chunks = await caller.watch(first[0].run_id)
        assert chunks == first + since
        seen: set[str] = set()
        for chunk in chunks:
            if kind_of(chunk) == "tool_call":
                seen.add(chunk.tool_call.tool_call_id)
            elif kind_of(chunk) == "tool_result":
                assert chunk.tool_result.tool_call_id in seen
        assert kinds(chunks).count("start") == 1


ENDS: dict[str, tuple[list[list[dict[str, Any]]], str, str]] = {
    "succeeded": ([[{"text": "end"}]], "stop", "SUCCEEDED"),
    "failed": ([[{"text": "half"}, {"error": "broken"}]], "error", "FAILED"),
    "suspended": ([[gate()]], "suspended", "SUSPENDED"),
    "cancelled": ([[gate()]], "aborted", "CANCELLED"),
}


@pytest.mark.parametrize("how", ENDS)
async def test_attaching_to_a_run_at_rest(how: str, tmp_path: Path) -> None:
    """ST-10: attaching to a run that rests replays it, ends with its `finish` and OK, from any position,
    in the same process and in a later one."""
    script, reason, state = ENDS[how]
    app = app_of(scripted(script, position="transcript"), [gated])
    store = tmp_path / "db"
    async with serving(app, store=store) as caller:
        first = await caller.stream()
        run_id = first[0].run_id
        if how == "cancelled":
            await caller.cancel(run_id)
    async with serving(app, store=store) as caller:
        assert await caller.state(run_id) == state
        async with asyncio.timeout(10):
            whole = await caller.watch(run_id)
            assert whole[: len(first)] == first
            assert gap_free(whole)
            assert reason_name(finish_of(whole).reason) == reason
            for after in range(len(whole) + 1):
                assert await caller.watch(run_id, after) == whole[after:]


async def test_a_watch_passes_over_earlier_parkings() -> None:
    """ST-10: attached from the start, a watch passes over the `finish` chunks of earlier parkings and
    ends where the run rests now; past the end it is refused."""
    model = scripted([[gate("c1")], [gate("c2")], [{"text": "end"}]])
    async with serving(app_of(model, [gated])) as caller:
        waiting = (await caller.generate()).result.pending_calls[0]
        second = await caller.approve(waiting)
        chunks = await caller.watch(waiting.run_id)
        assert kinds(chunks).count("finish") == 2
        await caller.approve(second.result.pending_calls[0])
        chunks = await caller.watch(waiting.run_id)
        assert [reason_name(f.reason) for f in payloads(chunks, "finish")] == ["suspended"] * 2 + ["stop"]
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await caller.watch(waiting.run_id, len(chunks) + 1)
        refusal = read_refusal(raised.value)
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.OUT_OF_RANGE, "SEQUENCE_AHEAD")
        assert refusal.metadata["last_sequence"] == str(len(chunks))


async def test_an_error_is_the_end() -> None:
    """ST-07: after an error chunk comes `finish` and the end of the RPC, before and after a first chunk,
    for a model that fails as foreseen and for one that does not."""

    async def broken(request: Any) -> AsyncIterator[Any]:
        nothing: dict[str, Any] = {}
        yield [nothing["secret path /etc/x"]]

    class Broken:
        name = "broken/model"
        response_formats: ResponseFormats = "none"
        stream = staticmethod(broken)

        def request_body(self, request: Any) -> str:
            return "{}"

    for model, kind in (
        (scripted([[{"throw": "no"}]]), "provider_error"),
        (scripted([[{"text": "a"}, {"error": "no"}]]), "provider_error"),
        (Broken(), "internal"),
    ):
        async with serving(app_of(model)) as caller:
            async with asyncio.timeout(5):
                chunks = await caller.stream()
            assert [e.error.kind for e in payloads(chunks, "error")] == [kind]
            assert reason_name(finish_of(chunks).reason) == "error"
            assert "secret" not in str(chunks)
            assert await caller.state(chunks[0].run_id) == "FAILED"


async def test_callbacks_do_not_hold_up_the_end() -> None:
    """ST-11: with every callback registered, slow ones and raising ones, a stream after an approval ends
    with its whole text."""
    model = scripted([[gate("c1")], [{"text": "the end"}]])
    told: list[str] = []

    async def slow(value: Any) -> None:
        told.append(type(value).__name__)
        await asyncio.sleep(0.02)

    def raising(value: Any) -> None:
        told.append("raised")
        raise RuntimeError("a callback's own fault")

    async with served(app_of(model, [gated])) as server, entracte.Client(server.address) as client:
        agent = client.agent("agent")
        parked = await agent.generate("go")
        stream = agent.approve_stream(
            parked.pending_calls[0],
            on_chunk=raising,
            on_step_finish=slow,
            on_finish=slow,
            on_error=slow,
            on_abort=slow,
        )
        async with asyncio.timeout(10):
            chunks = [chunk async for chunk in stream]
        assert chunks[-1].type == "finish"
        assert stream.text == "the end"
        assert told.count("raised") == len(chunks)
        assert told.count("GenerateResult") == 1


async def test_chunks_arrive_in_order_at_every_reader() -> None:
    """ST-12: a thousand small deltas, several readers that come at different times, and tools that
    write from threads meanwhile: every reader gets the same chunks, in order, without a gap."""

    @tool
    def chatty(v: int, ctx: ToolContext) -> int:
        for i in range(50):
            ctx.write({"v": v, "i": i})
        return v

    words = " ".join(str(i) for i in range(1000))
    step = [{"text": words}, *({"tool": "chatty", "id": f"c{i}", "args": {"v": i}} for i in range(4))]
    model = scripted([step, [{"text": words}]])
    async with serving(app_of(model, [chatty])) as caller:
        rpc = caller.open_stream()
        reader = aiter(chunks_of(rpc))
        mine = [await anext(reader)]
        run_id = mine[0].run_id
        others = {0: asyncio.create_task(caller.watch(run_id, 0))}
        async for chunk in reader:
            mine.append(chunk)
            if len(mine) in (2, 3, 500, 900):  # a position can be followed once it is there
                others[len(mine)] = asyncio.create_task(caller.watch(run_id, len(mine)))
        assert gap_free(mine)
        assert text_of(mine) == words + words
        for after, other in others.items():
            assert await other == mine[after:]
        outputs = [o.output.text for o in payloads(mine, "tool_output")]
        assert len(outputs) == 200
        for v in range(4):
            own = [text for text in outputs if f'"v":{v}' in text]
            assert own == [f'{{"v":{v},"i":{i}}}' for i in range(50)]


async def test_a_slow_reader_holds_up_nobody() -> None:
    """GR-06: a reader that does not read is cut off with a word to come again; the run and the others
    are not slowed, and what the reader missed can be read."""
    model = scripted([[{"text": "x" * 64_000 + " "}] * 400])
    app = app_of(model)
    async with serving(app, reader_timeout=0.5) as caller, Caller(caller.address) as lazy:
        rpc = lazy.open_stream()
        first = await rpc.read()
        run_id = first.chunks[0].run_id
        await until(lambda: caller.has_state(run_id, "SUCCEEDED"), WAIT)
        await asyncio.sleep(0.7)
        got = len(first.chunks)

        async def read_on() -> int:
            count = got
            while (response := await rpc.read()) is not grpc.aio.EOF:
                count += len(response.chunks)
            return count

        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await read_on()
        refusal = read_refusal(raised.value)
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "READER_TOO_SLOW")
        rest = await lazy.watch(run_id, got)
        assert gap_free(rest, got)
        assert kind_of(rest[-1]) == "finish"


async def test_a_client_that_goes_away_leaves_the_run_alone() -> None:
    """CT-01: a run outlives its caller: the stream is cancelled after three chunks and the run goes on to
    its end; nothing is left running after that."""
    entered, release = asyncio.Event(), asyncio.Event()

    @tool
    async def slow() -> str:
        entered.set()
        await release.wait()
        return "done"

    model = scripted([[{"tool": "slow", "id": "c1"}], [{"text": "end"}]])
    async with served(app_of(model, [slow])) as server, Caller(server.address) as caller:
        rpc = caller.open_stream()
        reader = aiter(chunks_of(rpc))
        first = [await anext(reader) for _ in range(3)]
        run_id = first[0].run_id
        await entered.wait()
        rpc.cancel()
        await until(lambda: not server.engine.hub.followers(("local", run_id)))
        release.set()
        assert finish_of(await caller.watch(run_id)).reason == result_pb2.FINISH_REASON_STOP
        await until(lambda: not server.engine.active_runs)


async def test_a_run_bound_to_its_readers_ends_without_them() -> None:
    """CT-01: asked to, a run whose last reader left is cancelled: its provider's connection is closed and
    no task of it stays."""
    before = asyncio.all_tasks()
    stalled: Answer = [said("Once"), Stall()]
    async with asking(app_of("mock/m"), stalled, disconnect_grace=0.1) as (caller, provider):
        rpc = caller.open_stream(cancel_on_disconnect=True)
        reader = aiter(chunks_of(rpc))
        async for chunk in reader:
            if kind_of(chunk) == "text_delta":
                break
        rpc.cancel()
        await until(lambda: caller.has_state(chunk.run_id, "CANCELLED"))
        await until(lambda: provider.closed > 0)
        assert (await caller.get_run(chunk.run_id)).result.text == "Once"
        assert not [t for t in asyncio.all_tasks() - before if t.get_name().startswith(("call:", "tool:"))]


async def test_the_last_chunk_is_durable_before_it_is_sent(tmp_path: Path) -> None:
    """CT-05: with a database that is slow for everybody, a client that closes right after the last chunk
    has seen only what is stored, and its leaving cancels no write."""
    store = tmp_path / "db"
    model = scripted([[{"text": "one two three"}]])
    async with serving(app_of(model), store=store) as caller:

        def hold(seconds: float) -> None:
            other = sqlite3.connect(store, isolation_level=None, timeout=10)
            try:
                other.execute("BEGIN IMMEDIATE")
                time.sleep(seconds)
                other.execute("ROLLBACK")
            finally:
                other.close()

        for _ in range(5):
            holding = asyncio.create_task(asyncio.to_thread(hold, 0.1))
            rpc = caller.open_stream()
            async for chunk in chunks_of(rpc):
                if kind_of(chunk) == "finish":
                    rpc.cancel()
                    break
            reader = sqlite3.connect(f"file:{store}?mode=ro", uri=True)
            try:
                row = reader.execute(
                    "SELECT state, last_sequence FROM runs WHERE run_id = ?", (chunk.run_id,)
                ).fetchone()
            finally:
                reader.close()
            assert row == ("succeeded", chunk.sequence)
            await holding
            assert gap_free(await caller.watch(chunk.run_id))


async def test_quiet_streams_are_kept_alive() -> None:
    """ST-12, CT-07: while nothing happens a reader gets messages that say up to where it has everything;
    a parked run can be watched through its parking."""
    model = scripted([[gate("c1")], [{"text": "end"}]])
    async with serving(app_of(model, [gated]), keep_alive=0.05) as caller:
        waiting = (await caller.generate()).result.pending_calls[0]
        request = run_service_pb2.WatchRunRequest(run_id=waiting.run_id, until_finished=True)
        rpc = caller.runs.WatchRun(request, timeout=WAIT)
        chunks: list[chunk_pb2.Chunk] = []
        quiet = 0
        async for response in rpc:
            chunks += response.chunks
            if not response.chunks:
                quiet += 1
                assert response.through_sequence == len(chunks)
                if quiet == 3:
                    await caller.approve(waiting, wait=False)
        assert quiet >= 3
        assert reason_name(finish_of(chunks).reason) == "stop"
        assert gap_free(chunks)
