"""Structured output of providers over real connections: answers of our own, the invented ones and the
recorded ones of the shared folder."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from entracte import Client, GenerateResult
from entracte_server import Agent, App
from entracte_server.testing import serve
from tests.cases.backend import DONE, Answer, Status, backend, chunk, finish, record, text, usual
from tests.models.support import SHARED
from tests.models.test_shared_wire import playing

CITY: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}


async def result_from(url: str, model: str = "m", schema: Any = CITY, **provider: Any) -> GenerateResult:
    """The result of a run whose model is at `url`."""
    app = App(agents=[Agent(id="one", model=f"mock/{model}")])
    settings = {"base_url": url, "requires_key": False, "max_retries": 0, **provider}
    async with (
        serve(app, providers={"mock": settings}) as server,
        Client(server.address, timeout=30) as client,
    ):
        return await client.agent("one").generate("Where?", structured_output=schema)


# ---- answers of our own ----


def refusal(*pieces: str) -> bytes:
    """Pieces of a refusal, a chunk each."""
    return b"".join(record(chunk({"content": None, "refusal": piece})) for piece in pieces)


OWN: dict[str, tuple[Answer, Any, str]] = {
    "pieces": (usual(text('{"ci', 'ty":"Å', 'lesund"}')), {"city": "Ålesund"}, ""),
    "fence": (usual(text("```js", 'on\n{"city":', '"Oslo"}\n``', "`")), {"city": "Oslo"}, ""),
    "prose": (usual(text("That is ", '{"city":"Oslo"}', ", I think.")), {"city": "Oslo"}, ""),
    "list": (usual(text('[{"city":"Oslo"}]')), None, "structured_output_invalid"),
    "cut": ([text('{"city":"Os'), finish("length"), DONE], None, "structured_output_truncated"),
    "filter": ([text('{"ci'), finish("content_filter"), DONE], None, "structured_output_truncated"),
    "refusal": (usual(refusal("", "I can", "not.")), None, "structured_output_invalid"),
    "nothing": (usual(text("")), None, "structured_output_invalid"),
}


@pytest.mark.parametrize("name", OWN)
async def test_an_answer(name: str) -> None:
    answer, value, kind = OWN[name]
    async with backend(answer) as provider:
        result = await result_from(provider.url)
    assert (result.object, result.error.kind if result.error else "") == (value, kind)
    if name == "refusal":
        assert result.error is not None
        assert (result.error.provider_code, result.error.message) == (
            "refusal",
            "The model refused: I cannot.",
        )
    (request,) = provider.requests
    assert request["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": CITY, "strict": True},
    }
    assert request["messages"] == [{"role": "user", "content": "Where?"}]


async def test_a_provider_that_has_no_response_format() -> None:
    """It is told in the prompt; one that turns out to have none is asked once more."""
    async with backend(usual(text('{"city":"Oslo"}'))) as provider:
        result = await result_from(provider.url, response_formats="none")
        assert result.object == {"city": "Oslo"}
    assert "response_format" not in provider.requests[0]
    assert [message["role"] for message in provider.requests[0]["messages"]] == ["system", "user"]
    no = Status(400, {"error": {"message": "Unknown parameter: 'response_format'."}})
    async with backend(no, usual(text('{"city":"Oslo"}'))) as provider:
        result = await result_from(provider.url)
        assert (result.object, result.error) == ({"city": "Oslo"}, None)
    assert ["response_format" in request for request in provider.requests] == [True, False]


# ---- the shared folder ----

WIRE, RECORDINGS = SHARED / "wire", SHARED / "recordings"


def invented() -> list[str]:
    """The names of the invented answers that are objects, or are to be."""
    return sorted(path.stem for path in WIRE.glob("object_*.jsonl"))


@pytest.mark.skipif(not WIRE.is_dir(), reason="the shared inputs are not here")
@pytest.mark.parametrize("name", invented())
async def test_invented(name: str) -> None:
    expected = json.loads((WIRE / "expect.json").read_text())[name]
    async with playing(name) as url:
        result = await result_from(url)
    assert (result.object, result.text) == (expected.get("object"), expected["text"])
    assert (result.error is not None) == expected.get("object_error", False)
    if expected["finish"] == "length":
        assert result.error is not None
        assert result.error.kind == "structured_output_truncated"


def recorded() -> Iterator[tuple[str, Path]]:
    """The recordings of requests with a response format."""
    for path in sorted(RECORDINGS.glob("[0-9]*.json")):
        raw = json.loads(path.read_text(encoding="utf-8", errors="surrogateescape"))
        if "response_format" in (raw.get("request") or {}):
            yield path.name[:3], path


RECORDED = dict(recorded())


@pytest.fixture(scope="module")
def replay() -> Iterator[str]:
    """The URL of the replay server, run as a process."""
    command = [sys.executable, str(RECORDINGS / "replay_server.py"), "--dir", str(RECORDINGS), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield server.stdout.readline().split(" on ")[1].strip()
        finally:
            server.terminate()


@pytest.mark.skipif(not RECORDINGS.is_dir(), reason="the shared recordings are not here")
@pytest.mark.parametrize("number", RECORDED)
async def test_recorded(replay: str, number: str) -> None:
    """With the schema that was asked for; with any object where none was."""
    raw = json.loads(RECORDED[number].read_text(encoding="utf-8", errors="surrogateescape"))
    asked = raw["request"]["response_format"].get("json_schema", {"schema": {"type": "object"}})
    expect = raw["expect"]
    result = await result_from(f"{replay}/v1", number, asked["schema"], finish_optional=True)
    if expect.get("refusal"):
        assert result.error is not None
        assert (result.error.kind, result.error.provider_code) == ("structured_output_invalid", "refusal")
        assert result.object is None
    else:
        assert result.error is None
        assert result.object == json.loads(expect["text"])
        assert result.object_json == expect["text"].strip()


@pytest.mark.skipif(not RECORDINGS.is_dir(), reason="the shared recordings are not here")
def test_there_are_such_recordings() -> None:
    assert len(RECORDED) >= 5
    assert len(invented()) >= 3
