"""Waiting for a provider's rate limit: only where asked, within what is allowed, and shown."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from entracte_server.domain.chunks import Custom
from entracte_server.domain.messages import text_message
from entracte_server.domain.results import RunError
from entracte_server.models import ModelRequest, ModelSettings, scripted
from entracte_server.models.rate_limits import Limit, RateLimits, is_rate_limit, read_limits
from tests.models.responses_wire import begin, end, says, stream
from tests.models.support import Answer, FakeProvider, Outcome, ask, choice, model_of, sse, text

ANSWER = [*text("Hi"), choice({}, "stop")]
JSON = {"content-type": "application/json"}
LIMITED = json.dumps({"error": {"message": "Slow down.", "code": "rate_limit_exceeded"}}).encode()


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("entracte_server.models.openai_model._FIRST_BACK_OFF", 0.02)


def limited(**headers: str) -> Answer:
    return Answer(
        [LIMITED], status=429, headers={**JSON, **{k.replace("_", "-"): v for k, v in headers.items()}}
    )


def asking(seconds: float, retries: int | None = None) -> ModelRequest:
    """A request that allows to wait that long."""
    return ModelRequest(
        [text_message("user", "hi")],
        settings=ModelSettings(max_retries=retries),
        rate_limit_wait=seconds,
    )


def waits(outcome: Outcome) -> list[dict[str, Any]]:
    events = outcome.of(Custom)
    assert all(event.name == "rate-limit-wait" for event in events)
    return [json.loads(event.data) for event in events]


@pytest.mark.parametrize(
    ("headers", "limits"),
    [
        ({}, RateLimits()),
        (
            {
                "x-ratelimit-limit-requests": "500",
                "x-ratelimit-remaining-requests": "499",
                "x-ratelimit-reset-requests": "120ms",
                "x-ratelimit-limit-tokens": "30000",
                "x-ratelimit-remaining-tokens": "0",
                "x-ratelimit-reset-tokens": "1h6m0.5s",
            },
            RateLimits(Limit(500, 499, 0.12), Limit(30000, 0, 3960.5)),
        ),
        ({"x-ratelimit-reset-tokens": "7"}, RateLimits(tokens=Limit(reset=7.0))),
        ({"x-ratelimit-reset-tokens": "soon", "x-ratelimit-limit-tokens": "-1"}, RateLimits()),
        ({"x-ratelimit-reset-tokens": "1s later", "x-ratelimit-remaining-tokens": "9" * 20}, RateLimits()),
    ],
)
def test_what_headers_say(headers: dict[str, str], limits: RateLimits) -> None:
    assert read_limits(headers) == limits


@pytest.mark.parametrize(
    ("error", "limited"),
    [
        (RunError("provider_error", "", status=429, retryable=True), True),
        (RunError("provider_error", "", code="rate_limit_exceeded", retryable=True), True),
        (RunError("provider_error", "", status=429, code="insufficient_quota"), False),
        (RunError("provider_error", "", status=503, retryable=True), False),
    ],
)
def test_what_is_a_rate_limit(error: RunError, limited: bool) -> None:
    assert is_rate_limit(error) is limited


async def test_it_is_not_waited_for_unasked(provider: FakeProvider) -> None:
    """What takes longer than the pause between attempts fails at once, and says when to come back."""
    provider.say(limited(retry_after="20"), ANSWER)
    async with model_of(provider) as model:
        outcome = await asyncio.wait_for(ask(model), 5)
    assert outcome.error is not None
    assert (outcome.error.status, outcome.error.retry_after, outcome.error.retryable) == (429, 20.0, True)
    assert len(provider.requests) == 1


async def test_a_wait_is_shown_and_costs_no_retry(provider: FakeProvider) -> None:
    provider.say(limited(retry_after_ms="60"), ANSWER)
    async with model_of(provider) as model:
        outcome = await ask(model, asking(1, retries=0))
    assert waits(outcome) == [{"model": "test/m", "seconds": 0.06, "limit": None}]
    assert type(outcome.events[0]) is Custom
    assert outcome.text == "Hi"
    assert len(provider.requests) == 2


async def test_a_wait_is_shown_before_it_begins(provider: FakeProvider) -> None:
    provider.say(limited(retry_after="300"))
    async with model_of(provider) as model:
        answer: Any = model.stream(asking(3600))
        [wait] = await asyncio.wait_for(anext(answer), 5)
        assert json.loads(wait.data)["seconds"] == 300
        going_on = asyncio.ensure_future(anext(answer))
        await asyncio.sleep(0.05)
        going_on.cancel()
        with pytest.raises(asyncio.CancelledError):
            await going_on
    assert len(provider.requests) == 1


async def test_the_waits_of_a_call_are_bounded_together(provider: FakeProvider) -> None:
    provider.say(limited(retry_after_ms="100"))
    async with model_of(provider) as model:
        outcome = await ask(model, asking(0.25, retries=0))
    assert outcome.error is not None
    assert outcome.error.status == 429
    assert [wait["seconds"] for wait in waits(outcome)] == [0.1, 0.1]
    assert len(provider.requests) == 3


async def test_without_advice_the_waits_grow(provider: FakeProvider) -> None:
    provider.say(limited(), limited(), limited(), ANSWER)
    async with model_of(provider) as model:
        outcome = await ask(model, asking(10, retries=0))
    assert outcome.text == "Hi"
    seconds = [wait["seconds"] for wait in waits(outcome)]
    assert [low <= each <= 2 * low for low, each in zip((0.015, 0.03, 0.06), seconds, strict=True)] == [
        True
    ] * 3


async def test_the_headers_tell_when_where_there_is_no_advice(provider: FakeProvider) -> None:
    spent = {"x_ratelimit_remaining_requests": "0", "x_ratelimit_reset_requests": "70ms"}
    provider.say(limited(**spent), ANSWER)
    async with model_of(provider) as model:
        outcome = await ask(model, asking(1, retries=0))
    assert waits(outcome) == [{"model": "test/m", "seconds": 0.07, "limit": "requests"}]


async def test_no_money_is_not_waited_for(provider: FakeProvider) -> None:
    body = json.dumps({"error": {"message": "Pay.", "code": "insufficient_quota"}}).encode()
    provider.say(Answer([body], status=429, headers={**JSON, "retry-after-ms": "10"}))
    async with model_of(provider) as model:
        outcome = await ask(model, asking(10))
    assert outcome.error is not None
    assert (len(provider.requests), waits(outcome)) == (1, [])


def spending(reset: str, remaining: str = "0") -> Answer:
    """An answer after which nothing is left."""
    headers = {"content-type": "text/event-stream", "x-ratelimit-remaining-tokens": remaining}
    return Answer([sse(ANSWER)], headers={**headers, "x-ratelimit-reset-tokens": reset})


async def test_what_is_spent_is_waited_for_before_the_next_call(provider: FakeProvider) -> None:
    provider.say(spending("300ms"), ANSWER)
    async with model_of(provider) as model:
        await ask(model)
        outcome = await ask(model, asking(5))
        assert (await ask(model, asking(5))).of(Custom) == []
    [wait] = waits(outcome)
    assert wait["limit"] == "tokens"
    assert 0 < wait["seconds"] <= 0.3
    assert outcome.text == "Hi"


@pytest.mark.parametrize(
    ("spent", "seconds"),
    [("300s", 0.0), ("300s", 5.0), ("0s", 5.0)],
    ids=["not-asked", "too-long", "over"],
)
async def test_what_is_spent_holds_nobody_up_otherwise(
    provider: FakeProvider, spent: str, seconds: float
) -> None:
    provider.say(spending(spent), ANSWER)
    async with model_of(provider) as model:
        await ask(model)
        outcome = await asyncio.wait_for(ask(model, asking(seconds)), 5)
    assert (outcome.text, waits(outcome)) == ("Hi", [])


@pytest.mark.parametrize("remaining", ["1", "1999", "2000", "few"])
async def test_what_is_left_is_used(provider: FakeProvider, remaining: str) -> None:
    provider.say(spending("300ms", remaining), ANSWER)
    async with model_of(provider) as model:
        await ask(model)
        assert waits(await ask(model, asking(5))) == []


async def test_a_limit_met_in_the_stream(provider: FakeProvider) -> None:
    """The Responses API may report it in an answer that began well."""
    failed = end("failed", error={"code": "rate_limit_exceeded", "message": "Slow down."})
    provider.say(stream(begin(), failed), stream(begin(), says(0, "Hi"), end()))
    async with model_of(provider, api="responses") as model:
        outcome = await ask(model, asking(10, retries=0))
    assert (outcome.text, len(waits(outcome))) == ("Hi", 1)


@pytest.mark.parametrize(("seconds", "fails"), [(0.0, True), (0.02, True), (1.0, False)])
async def test_a_script_can_have_one(seconds: float, fails: bool) -> None:
    steps: Sequence[Any] = [
        [{"throw": "slow down", "status": 429, "retryable": True, "retryAfter": 0.03}],
        [{"text": "Hi"}],
    ]
    model = scripted(steps)
    outcome = await ask(model, asking(seconds, retries=0))
    assert (outcome.error is not None) is fails
    assert len(waits(outcome)) == (not fails)
