"""Our own sequences: models that fail, cancellation, time limits, readers, servers that stop."""

import asyncio
import pathlib
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from entracte.v1 import inbox_service_pb2, inbox_service_pb2_grpc, result_pb2, run_service_pb2
from entracte.v1 import options_pb2 as options
from tests.scenarios import lines, own_tools
from tests.scenarios.own import BEGIN, GO_ON, PAY, ending, events_of, result_of, shop, use
from tests.scenarios.play import Conversation, Decide, Setup, Start, Step, conversation, play, refusal_of
from tests.scenarios.table import approve, resume


def retries(count: int) -> Setup:
    """The agent with so many retries of a model call."""
    return shop(model_settings=options.ModelSettings(max_retries=count))


async def test_a_call_that_failed_is_made_again(tmp_path: pathlib.Path) -> None:
    """A call that failed before its answer began is tried again, and leaves no trace in the stream."""
    down = [{"throw": "busy", "status": 503, "retryable": True}]
    came = await play(retries(1), [down, [{"text": "ok"}]], [Start()], "stream", tmp_path)
    assert events_of(came) == [*BEGIN[:1], *ending("ok", 1)]


@pytest.mark.parametrize(("count", "calls"), [(0, 1), (2, 3)])
async def test_a_run_that_failed_is_a_result(tmp_path: pathlib.Path, count: int, calls: int) -> None:
    """When the model is down for good the run fails: an error, how it came, and what there was before."""
    down = [{"throw": "busy", "status": 503, "code": "overloaded", "retryable": True, "retryAfter": 2}]
    script = [[use("nothing")], *([down] * 4)]
    async with conversation(retries(count), script, tmp_path) as talk:
        answered = await talk.take(Start(), "stream")
        assert talk.model.calls == 1 + calls
    assert lines.lines_of(answered.chunks)[-5:] == [
        GO_ON,
        "step-start",
        "error busy",
        lines.step_finish("error", 1),
        lines.finish("error", 1),
    ]
    assert answered.result is not None
    error = answered.result.error
    assert (error.kind, error.provider_status, error.provider_code) == ("provider_error", 503, "overloaded")
    assert (error.retryable, error.retry_after.seconds) == (True, 2)
    assert len(answered.result.tool_results) == 1
    assert answered.result.stop_cause == result_pb2.STOP_CAUSE_ERROR


@pytest.mark.parametrize(
    ("end", "kind"),
    [
        ({"finish": None}, "cut"),
        ({"breakStream": "reset"}, "connection"),
        ({"error": "no"}, "provider_error"),
    ],
    ids=["cut", "broken", "error"],
)
async def test_an_answer_that_is_not_whole(tmp_path: pathlib.Path, end: dict[str, Any], kind: str) -> None:
    """An answer without its end never passes for a whole one: its calls are not executed, its text is
    kept, nothing is tried again once something was shown."""
    script = [[{"text": "half "}, use("nothing"), end], [{"text": "never"}]]
    async with conversation(retries(3), script, tmp_path) as talk:
        answered = await talk.take(Start(), "stream")
        assert talk.model.calls == 1
        assert talk.log == []
    assert answered.result is not None
    assert answered.result.error.kind == kind
    result = lines.result_of(answered.result)
    assert (result.finish, result.text, result.tool_calls) == ("error", "half ", [])
    assert result.steps == ['error 0/0/0 "half "']


async def test_the_next_model_is_another_attempt(tmp_path: pathlib.Path) -> None:
    """Where a model fails in the middle of its answer the next one begins the step again: what was shown
    of the first is void, and not part of the result."""
    setup = Setup(own_tools.shop, fallback=[[{"text": "whole"}]])
    async with conversation(setup, [[{"text": "half "}, {"error": "no"}]], tmp_path) as talk:
        answered = await talk.take(Start(), "stream")
    assert lines.lines_of(answered.chunks) == [*BEGIN, *lines.say("half "), *ending("whole", 1)]
    attempts = {
        chunk.attempt: chunk.step_start.model
        for chunk in answered.chunks
        if chunk.WhichOneof("payload") == "step_start"
    }
    assert list(attempts) == [1, 2]
    assert answered.result is not None
    assert answered.result.text == "whole"
    assert len(answered.result.steps) == 1


async def test_an_answer_with_nothing_in_it(tmp_path: pathlib.Path) -> None:
    """An empty answer that ended well is a success; one that ended for a reason nobody knows is not."""
    came = await play(shop(), [[{"finish": "stop"}]], [Start()], "stream", tmp_path / "stop")
    assert result_of(came) == lines.Result("stop", usage=lines.cost(1), steps=[f'stop {lines.cost(1)} ""'])
    came = await play(retries(0), [[{"finish": "weird"}]], [Start()], "stream", tmp_path / "weird")
    assert result_of(came).finish == "error"


# ---- cancellation ----


def _streams(talk: Conversation) -> bool:
    return any(chunk.text_delta.text == "one " for chunk in talk.chunks)


def _runs(talk: Conversation) -> bool:
    return len(talk.log) == 1


async def test_cancelled_while_the_model_answers(tmp_path: pathlib.Path) -> None:
    """What had arrived is kept; the run ends with `abort` and `finish`."""
    script = [[{"text": "one "}, {"delay": 20_000}, {"text": "two"}]]
    came = await play(shop(), script, [Start(cancel_when=_streams)], "stream", tmp_path)
    assert events_of(came) == [*BEGIN, *lines.say("one "), "abort", "finish aborted 0/0/0"]
    assert result_of(came) == lines.Result("aborted", "one ", steps=['aborted 0/0/0 "one "'])


async def test_cancelled_while_a_tool_runs(tmp_path: pathlib.Path) -> None:
    """The tool is cancelled; what waits beside it is closed and can no longer be decided."""
    script = [[use("hang", "c1"), use("pay", "c2", **PAY)], [{"text": "never"}]]
    steps: list[Step] = [Start(cancel_when=_runs), approve("c2")]
    came = await play(shop(), script, steps, "stream", tmp_path)
    assert events_of(came, 0)[-3:] == [
        lines.approval("c2", "pay", PAY),
        "abort",
        lines.finish("aborted", 1),
    ]
    assert came.phases[1].refusal in (
        "FAILED_PRECONDITION RUN_FINISHED",
        "FAILED_PRECONDITION PENDING_CALL_ALREADY_DECIDED",
    )
    assert came.entered == ['["hang"]', '["hang ended"]']


async def test_cancelled_while_parked(tmp_path: pathlib.Path) -> None:
    """A parked run can be cancelled: its calls are closed, its text is kept, its tools are not entered."""
    script = [[{"text": "pre "}, use("pay", **PAY)]]
    async with conversation(shop(), script, tmp_path) as talk:
        await talk.take(Start(), "stream")
        after = (await talk.get()).run.last_sequence
        request = run_service_pb2.CancelRunRequest(run_id=talk.run_id, reason="no longer", wait=True)
        await talk.runs.CancelRun(request)
        chunks = await talk.watch(after)
        assert lines.lines_of(chunks) == ["abort", lines.finish("aborted", 1)]
        assert chunks[0].abort.reason == "no longer"
        told = await talk.get()
        assert (told.result.text, list(told.run.pending_calls)) == ("pre ", [])
        refused = await talk.take(approve(), "stream")
        assert refused.refusal == "FAILED_PRECONDITION RUN_FINISHED"
        again = await talk.runs.CancelRun(request)
        assert again.run == told.run
        assert talk.log == []


async def test_the_time_of_a_run(tmp_path: pathlib.Path) -> None:
    """`execution_timeout` bounds what a run executes, not what it waits: it fails, and says why."""
    limit = Duration(nanos=300_000_000)
    script = [[use("pay", **PAY)], [use("hang", "c2")]]
    setup = shop(execution_timeout=limit)
    async with conversation(setup, script, tmp_path) as talk:
        await talk.take(Start(), "stream")
        await asyncio.sleep(0.4)
        answered = await talk.take(approve(), "stream")
    told = lines.lines_of(answered.chunks)
    assert told[1] == lines.result("c1", "pay", PAY, {"paid": 500})
    assert told[-1] == lines.finish("error", 2)
    assert answered.result is not None
    assert answered.result.error.kind == "timeout"
    assert answered.result.stop_cause == result_pb2.STOP_CAUSE_TIMEOUT
    assert talk.log[-1] == '["hang ended"]'


# ---- readers ----


async def test_reading_from_any_place(tmp_path: pathlib.Path) -> None:
    """From every position the rest of the run is shown, the `finish` of its parkings included; a position
    beyond the end is refused."""
    script = [[use("pay", **PAY)], [{"text": "ok"}]]
    async with conversation(shop(), script, tmp_path) as talk:
        await talk.take(Start(), "stream")
        await talk.take(approve(), "stream")
        every = await talk.watch(0)
        for after in range(len(every)):
            assert await talk.watch(after) == every[after:]
        for after, reason in ((len(every), None), (len(every) + 1, "OUT_OF_RANGE SEQUENCE_AHEAD")):
            request = run_service_pb2.WatchRunRequest(run_id=talk.run_id, after_sequence=after)
            if reason is None:
                assert await talk.runs.WatchRun(request).read() is grpc.aio.EOF
                continue
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await talk.runs.WatchRun(request).read()
            assert refusal_of(refused.value) == reason


async def test_waiting_through_a_parking(tmp_path: pathlib.Path) -> None:
    """A reader may wait until the run has ended: it is shown each parking and what came after it."""
    script = [[use("choose")], [{"text": "ok"}]]
    async with conversation(shop(), script, tmp_path) as talk:
        await talk.take(Start(), "stream")
        stream = talk.runs.WatchRun(run_service_pb2.WatchRunRequest(run_id=talk.run_id, until_finished=True))

        async def read() -> list[Any]:
            return [chunk async for response in stream for chunk in response.chunks]

        reading = asyncio.create_task(read())
        await talk.take(resume(1), "stream")
        assert await reading == await talk.watch(0)


# ---- servers that stop ----


@pytest.mark.parametrize(
    ("tool", "log"),
    [("hang", ['["hang"]', '["hang ended"]']), ("again", ['["again",60000]', '["again",60000]'])],
    ids=["asks", "runs-again"],
)
async def test_a_server_that_stops_in_a_tool(tmp_path: pathlib.Path, tool: str, log: list[str]) -> None:
    """After a stop in the middle of a tool nobody knows how far it came: one that is declared idempotent is
    run again, for any other somebody is asked, and the run goes on with what they say."""
    args = {"ms": 60_000} if tool == "again" else {}
    script = [[use("weather", "c0", city="Oslo"), use(tool, "c1", **args)], [{"text": "ok"}]]
    async with conversation(shop(), script, tmp_path) as talk:
        stream = asyncio.create_task(talk.take(Start(), "stream"))
        await talk.until(lambda one: len(one.log) == 2)
        await asyncio.sleep(0.1)
        await talk.restart()
        outcome = await asyncio.gather(stream, return_exceptions=True)
        assert outcome[0] is not None
        chunks = await talk.watch(0)
        if tool == "hang":
            assert lines.lines_of(chunks)[-2:] == [
                lines.recovery("c1", "hang", {}),
                lines.finish("suspended", 1, "c1"),
            ]
            answered = await talk.take(Decide("submit", data="it did"), "stream")
            chunks = await talk.watch(0)
            assert lines.lines_of(answered.chunks)[:2] == [
                lines.resolved("c1", "hang", "submit"),
                lines.result("c1", "hang", {}, "it did"),
            ]
        assert lines.lines_of(chunks)[-1] == lines.finish("stop", 2)
        assert [one for one in talk.log if "weather" not in one] == log


async def test_what_was_decided(tmp_path: pathlib.Path) -> None:
    """Every decision is kept: who, how, on which call, with what; newest first."""
    script = [[use("pay", **PAY)], [use("choose", "c2")], [{"text": "ok"}]]
    async with conversation(shop(), script, tmp_path) as talk:
        await talk.take(Start(), "stream")
        await talk.take(approve(edited={"account": "b", "cents": 1}), "stream")
        await talk.take(resume(1), "stream")
        async with grpc.aio.insecure_channel(talk.address) as channel:
            inbox = inbox_service_pb2_grpc.InboxServiceStub(channel)
            listed = await inbox.ListDecisions(inbox_service_pb2.ListDecisionsRequest(run_id=talk.run_id))
    told = [
        (one.tool_call_id, one.verb, one.args.text, one.edited_args.text, one.data.text)
        for one in listed.decisions
    ]
    assert told == [
        ("c2", 3, "{}", "", "1"),
        ("c1", 1, lines.compact(PAY), '{"account":"b","cents":1}', ""),
    ]
    assert {one.principal for one in listed.decisions} == {"local"}
