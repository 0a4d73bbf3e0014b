"""Calls to a provider over a real connection: retries, limits on silence, closing."""

import asyncio
import gzip
import json
import time
from collections.abc import AsyncGenerator
from typing import Any, cast

import pytest

from entracte_server.domain.messages import text_message
from entracte_server.domain.results import Usage
from entracte_server.models import ModelEvent, ModelRequest, ModelSettings
from tests.models.support import HI, Answer, FakeProvider, ask, calls, choice, model_of, piece, sse, text

STOP = choice({}, "stop")
ANSWER = [*text("Hel", "lo"), STOP]
JSON = {"content-type": "application/json"}


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("entracte_server.models.openai_model._FIRST_BACK_OFF", 0.02)


def error_body(message: str = "no", **more: Any) -> bytes:
    return json.dumps({"error": {"message": message, **more}}).encode()


def batches_of(model: Any, request: ModelRequest = HI) -> AsyncGenerator[list[ModelEvent], None]:
    return cast("AsyncGenerator[list[ModelEvent], None]", model.stream(request))


async def test_an_answer(provider: FakeProvider) -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    head = {"content-type": "text/event-stream", "x-request-id": "r1", "set-cookie": "a=b"}
    provider.say(Answer([sse([*ANSWER, {"choices": [], "usage": usage}])], headers=head))
    settings = ModelSettings(headers={"x-mine": "1"}, top_k=4)
    async with model_of(provider, headers={"x-all": "2"}, unsupported=("top_k",)) as model:
        assert model.name == "test/m"
        outcome = await ask(model, ModelRequest([text_message("user", "hi")], settings=settings))
    assert outcome.text == "Hello"
    assert outcome.finish.usage == Usage(1, 2, 3)
    assert outcome.finish.headers["x-request-id"] == "r1"
    assert "set-cookie" not in outcome.finish.headers
    assert len(outcome.finish.warnings) == 1
    [request] = provider.requests
    assert request.path == "/v1/chat/completions"
    assert request.headers["authorization"] == "Bearer secret-key-1"
    assert request.headers["content-type"] == "application/json"
    assert (request.headers["x-mine"], request.headers["x-all"]) == ("1", "2")
    assert request.body["model"] == "m"


async def test_the_request_body_can_be_seen_without_asking(provider: FakeProvider) -> None:
    provider.say(ANSWER)
    async with model_of(provider) as model:
        shown = model.request_body(HI)
        await ask(model)
    assert json.loads(shown) == provider.requests[0].body
    assert "secret" not in shown


async def test_batches_are_what_arrives(provider: FakeProvider) -> None:
    provider.say(Answer([sse(text("a", "b"), done=False), 0.3, sse(text("c"), done=False), 0.3, sse([STOP])]))
    async with model_of(provider) as model:
        outcome = await ask(model)
    assert [len(batch) for batch in outcome.batches] == [3, 1, 2]


async def test_one_connection_serves_one_call_after_another(provider: FakeProvider) -> None:
    provider.say(ANSWER)
    async with model_of(provider) as model:
        for _ in range(5):
            assert (await ask(model)).text == "Hello"
    assert provider.connections == 1


async def test_many_streams_at_once(provider: FakeProvider) -> None:
    provider.say(Answer([sse(text("a"), done=False), 1.0, sse([STOP])]))
    async with model_of(provider) as model:
        start = time.monotonic()
        outcomes = await asyncio.gather(*(ask(model) for _ in range(150)))
    assert {outcome.text for outcome in outcomes} == {"a"}
    assert provider.connections == 150
    assert time.monotonic() - start < 12


@pytest.mark.parametrize("content_type", ["application/json", "text/event-stream", "text/plain"])
async def test_a_body_that_is_not_streamed(provider: FakeProvider, content_type: str) -> None:
    message = {"content": "Hello", "tool_calls": [piece("f", '{"a":1}', id="c1")]}
    body = json.dumps({"choices": [{"message": message, "finish_reason": "tool_calls"}]}).encode()
    provider.say(Answer([body[:20], body[20:]], headers={"content-type": content_type}))
    async with model_of(provider) as model:
        outcome = await ask(model)
    assert outcome.text == "Hello"
    assert outcome.calls[0].args == '{"a":1}'


async def test_a_compressed_body(provider: FakeProvider) -> None:
    head = {"content-type": "text/event-stream", "content-encoding": "gzip"}
    data = gzip.compress(sse(ANSWER))
    provider.say(Answer([data[:30], data[30:]], headers=head))
    async with model_of(provider) as model:
        assert (await ask(model)).text == "Hello"


async def test_a_page_instead_of_an_answer(provider: FakeProvider) -> None:
    provider.say(Answer([b"<html>Sign in</html>"], headers={"content-type": "text/html"}))
    async with model_of(provider) as model:
        outcome = await ask(model)
    assert (outcome.kind, len(provider.requests)) == ("provider_error", 1)


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503])
async def test_what_is_tried_again(provider: FakeProvider, status: int) -> None:
    failed = Answer([error_body()], status=status, headers={**JSON, "retry-after-ms": "10"})
    provider.say(failed, Answer([sse(ANSWER)]))
    async with model_of(provider) as model:
        assert (await ask(model)).text == "Hello"
    assert len(provider.requests) == 2
    assert provider.requests[0].body == provider.requests[1].body


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
async def test_what_is_not_tried_again(provider: FakeProvider, status: int) -> None:
    body = error_body("Bad key sk-abcdefgh1234 secret-key-1", code="bad_thing", type="t")
    provider.say(Answer([body], status=status, headers=JSON))
    async with model_of(provider) as model:
        outcome = await ask(model)
    assert outcome.error is not None
    assert (outcome.kind, outcome.error.status, outcome.error.code) == ("provider_error", status, "bad_thing")
    assert not outcome.error.retryable
    assert "abcdefgh1234" not in f"{outcome.error}"
    assert "secret-key-1" not in f"{outcome.error}"
    assert len(provider.requests) == 1


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after-ms": "1500", "retry-after": "7"}, 1.5),
        ({"retry-after": "soon"}, 0.0),
        ({"retry-after": "-5"}, 0.0),
        ({}, 0.0),
    ],
)
async def test_when_to_come_back(provider: FakeProvider, headers: dict[str, str], seconds: float) -> None:
    provider.say(Answer([error_body()], status=429, headers={**JSON, **headers}))
    async with model_of(provider, max_retries=0) as model:
        outcome = await ask(model)
    assert outcome.error is not None
    assert (outcome.error.retry_after, outcome.error.retryable) == (seconds, True)


async def test_when_to_come_back_as_a_date(provider: FakeProvider) -> None:
    date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 30))
    provider.say(Answer([error_body()], status=503, headers={**JSON, "retry-after": date}))
    async with model_of(provider, max_retries=0) as model:
        outcome = await ask(model)
    assert outcome.error is not None
    assert 20 < outcome.error.retry_after < 31


@pytest.mark.parametrize(("advice", "tries"), [("false", 1), ("true", 3)])
async def test_the_provider_may_say_whether_to_retry(provider: FakeProvider, advice: str, tries: int) -> None:
    head = {**JSON, "x-should-retry": advice, "retry-after-ms": "1"}
    provider.say(Answer([error_body()], status=400 if advice == "true" else 500, headers=head))
    async with model_of(provider) as model:
        await ask(model)
    assert len(provider.requests) == tries


async def test_no_money_is_not_worth_a_retry(provider: FakeProvider) -> None:
    provider.say(Answer([error_body(code="insufficient_quota")], status=429, headers=JSON))
    async with model_of(provider) as model:
        await ask(model)
    assert len(provider.requests) == 1


async def test_a_filtered_prompt(provider: FakeProvider) -> None:
    provider.say(Answer([error_body(code="content_filter")], status=400, headers=JSON))
    async with model_of(provider) as model:
        assert (await ask(model)).kind == "content_filter"


@pytest.mark.parametrize("body", [b"", b"<html>Service unavailable</html>", b'"text"', b"[]"])
async def test_errors_without_an_error_object(provider: FakeProvider, body: bytes) -> None:
    provider.say(Answer([body], status=503, headers={"content-type": "text/html"}))
    async with model_of(provider, max_retries=0) as model:
        outcome = await ask(model)
    assert outcome.error is not None
    assert (outcome.kind, outcome.error.status, outcome.error.retryable) == ("provider_error", 503, True)
    assert outcome.error.message


@pytest.mark.parametrize("asked", [0, 1, 3])
async def test_the_request_bounds_the_retries(provider: FakeProvider, asked: int) -> None:
    head = {**JSON, "retry-after-ms": "1"}
    provider.say(Answer([error_body()], status=500, headers=head))
    request = ModelRequest([text_message("user", "hi")], settings=ModelSettings(max_retries=asked))
    async with model_of(provider) as model:
        await ask(model, request)
    assert len(provider.requests) == asked + 1


@pytest.mark.parametrize(
    "first",
    [
        Answer([sse([])]),
        Answer([]),
        Answer([sse([choice({"role": "assistant", "content": ""})], done=False)], end="cut"),
        Answer([sse([{"choices": [], "error": {"code": 502, "message": "busy"}}])]),
        Answer([], end="reset"),
    ],
    ids=["no record", "no byte", "broken off", "error record", "reset"],
)
async def test_an_answer_of_which_nothing_was_seen_is_asked_again(
    provider: FakeProvider, first: Answer
) -> None:
    provider.say(first, Answer([sse(ANSWER)]))
    async with model_of(provider, max_retries=1) as model:
        assert (await ask(model)).text == "Hello"


@pytest.mark.parametrize("end", ["cut", "reset", "proper"])
async def test_an_answer_of_which_something_was_seen_is_not(provider: FakeProvider, end: Any) -> None:
    provider.say(Answer([sse(text("Hel"), done=False)], end=end), Answer([sse(ANSWER)]))
    async with model_of(provider) as model:
        outcome = await ask(model)
    assert (outcome.text, outcome.kind, len(provider.requests)) == ("Hel", "cut", 1)


@pytest.mark.parametrize("end", ["cut", "reset"])
async def test_broken_off_after_the_finish_reason_is_whole(provider: FakeProvider, end: Any) -> None:
    provider.say(Answer([sse(ANSWER, done=False), 0.02], end=end))
    async with model_of(provider) as model:
        assert (await ask(model)).text == "Hello"


async def test_nobody_is_there() -> None:
    async with model_of("http://127.0.0.1:9/v1", max_retries=0) as model:
        outcome = await ask(model)
    assert outcome.error is not None
    assert (outcome.kind, outcome.error.retryable) == ("connection", True)
    assert "127.0.0.1" not in outcome.error.message
    assert "refused" in outcome.error.message


async def test_silence_in_the_middle(provider: FakeProvider) -> None:
    provider.say(Answer([sse(text("Once"), done=False)], end="hang"))
    async with model_of(provider, idle_timeout=0.3) as model:
        start = time.monotonic()
        outcome = await ask(model)
        assert 0.25 < time.monotonic() - start < 2
        assert (outcome.text, outcome.kind) == ("Once", "stall")
        await asyncio.wait_for(provider.left.wait(), 2)
    assert len(provider.requests) == 1


async def test_silence_in_the_middle_of_a_call(provider: FakeProvider) -> None:
    records = [calls(piece("f", '{"a', id="c", index=0))]
    provider.say(Answer([sse(records, done=False)], end="hang"))
    async with model_of(provider, idle_timeout=0.2) as model:
        outcome = await ask(model)
    assert (outcome.calls, outcome.kind) == ([], "stall")


async def test_each_piece_begins_the_limit_anew(provider: FakeProvider) -> None:
    pieces: list[bytes | float] = []
    for _ in range(5):
        pieces += [sse(text("a"), done=False), 0.25]
    provider.say(Answer([*pieces, sse([STOP])]))
    async with model_of(provider, idle_timeout=0.8) as model:
        assert (await ask(model)).text == "aaaaa"


async def test_the_first_piece_may_take_longer(provider: FakeProvider) -> None:
    provider.say(Answer([0.5, sse(ANSWER)]))
    async with model_of(provider, idle_timeout=0.2) as model:
        assert (await ask(model)).text == "Hello"
    async with model_of(provider, idle_timeout=0.2, patience=0.3) as model:
        assert (await ask(model)).kind == "stall"


async def test_the_first_byte_is_bounded(provider: FakeProvider) -> None:
    provider.say(Answer([sse(ANSWER)], before_head=3.0))
    async with model_of(provider, idle_timeout=0.1, patience=0.3) as model:
        start = time.monotonic()
        outcome = await ask(model)
    assert outcome.kind == "stall"
    assert time.monotonic() - start < 2


async def test_keep_alives_extend_the_wait_but_not_for_ever(provider: FakeProvider) -> None:
    ping: list[bytes | float] = [b": ping\n\n", 0.1]
    start: bytes = sse(text("a"), done=False)
    provider.say(Answer([start, *(ping * 8), sse([STOP])]), Answer([start, *(ping * 100)]))
    async with model_of(provider, idle_timeout=0.6, patience=1.2) as model:
        assert (await ask(model)).text == "a"
        began = time.monotonic()
        assert (await ask(model)).kind == "stall"
        assert 1.1 < time.monotonic() - began < 4


async def test_a_slow_reader_is_not_silence(provider: FakeProvider) -> None:
    provider.say(Answer([sse(text("a"), done=False), 0.05, sse([*text("b"), STOP])]))
    async with model_of(provider, idle_timeout=0.2, patience=0.2) as model:
        seen = 0
        async for batch in model.stream(HI):
            seen += len(batch)
            await asyncio.sleep(0.5)
    assert seen == 5


async def test_silence_after_the_finish_reason_is_an_end(
    provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("entracte_server.models.openai_call._AFTER_FINISH", 0.2)
    provider.say(Answer([sse(ANSWER, done=False)], end="hang"))
    async with model_of(provider, idle_timeout=30.0) as model:
        start = time.monotonic()
        assert (await ask(model)).text == "Hello"
    assert time.monotonic() - start < 3


async def test_a_body_without_end_after_the_last_record(provider: FakeProvider) -> None:
    provider.say(Answer([sse(ANSWER)], end="hang"))
    async with model_of(provider, idle_timeout=30.0) as model:
        start = time.monotonic()
        assert (await ask(model)).text == "Hello"
        assert time.monotonic() - start < 2
        await asyncio.wait_for(provider.left.wait(), 2)


async def test_closing_an_answer_closes_the_connection(provider: FakeProvider) -> None:
    provider.say(Answer([sse(text("a"), done=False)], end="hang"))
    async with model_of(provider) as model:
        answer = batches_of(model)
        await anext(answer)
        await answer.aclose()
        await asyncio.wait_for(provider.left.wait(), 2)


async def was_asked(provider: FakeProvider) -> None:
    """Returns when a request has come, and a little later: the first one waits for an import."""
    await asyncio.wait_for(provider.asked.wait(), 30)
    await asyncio.sleep(0.1)


async def test_cancelling_while_reading_closes_the_connection(provider: FakeProvider) -> None:
    provider.say(Answer([sse(text("a"), done=False)], end="hang"))
    async with model_of(provider) as model:
        task = asyncio.create_task(ask(model))
        await was_asked(provider)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(provider.left.wait(), 2)
    assert len(provider.requests) == 1


async def test_cancelling_while_waiting_for_the_head(provider: FakeProvider) -> None:
    provider.say(Answer([], before_head=0.6, end="hang"))
    async with model_of(provider) as model:
        task = asyncio.create_task(ask(model))
        await was_asked(provider)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(provider.left.wait(), 3)


async def test_cancelling_between_attempts_ends_them(provider: FakeProvider) -> None:
    provider.say(Answer([error_body()], status=500, headers={**JSON, "retry-after": "30"}))
    async with model_of(provider) as model:
        task = asyncio.create_task(ask(model))
        await was_asked(provider)
        assert len(provider.requests) == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 1)
        await asyncio.sleep(0.1)
    assert len(provider.requests) == 1


async def test_an_answer_that_is_too_large(provider: FakeProvider) -> None:
    part: list[bytes | float] = [sse(text("x" * 500), done=False), 0.01]
    provider.say(Answer(part * 50, end="hang"))
    async with model_of(provider, max_answer_bytes=10_000) as model:
        outcome = await ask(model)
        await asyncio.wait_for(provider.left.wait(), 5)
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.retryable) == ("provider_error", False)
    assert "larger than 10000 bytes" in outcome.error.message
    assert 0 < len(outcome.text) < 10_000
    assert len(provider.requests) == 1


async def test_an_answer_just_within_the_limit(provider: FakeProvider) -> None:
    body = sse(ANSWER)
    provider.say(body)
    async with model_of(provider, max_answer_bytes=len(body)) as model:
        assert (await ask(model)).text == "Hello"


@pytest.mark.parametrize("start", [[], text("a")], ids=["at once", "after a piece"])
@pytest.mark.parametrize(
    "record",
    [{"choices": []}, choice({}), choice({"content": ""}), choice({"tool_calls": [{"index": 0}]})],
    ids=["no choice", "no delta", "no text", "no call"],
)
async def test_records_that_bring_nothing_are_keep_alives(
    provider: FakeProvider, start: list[Any], record: dict[str, Any]
) -> None:
    empty: list[bytes | float] = [sse([record], done=False), 0.02]
    provider.say(Answer([sse(start, done=False), *(empty * 1_000)]))
    async with model_of(provider, idle_timeout=5.0, patience=0.4, max_retries=0) as model:
        outcome = await ask(model)
        await asyncio.wait_for(provider.left.wait(), 5)
    assert outcome.error is not None
    assert outcome.error.kind == "stall"
    assert "no further for 0.4 s" in outcome.error.message
    assert outcome.text == ("a" if start else "")


async def test_blanks_in_a_document_are_keep_alives(provider: FakeProvider) -> None:
    blanks: list[bytes | float] = [b"  \n", 0.02]
    provider.say(Answer([b"{", *(blanks * 1_000)], headers=JSON))
    async with model_of(provider, idle_timeout=5.0, patience=0.4, max_retries=0) as model:
        assert (await ask(model)).kind == "stall"


async def test_a_record_nested_too_deeply_is_a_failure_of_the_provider(provider: FakeProvider) -> None:
    provider.say(b'data: {"choices":' + b"[" * 100_000 + b"\n\n")
    async with model_of(provider) as model:
        assert (await ask(model)).kind == "provider_error"


async def test_an_error_body_nested_too_deeply(provider: FakeProvider) -> None:
    for depth in (500, 900, 100_000):
        body = b'{"error":' + b"[" * depth + b"]" * depth + b"}"
        provider.say(Answer([body], status=400, headers=JSON))
        async with model_of(provider) as model:
            assert (await ask(model)).kind == "provider_error"


async def test_a_large_conversation_is_sent_whole(provider: FakeProvider) -> None:
    provider.say(ANSWER)
    content = "word " * 50_000
    async with model_of(provider) as model:
        assert (await ask(model, ModelRequest([text_message("user", content)]))).text == "Hello"
    assert provider.requests[0].body["messages"][0]["content"] == content


async def test_ids_of_the_run_are_not_used_again(provider: FakeProvider) -> None:
    provider.say([calls(piece("f", "{}", id="c1", index=0)), choice({}, "tool_calls")])
    request = ModelRequest([text_message("user", "hi")], reserved_ids=frozenset({"c1"}))
    async with model_of(provider) as model:
        outcome = await ask(model, request)
    assert outcome.calls[0].tool_call_id != "c1"


async def test_tags_are_lifted_where_asked(provider: FakeProvider) -> None:
    provider.say([*text("<thi", "nk>Hm</think>Yes"), STOP])
    async with model_of(provider, think_tags=True) as model:
        outcome = await ask(model)
    assert (outcome.reasoning, outcome.text) == ("Hm", "Yes")
