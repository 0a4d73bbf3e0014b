"""The option `rate_limit_wait`: a chunk shows the wait; cancelling, draining and time limits end it."""

import asyncio
import json
import pathlib
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from entracte import Client, RequestInvalid
from entracte_server import Agent, App, Processor
from entracte_server.testing import scripted, serve
from tests.models.support import Answer, FakeProvider, choice, sse, text
from tests.options.support import agent_of

HEADERS = {"content-type": "application/json"}


def limit(seconds: float) -> list[Any]:
    """A step that meets a rate limit."""
    return [{"throw": "slow down", "status": 429, "retryable": True, "retryAfter": seconds}]


HI = [{"text": "Hi"}]


def is_wait(chunk: Any) -> bool:
    return bool(chunk.type == "custom" and chunk.name == "rate-limit-wait")


def waits(chunks: list[Any]) -> list[Any]:
    return [chunk.data for chunk in chunks if is_wait(chunk)]


async def test_it_is_shown_before_the_answer() -> None:
    async with agent_of(scripted([limit(0.05), HI])) as agent:
        chunks = [chunk async for chunk in agent.stream("go", rate_limit_wait=2)]
        again = await agent.generate("go", rate_limit_wait=2)
    types = [chunk.type for chunk in chunks]
    assert types[:3] == ["start", "step-start", "custom"]
    assert waits(chunks) == [{"model": "scripted/script", "seconds": 0.05, "limit": None}]
    assert again.text == "Hi"


@pytest.mark.parametrize(
    ("own", "asked", "ends"),
    [
        (0, None, "error"),
        (2, None, "stop"),
        (2, 0, "error"),
        (0, 2, "stop"),
        (0, 0.01, "error"),
    ],
)
async def test_the_callers_word_goes_over_the_agents(own: float, asked: float | None, ends: str) -> None:
    model = scripted([limit(0.05), HI])
    async with agent_of(model, rate_limit_wait=own) as agent:
        result = await agent.generate("go", rate_limit_wait=asked, model_settings={"max_retries": 0})
    assert result.finish_reason == ends
    if ends == "error":
        assert (result.error.provider_status, result.error.retry_after) == (429, timedelta(seconds=0.05))


async def test_another_model_is_better_than_a_wait() -> None:
    first = scripted([limit(60)], name="scripted/first")
    second = scripted([limit(0.03), HI], name="scripted/second")
    async with agent_of([first, second]) as agent:
        options: dict[str, Any] = {"rate_limit_wait": 100, "model_settings": {"max_retries": 0}}
        chunks = [chunk async for chunk in agent.stream("go", **options)]
    assert [wait["model"] for wait in waits(chunks)] == ["scripted/second"]


class Guards(Processor):
    """Has answers held back."""

    name = "guards"
    can_veto = True

    async def process_output_step(self, answer: Any) -> None:
        pass


@pytest.mark.parametrize("held", [False, True])
async def test_cancelling_ends_it(held: bool, tmp_path: pathlib.Path) -> None:
    """It is shown while it lasts, also where the answer is held back."""
    guards = [Guards()] if held else []
    app = App(agents=[Agent(id="one", model=scripted([limit(3000)]), output_processors=guards)])
    async with (
        serve(app, store=tmp_path / "a.db") as server,
        Client(server.address, timeout=30) as client,
        asyncio.timeout(20),
    ):
        stream = client.agent("one").stream("go", rate_limit_wait=3600)
        async for chunk in stream:
            if is_wait(chunk):
                await client.runs.cancel(stream.run_id)
        result = await stream.result()
    assert (result.finish_reason, result.stop_cause) == ("aborted", "cancelled")


async def test_the_time_limit_of_the_run_holds() -> None:
    async with agent_of(scripted([limit(3000)])) as agent:
        result = await agent.generate("go", rate_limit_wait=3600, execution_timeout=0.3)
    assert result.stop_cause == "timeout"


async def test_a_draining_server_hands_it_over(tmp_path: pathlib.Path) -> None:
    """Another process asks anew; what the first showed is void."""
    store, run_id = tmp_path / "a.db", "waiting"

    def app(model: Any) -> App:
        return App(agents=[Agent(id="one", model=model)])

    async with serve(app(scripted([limit(3000)])), store=store) as server, Client(server.address) as client:
        async for chunk in client.agent("one").stream("go", run_id=run_id, rate_limit_wait=3600):
            if is_wait(chunk):
                break
    async with serve(app(scripted([HI])), store=store) as server, Client(server.address) as client:
        chunks = [chunk async for chunk in client.runs.watch(run_id)]
        result = (await client.runs.get(run_id)).result
    assert result is not None
    assert (result.text, chunks[-1].type) == ("Hi", "finish")


@pytest.mark.parametrize("seconds", [-1, 86401])
async def test_what_is_out_of_range(seconds: float) -> None:
    async with agent_of(scripted([HI])) as agent:
        with pytest.raises(RequestInvalid) as caught:
            await agent.generate("go", rate_limit_wait=seconds)
    assert [violation.field for violation in caught.value.violations] == ["options.rate_limit_wait"]
    with pytest.raises(ValueError, match="rate_limit_wait"):
        Agent(id="one", model="openai/x", rate_limit_wait=seconds)


@pytest.fixture
async def provider() -> AsyncIterator[FakeProvider]:
    async with FakeProvider() as fake:
        yield fake


@pytest.mark.parametrize(
    "after", ["inf", "1e300", "nan", "-7", "Wed, 21 Oct 99999999999999999999 07:28:00 GMT"]
)
async def test_a_provider_that_asks_for_the_impossible(
    after: str, provider: FakeProvider, tmp_path: pathlib.Path
) -> None:
    """Times beyond all measure are as if nothing was said."""
    error = json.dumps({"error": {"message": "Slow down."}}).encode()
    never = {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "9" * 20 + "h"}
    headers = {"retry-after": after, **never}
    app = App(agents=[Agent(id="one", model="acme/m")])
    acme = {"base_url": provider.url, "api_key": "secret-key-1"}
    async with (
        serve(app, store=tmp_path / "a.db", providers={"acme": acme}) as server,
        Client(server.address, timeout=10) as client,
    ):
        provider.say(Answer([error], status=429, headers={**HEADERS, **headers}))
        one = client.agent("one")
        result = await one.generate("go", model_settings={"max_retries": 0})
        assert result.error is not None
        assert (result.error.provider_status, result.error.retry_after) == (429, None)
        answer = [sse([*text("Hi"), choice({}, "stop")])]
        provider.say(Answer(answer, headers={"content-type": "text/event-stream", **headers}))
        result = await one.generate("go", rate_limit_wait=60)
        assert result.text == "Hi"
        assert result.response is not None
        assert result.response.request_limit is not None
        assert (result.response.request_limit.remaining, result.response.request_limit.reset) == (0, None)


async def test_the_figures_are_in_the_result(provider: FakeProvider, tmp_path: pathlib.Path) -> None:
    """Those of a limit that was met, and those of the answer, as headers and as numbers."""
    error = json.dumps({"error": {"message": "Slow down."}}).encode()
    figures = {
        "x-ratelimit-limit-requests": "500",
        "x-ratelimit-remaining-requests": "498",
        "x-ratelimit-reset-requests": "120ms",
        "x-ratelimit-remaining-tokens": "149984",
    }
    provider.say(
        Answer([error], status=429, headers={**HEADERS, "retry-after-ms": "40"}),
        Answer(
            [sse([*text("Hi"), choice({}, "stop")])],
            headers={"content-type": "text/event-stream", "date": "now", "x-request-id": "r1", **figures},
        ),
    )
    app = App(agents=[Agent(id="one", model="acme/m")])
    acme = {"base_url": provider.url, "api_key": "secret-key-1"}
    async with (
        serve(app, store=tmp_path / "a.db", providers={"acme": acme}) as server,
        Client(server.address) as client,
    ):
        result = await client.agent("one").generate("go", rate_limit_wait=5)
        read = (await client.runs.get(result.run_id)).result
    for found in (result.response, result.steps[0].response, read.response):  # type: ignore[union-attr]
        assert found is not None
        assert found.headers == {"x-request-id": "r1", **figures}
        assert found.request_limit is not None
        assert (found.request_limit.limit, found.request_limit.remaining) == (500, 498)
        assert found.request_limit.reset is not None
        assert found.request_limit.reset.total_seconds() == 0.12
        assert found.token_limit is not None
        assert (found.token_limit.limit, found.token_limit.remaining) == (None, 149984)
        assert found.token_limit.reset is None
