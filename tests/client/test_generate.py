"""Waiting for results: retries, callbacks, errors."""

import asyncio
import logging
import time

import grpc
import pytest
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState, use_span

import entracte
from entracte import Client
from entracte.v1 import agent_service_pb2, generate_result_pb2, message_pb2, result_pb2
from tests.client.fake import FakeServer, Log, Refuse, js


def full_result() -> generate_result_pb2.GenerateResult:
    result = generate_result_pb2.GenerateResult(
        run_id="r1",
        text="Hello",
        object=js('{"big": 123456789012345678901234567890, "one": 1.0}'),
        usage=result_pb2.Usage(total_tokens=15),
        finish_reason=result_pb2.FINISH_REASON_STOP,
        stop_cause=result_pb2.STOP_CAUSE_MODEL_FINISHED,
        warnings=["beware"],
        reasoning=[message_pb2.ReasoningPart(text="hm", signature="sig")],
        trace_id="t",
    )
    step = result.steps.add(step=1, text="Hello", finish_reason=result_pb2.FINISH_REASON_STOP)
    step.tool_calls.add(sequence=3).tool_call.tool_call_id = "c1"
    result.response.headers["x-request-id"] = "q"
    result.messages.add(role=message_pb2.ROLE_USER).parts.add().text.text = "Hi"
    return result


async def test_generate_gives_a_typed_result(server: FakeServer, client: Client) -> None:
    server.result.CopyFrom(full_result())
    result = await client.agent("support").generate("Hi")
    assert (result.text, result.finish_reason, result.stop_cause) == ("Hello", "stop", "model-finished")
    assert result.object == {"big": 123456789012345678901234567890, "one": 1.0}
    assert result.object_json == '{"big": 123456789012345678901234567890, "one": 1.0}'
    assert result.object is result.object
    assert result.steps[0].tool_calls[0].tool_call_id == "c1"
    assert result.messages[0].text == "Hi"
    assert result.reasoning[0].signature == "sig"
    assert result.response.headers == {"x-request-id": "q"}
    assert result.error is None


async def test_generate_stream_and_get_run_give_the_same_result(server: FakeServer, client: Client) -> None:
    server.result.CopyFrom(full_result())
    agent = client.agent("support")
    generated = await agent.generate("Hi")
    assert await agent.stream("Hi", run_id="r1").result() == generated
    assert (await client.runs.get("r1")).result == generated
    assert await agent.approve("p1") == generated


async def test_a_repeated_request_carries_the_same_ids(server: FakeServer, client: Client) -> None:
    server.plans["Generate"] = [Refuse(), Refuse(take_first=True), None]
    await client.agent("support").generate("Hi")
    first, second, third = server.asked("Generate")
    assert first == second == third
    assert len(first.request_id) == len(first.options.run_id) == 32


async def test_different_requests_have_different_ids(server: FakeServer, client: Client) -> None:
    agent = client.agent("support")
    await agent.generate("Hi")
    await agent.generate("Hi")
    first, second = server.asked("Generate")
    assert first.request_id != second.request_id
    assert first.options.run_id != second.options.run_id


async def test_ids_may_be_given(server: FakeServer, client: Client) -> None:
    await client.agent("support").generate("Hi", run_id="mine", request_id="q1")
    (request,) = server.asked("Generate")
    assert (request.options.run_id, request.request_id) == ("mine", "q1")


async def test_a_server_that_says_when_to_come_back_is_asked_again(
    server: FakeServer, client: Client
) -> None:
    server.plans["Generate"] = [Refuse(reason="SERVER_DRAINING", retry_after=0.05) for _ in range(9)]
    await client.agent("support").generate("Hi")
    assert len(server.asked("Generate")) == 10


async def test_a_wait_that_breaks_off_is_joined_again(server: FakeServer, client: Client) -> None:
    """Once the run is known to be stored, the channel's own repetition is over."""
    attempts = 0

    async def generate(request: object, context: grpc.aio.ServicerContext[object, object]) -> object:
        nonlocal attempts
        attempts += 1
        await context.send_initial_metadata((("entracte-run-id", "r1"),))
        if attempts < 8:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "Cancelling all calls")
        return agent_service_pb2.GenerateResponse(result=full_result())

    server.handlers["Generate"] = generate
    result = await client.agent("support").generate("Hi")
    assert result.text == "Hello"
    assert attempts == 8
    assert len({request.request_id for request in server.asked("Generate")}) == 1


async def test_an_unreachable_server_is_an_error_soon() -> None:
    start = time.monotonic()
    async with Client("127.0.0.1:1") as client:
        with pytest.raises(entracte.ServerUnreachable) as caught:
            await client.agent("support").generate("Hi")
        assert caught.value.code == "UNAVAILABLE"
        with pytest.raises(entracte.ServerUnreachable):
            await client.agent("support").stream("Hi").result()
        with pytest.raises(entracte.Unavailable):
            await client.runs.get("r1")
    assert time.monotonic() - start < 10


async def test_a_deadline_bounds_the_wait(server: FakeServer, client: Client) -> None:
    async def forever(*_: object) -> object:
        await asyncio.sleep(60)
        return None

    server.handlers["Generate"] = forever
    with pytest.raises(entracte.DeadlineExceeded) as caught:
        await client.agent("support").generate("Hi", timeout=0.1)
    assert caught.value.code == "DEADLINE_EXCEEDED"


async def test_a_cancelled_wait_cancels_the_call(server: FakeServer, client: Client) -> None:
    begun, gone = asyncio.Event(), asyncio.Event()

    async def forever(*_: object) -> object:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            gone.set()
        return None

    server.handlers["Generate"] = forever
    task = asyncio.create_task(client.agent("support").generate("Hi"))
    await asyncio.wait_for(begun.wait(), 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(gone.wait(), 5)


async def test_the_key_the_span_and_the_version_are_sent(server: FakeServer) -> None:
    async with Client(server.address, api_key="secret") as client:
        span = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        await client.agent("support").generate("Hi", traceparent=span)
        await client.agent("support").stream("Hi", run_id="r1", traceparent=span).result()
    for sent in server.metadata[:2]:
        assert sent["authorization"] == "Bearer secret"
        assert sent["traceparent"] == span
        assert f"entracte-python/{entracte.__version__}" in sent["user-agent"]


async def test_the_current_span_is_sent(server: FakeServer, client: Client) -> None:
    """With runs and decisions, where nothing else is said and there is a span."""
    span = SpanContext(0xABC, 0xDEF, False, TraceFlags(1), TraceState([("vendor", "x")]))
    agent = client.agent("support")
    await agent.generate("Hi")
    with use_span(NonRecordingSpan(span)):
        await agent.generate("Hi")
        stream = agent.stream("Hi", run_id="r1")
        await agent.approve("p1")
        await agent.approve("p1", traceparent="00-1-2-01")
    await stream.result()
    named = f"00-{0xABC:032x}-{0xDEF:016x}-01"
    sent = [(made.get("traceparent"), made.get("tracestate")) for made in server.metadata]
    assert sent[:5] == [
        (None, None), (named, "vendor=x"), (named, "vendor=x"), ("00-1-2-01", None), (named, "vendor=x")
    ]  # fmt: skip


async def test_an_unknown_option_is_refused_before_anything_is_sent(
    server: FakeServer, client: Client
) -> None:
    with pytest.raises(TypeError, match="did you mean 'max_steps'"):
        await client.agent("support").generate("Hi", max_step=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword"):
        client.agent("support").stream("Hi", nonsense=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword"):
        await client.agent("support").approve("p1", max_steps=3)  # type: ignore[call-arg]
    assert server.calls == []


async def test_a_closed_client_says_so(server: FakeServer) -> None:
    client = Client(server.address)
    await client.agent("support").generate("Hi")
    await client.aclose()
    with pytest.raises(RuntimeError, match="closed"):
        await client.agent("support").generate("Hi")


# ---- callbacks ----


def eventful_log() -> Log:
    log = Log().add("start", step=0)
    log.add("step_start").text("One")
    log.add("tool_call", tool_call_id="c1", tool_name="look", args=js('{"a":1}'))
    log.add("tool_result", tool_call_id="c1", tool_name="look", result=js("2"))
    log.add(
        "step_finish",
        reason=result_pb2.FINISH_REASON_TOOL_CALLS,
        is_continued=True,
        usage=result_pb2.Usage(total_tokens=7),
    )
    log.add("step_start", step=2).text("Two", step=2)
    log.add("step_finish", step=2, reason=result_pb2.FINISH_REASON_STOP)
    return log.finish()


async def test_callbacks_see_what_happens() -> None:
    seen: dict[str, list[object]] = {name: [] for name in ("chunk", "step", "finish", "error", "abort")}

    async def on_step_finish(step: entracte.StepResult) -> None:
        await asyncio.sleep(0)
        seen["step"].append(step)

    async with FakeServer(eventful_log()).running() as server, Client(server.address) as client:
        server.result.text = "OneTwo"
        result = await client.agent("support").generate(
            "Hi",
            run_id="r1",
            on_chunk=seen["chunk"].append,
            on_step_finish=on_step_finish,
            on_finish=seen["finish"].append,
            on_error=seen["error"].append,
            on_abort=seen["abort"].append,
        )
        assert [request.run_id for request in server.asked("GetRun")] == ["r1"]
    assert len(seen["chunk"]) == len(eventful_log().chunks)
    first, second = seen["step"]
    assert isinstance(first, entracte.StepResult)
    assert isinstance(second, entracte.StepResult)
    assert (first.step, first.text, first.finish_reason, first.usage.total_tokens) == (
        1,
        "One",
        "tool-calls",
        7,
    )
    assert [call.args for call in first.tool_calls] == [{"a": 1}]
    assert [call.result for call in first.tool_results] == [2]
    assert (second.step, second.text) == (2, "Two")
    assert seen["finish"] == [result]
    assert seen["error"] == seen["abort"] == []


async def test_a_failed_run_is_told_to_on_error_and_a_cancelled_one_to_on_abort() -> None:
    errors: list[object] = []
    aborts: list[object] = []
    finishes: list[object] = []
    failed = Log().add("start", step=0)
    failed.add("error", error=result_pb2.RunError(kind="stall", message="nothing came", retryable=True))
    failed.finish("ERROR", "ERROR")
    cancelled = Log().add("start", step=0).add("abort", reason="enough").finish("ABORTED", "CANCELLED")
    for log in (failed, cancelled):
        async with FakeServer(log).running() as server, Client(server.address) as client:
            stream = client.agent("support").stream(
                "Hi", run_id="r1", on_error=errors.append, on_abort=aborts.append, on_finish=finishes.append
            )
            async for _ in stream:
                pass
    (error,) = errors
    assert isinstance(error, entracte.RunError)
    assert (error.kind, error.message, error.retryable) == ("stall", "nothing came", True)
    (abort,) = aborts
    assert isinstance(abort, entracte.AbortChunk)
    assert abort.reason == "enough"
    assert finishes == []


async def test_a_parked_run_has_not_finished() -> None:
    told: list[object] = []
    log = Log().add("start", step=0).wait_for("p1", "refund", "APPROVAL").park(("p1", "refund", "APPROVAL"))
    async with FakeServer(log).running() as server, Client(server.address) as client:
        await client.agent("support").generate(
            "Hi", run_id="r1", on_finish=told.append, on_error=told.append, on_abort=told.append
        )
    assert told == []


async def test_a_refused_request_is_told_to_on_error(server: FakeServer, client: Client) -> None:
    errors: list[object] = []
    server.plans["Stream"] = [Refuse(grpc.StatusCode.NOT_FOUND, "AGENT_NOT_FOUND")]
    with pytest.raises(entracte.AgentNotFound) as caught:
        await client.agent("nobody").generate("Hi", on_error=errors.append)
    assert errors == [caught.value]


async def test_callbacks_cannot_alter_or_hold_up_the_end(
    server: FakeServer, client: Client, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("entracte._callbacks.GRACE", 0.2)

    def raising(_: object) -> None:
        raise ValueError("mine")

    async def endless(_: object) -> None:
        await asyncio.sleep(60)

    start = time.monotonic()
    with caplog.at_level(logging.WARNING, "entracte"):
        chunks = [
            chunk
            async for chunk in client.agent("support").stream(
                "Hi", run_id="r1", on_chunk=raising, on_step_finish=endless, on_finish=raising
            )
        ]
    assert len(chunks) == 10
    assert time.monotonic() - start < 3
    assert "callback on_chunk raised" in caplog.text
    assert "were given up" in caplog.text
