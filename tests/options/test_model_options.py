"""What a caller says about the model calls reaches the model as it was said, and holds over a restart."""

import base64
import json
import math
import pathlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from entracte import Client, FilePart, ImagePart, Internal, Message, TextPart
from entracte_server import Agent, App, ModelSettings, StepInfo, StepOverrides, hook, tool
from entracte_server.domain.messages import ToolCallPart
from entracte_server.testing import scripted, serve
from tests.models import responses_wire as wire
from tests.models.support import Answer, FakeProvider, choice, text

PNG = b"\x89PNG..."
HI = [*text("Hi"), choice({}, "stop")]


@tool(requires_approval=True)
async def pay() -> str:
    """Pays."""
    return "paid"


@pytest.fixture
async def provider() -> AsyncIterator[FakeProvider]:
    async with FakeProvider() as fake:
        yield fake


@asynccontextmanager
async def served(
    model: Any, store: pathlib.Path, providers: dict[str, Any] | None = None, **more: Any
) -> AsyncIterator[Any]:
    """An agent with this model, on a server of its own."""
    app = App(agents=[Agent(id="one", model=model, tools=[pay], **more)])
    async with (
        serve(app, store=store, providers=providers or {}) as server,
        Client(server.address, timeout=30) as client,
    ):
        yield client.agent("one")


SETTINGS: dict[str, Any] = {
    "temperature": 0.0,
    "max_output_tokens": 100,
    "max_retries": 0,
    "top_p": 0.5,
    "top_k": 4,
    "presence_penalty": -1.0,
    "frequency_penalty": 1.5,
    "stop_sequences": ["END", "STOP"],
    "seed": 2**53 + 1,
    "headers": {"x-a": "b"},
}


async def test_every_setting_reaches_every_step(tmp_path: pathlib.Path) -> None:
    model = scripted([[{"tool": "pay"}], [{"text": "done"}]])
    own = ModelSettings(temperature=1.0, top_k=9, headers={"x-a": "own", "x-own": "1"})
    options = {"acme": {"deep": {"a": [1, None]}}, "other": {"b": 2}}
    agent: dict[str, Any] = {"model_settings": own, "provider_options": {"acme": {"own": True, "deep": 0}}}
    async with served(model, tmp_path / "a.db", **agent) as client:
        result = await client.generate("go", model_settings=SETTINGS, provider_options=options)
    async with served(model, tmp_path / "a.db", **agent) as client:
        result = await client.approve(result.pending_calls[0])
    assert result.text == "done"
    headers = {"x-a": "b", "x-own": "1"}
    sent = ModelSettings(**{**SETTINGS, "stop_sequences": ("END", "STOP"), "headers": headers})
    assert [request.settings for request in model.requests] == [sent, sent]
    merged = {"acme": {"own": True, "deep": {"a": [1, None]}}, "other": {"b": 2}}
    assert [request.provider_options for request in model.requests] == [merged, merged]


async def test_the_agents_own_where_the_caller_says_nothing(tmp_path: pathlib.Path) -> None:
    model = scripted([[{"text": "done"}]])
    own = ModelSettings(temperature=1.0, stop_sequences=("END",))
    async with served(model, tmp_path / "a.db", model_settings=own) as client:
        await client.generate("go")
        await client.generate("go", model_settings={"seed": 1})
    assert model.requests[0].settings == own
    assert model.requests[1].settings == ModelSettings(temperature=1.0, stop_sequences=("END",), seed=1)


async def test_settings_on_the_wire(provider: FakeProvider, tmp_path: pathlib.Path) -> None:
    """What the server signs in with cannot be replaced by a caller, nor what its operator set up."""
    provider.say(HI)
    acme = {
        "base_url": provider.url,
        "api_key": "secret-key-1",
        "headers": {"X-Gate": "mine"},
        "unsupported": ["top_k"],
    }
    headers = {"x-a": "b", "Authorization": "Bearer theirs", "x-gate": "theirs", "Content-Length": "3"}
    async with served("acme/m", tmp_path / "a.db", {"acme": acme}) as client:
        result = await client.generate(
            "hi",
            model_settings={**SETTINGS, "headers": headers},
            provider_options={
                "acme": {"reasoningEffort": "low", "tools": [], "messages": []},
                "openai": {"user": "x"},
            },
            active_tools=[],
        )
    [request] = provider.requests
    assert request.body == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.0,
        "max_tokens": 100,
        "top_p": 0.5,
        "presence_penalty": -1.0,
        "frequency_penalty": 1.5,
        "stop": ["END", "STOP"],
        "seed": 2**53 + 1,
        "reasoning_effort": "low",
    }
    assert request.headers["authorization"] == "Bearer secret-key-1"
    assert (request.headers["x-a"], request.headers["x-gate"]) == ("b", "mine")
    told = " ".join(result.warnings)
    for name in ("option tools", "option messages", "top_k", "Authorization", "x-gate", "Content-Length"):
        assert name in told
    assert "x-a" not in told


@pytest.mark.parametrize("retries", [0, 1])
async def test_retries(provider: FakeProvider, tmp_path: pathlib.Path, retries: int) -> None:
    body = json.dumps({"error": {"message": "Oh."}}).encode()
    failing = Answer([body], status=500, headers={"content-type": "application/json", "retry-after-ms": "5"})
    provider.say(failing)
    acme = {"base_url": provider.url, "api_key": "secret-key-1"}
    async with served("acme/m", tmp_path / "a.db", {"acme": acme}) as client:
        result = await client.generate("hi", model_settings={"max_retries": retries})
    assert (result.finish_reason, result.error.provider_status) == ("error", 500)
    assert len(provider.requests) == 1 + retries


@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_raw_chunks(provider: FakeProvider, tmp_path: pathlib.Path, api: str) -> None:
    answers = {"chat": HI, "responses": wire.stream(wire.begin(), wire.says(0, "Hi"), wire.end())}
    provider.say(answers[api])
    acme = {"base_url": provider.url, "api_key": "secret-key-1", "api": api}
    async with served("acme/m", tmp_path / "a.db", {"acme": acme}) as client:
        asked = [chunk async for chunk in client.stream("hi", include_raw_chunks=True)]
        unasked = [chunk async for chunk in client.stream("hi")]
    raw = [chunk.value for chunk in asked if chunk.type == "raw"]
    assert raw[-1] == (HI[-1] if api == "chat" else {**wire.end()[0], "sequence_number": len(raw) - 1})
    assert [chunk.type for chunk in asked if chunk.type != "raw"] == [chunk.type for chunk in unasked]


async def test_an_agent_s_runs_may_have_raw_chunks(tmp_path: pathlib.Path) -> None:
    model = scripted([[{"raw": {"n": 1}}, {"text": "Hi"}]])
    async with served(model, tmp_path / "a.db", include_raw_chunks=True) as agent:
        assert "raw" in [chunk.type async for chunk in agent.stream("hi")]
        assert "raw" not in [chunk.type async for chunk in agent.stream("hi", include_raw_chunks=False)]


async def test_another_model_for_a_step(provider: FakeProvider, tmp_path: pathlib.Path) -> None:
    """A hook chooses it by name, for that step; the request that was made to it can be seen."""

    @hook("prepare_step")
    async def first_cheap(info: StepInfo) -> StepOverrides | None:
        return StepOverrides(model="acme/cheap") if info.number == 1 else None

    call = {"index": 0, "id": "c1", "function": {"name": "pay", "arguments": "{}"}}
    provider.say([choice({"tool_calls": [call]}), choice({}, "tool_calls")], HI)
    acme = {"base_url": provider.url, "api_key": "secret-key-1"}
    async with served("acme/m", tmp_path / "a.db", {"acme": acme}, prepare_step=first_cheap) as client:
        stream = client.stream("hi", include_request_body=True)
        models = [chunk.model async for chunk in stream if chunk.type == "step-start"]
        parked = await stream.result()
        result = await client.approve(parked.pending_calls[0])
    assert (parked.request.body["model"], result.request.body["model"]) == ("cheap", "m")
    assert [request.body["model"] for request in provider.requests] == ["cheap", "m"]
    assert models == ["acme/cheap"]


async def test_instructions_that_are_no_texts_make_no_run(tmp_path: pathlib.Path) -> None:
    """A run that could not be read again would be the price."""

    def instructions(context: Any) -> Any:
        return ["Be brief.", context.get("tone", 3)]

    model = scripted([[{"text": "Hi"}]])
    async with served(model, tmp_path / "a.db", instructions=instructions) as client:
        with pytest.raises(Internal):
            await client.generate("hi", run_id="r")
        result = await client.generate("hi", run_id="r", request_context={"tone": "Kindly."})
        assert result.text == "Hi"
    assert model.calls == 1


async def test_the_ids_of_a_conversation_that_is_carried_on_are_taken(tmp_path: pathlib.Path) -> None:
    """A model that begins to count anew gets another id for its call, so that each is there once."""
    model = scripted([[{"tool": "pay", "id": "c1"}], [{"text": "ok"}]] * 2)
    async with served(model, tmp_path / "a.db") as client:
        first = await client.approve((await client.generate("go")).pending_calls[0])
        second = await client.approve((await client.generate([*first.messages, "again"])).pending_calls[0])
    [told] = second.tool_calls
    assert told.tool_call_id != "c1"
    parts = [part for message in model.requests[-1].messages for part in message.parts]
    assert [p.tool_call_id for p in parts if isinstance(p, ToolCallPart)] == ["c1", told.tool_call_id]


MEDIA = Message(
    "user",
    (
        TextPart("Look"),
        ImagePart(url="https://a.example/x.png"),
        ImagePart(data=PNG, media_type="image/png"),
        FilePart(data=b"%PDF", media_type="application/pdf", filename="a.pdf"),
    ),
)
PNG_URL = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
PDF_URL = f"data:application/pdf;base64,{base64.b64encode(b'%PDF').decode()}"
SENT_MEDIA: dict[str, list[dict[str, Any]]] = {
    "chat": [
        {"type": "text", "text": "Look"},
        {"type": "image_url", "image_url": {"url": "https://a.example/x.png"}},
        {"type": "image_url", "image_url": {"url": PNG_URL}},
        {"type": "file", "file": {"file_data": PDF_URL, "filename": "a.pdf"}},
    ],
    "responses": [
        {"type": "input_text", "text": "Look"},
        {"type": "input_image", "image_url": "https://a.example/x.png", "detail": "auto"},
        {"type": "input_image", "image_url": PNG_URL, "detail": "auto"},
        {"type": "input_file", "filename": "a.pdf", "file_data": PDF_URL},
    ],
}


@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_images_and_files(provider: FakeProvider, tmp_path: pathlib.Path, api: str) -> None:
    """They go to the provider as they are: nothing is fetched here."""
    answers = {"chat": HI, "responses": wire.stream(wire.begin(), wire.says(0, "Hi"), wire.end())}
    provider.say(answers[api])
    acme = {"base_url": provider.url, "api_key": "secret-key-1", "api": api}
    async with served("acme/m", tmp_path / "a.db", {"acme": acme}) as client:
        assert (await client.generate([MEDIA])).text == "Hi"
        drawn = Message("assistant", (TextPart("See"), ImagePart(data=PNG, media_type="image/png")))
        [warning] = (await client.generate([drawn, "And?"])).warnings
        assert "images and files of the assistant" in warning
    request, after = provider.requests
    turns = after.body["messages" if api == "chat" else "input"]
    assert turns[0] == {"role": "assistant", "content": "See"}
    [turn] = request.body["messages" if api == "chat" else "input"]
    assert turn == {"role": "user", "content": SENT_MEDIA[api]}


HALF = "\ud800"
ODD: dict[str, dict[str, Any]] = {
    "thinking": {"reasoning_details": [{"type": "reasoning.text", "text": "Hm", "score": math.nan}]},
    "cited page": {
        "annotations": [{"type": "url_citation", "url_citation": {"url": "http://a", "at": math.inf}}]
    },
    "image": {"images": [{"image_url": {"url": f"data:image/{HALF};base64,AAAA"}}]},
    "sound": {"audio": {"data": "AAAA", "format": HALF}},
    "call": {
        "tool_calls": [{"index": 0, "id": "c1", "function": {"name": "nobody"}, "extra": {"x": -math.inf}}]
    },
}


@pytest.mark.parametrize("what", ODD)
async def test_odd_values_beside_an_answer(provider: FakeProvider, tmp_path: pathlib.Path, what: str) -> None:
    """Numbers that are none and letters that are half of one do not cost an answer, nor hang the run."""
    provider.say([*text("Hi"), choice(ODD[what]), choice({}, "stop")], HI)
    acme = {"base_url": provider.url, "api_key": "secret-key-1"}
    async with served("acme/m", tmp_path / "a.db", {"acme": acme}) as client:
        result = await client.generate("go")
    assert (result.error, result.finish_reason) == (None, "stop")
    assert result.text == ("HiHi" if what == "call" else "Hi")
    if what == "cited page":
        assert result.sources[0].provider_metadata["url_citation"] == {"url": "http://a", "at": None}


async def test_a_fallback_of_another_dialect(tmp_path: pathlib.Path) -> None:
    """It gets the conversation in its own, without what is for the first one only; the first one is
    asked again in the next step."""
    async with FakeProvider() as first, FakeProvider() as second:
        call = wire.calls(1, "pay", "call_1", "{}", namespace="n")
        first.say(
            wire.stream(wire.begin(), wire.thinks(0, "Hm."), call, wire.end()),
            Answer([b"{}"], status=400, headers={"content-type": "application/json"}),
        )
        second.say(HI)
        providers = {
            "one": {"base_url": first.url, "api_key": "secret-key-1", "api": "responses"},
            "two": {"base_url": second.url, "api_key": "secret-key-2"},
        }
        async with served(["one/m", "two/m"], tmp_path / "a.db", providers) as client:
            result = await client.generate("go", model_settings={"max_retries": 0})
            result = await client.approve(result.pending_calls[0])
        assert (result.text, result.finish_reason) == ("Hi", "stop")
        assert [len(first.requests), len(second.requests)] == [2, 1]
        assert second.requests[0].body["messages"] == [
            {"role": "user", "content": "go"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "call_1", "type": "function", "function": {"name": "pay", "arguments": "{}"}}
                ],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "paid"},
        ]
