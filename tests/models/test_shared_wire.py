"""Every invented model answer of the shared folder, over a real connection."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.models.support import SHARED, Outcome, ask, model_of

WIRE = SHARED / "wire"

pytestmark = pytest.mark.skipif(not WIRE.is_dir(), reason="the shared inputs are not here")

EXPECTED: dict[str, Any] = json.loads((WIRE / "expect.json").read_text()) if WIRE.is_dir() else {}


class Player:
    """Plays a file of instructions as a chat-completions body, as the folder's README tells."""

    def __init__(self, name: str) -> None:
        self._lines = [json.loads(line) for line in (WIRE / f"{name}.jsonl").read_text().splitlines()]

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while await self._one(reader, writer):
                pass
        writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        await reader.readexactly(int(head.split(b"content-length:")[1].split(b"\r\n")[0]))
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        eol, prefix, size, escape = "\n", "data: ", 0, True

        async def send(text: str) -> None:
            data = text.encode("utf-8", "surrogatepass")
            for start in range(0, len(data), size or len(data)):
                part = data[start : start + (size or len(data))]
                writer.write(b"%x\r\n%s\r\n" % (len(part), part))
                await writer.drain()
                await asyncio.sleep(0)

        for line in self._lines:
            match line.get("_wire"):
                case None:
                    await send(f"{prefix}{json.dumps(line, ensure_ascii=escape)}{eol}{eol}")
                case "format":
                    eol, prefix = line.get("eol", eol), line.get("prefix", prefix)
                    size, escape = line.get("split_bytes", 0), line.get("ascii", True)
                case "comment":
                    await send(f": {line['text']}{eol}{eol}")
                case "raw":
                    await send(line["text"])
                case "done":
                    await send(f"{prefix}[DONE]{eol}{eol}")
                case "event":
                    data = json.dumps(line["data"])
                    await send(f"event: {line['event']}{eol}{prefix}{data}{eol}{eol}")
                case "close":
                    return False
                case "stall":
                    await reader.read()
                    return False
                case unknown:
                    raise AssertionError(unknown)
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True


@contextlib.asynccontextmanager
async def playing(name: str) -> AsyncIterator[str]:
    server = await asyncio.start_server(Player(name), "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/{name}"


async def outcome_of(name: str, **settings: Any) -> Outcome:
    async with playing(name) as url, model_of(url, max_retries=0, **settings) as model:
        return await ask(model)


@pytest.mark.parametrize("name", sorted(EXPECTED))
async def test_wire(name: str) -> None:
    expected = EXPECTED[name]
    outcome = await outcome_of(name, idle_timeout=1.0 if expected.get("error") == "stall" else 10.0)
    refusal = expected.get("refusal", "")
    assert outcome.text == expected["text"] + refusal
    if "reasoning" in expected:
        assert outcome.reasoning == expected["reasoning"]
    if "error" in expected:
        assert outcome.kind == expected["error"]
        assert outcome.calls == []
        return
    assert outcome.finish.raw_reason == expected["finish"]
    assert outcome.finish.refusal == refusal
    assert outcome.finish.dropped_calls == expected.get("dropped_calls", 0)
    if "usage" in expected:
        usage = outcome.finish.usage
        counted = (usage.input, usage.output, usage.total)
        assert counted == tuple(
            expected["usage"][key] for key in ("prompt_tokens", "completion_tokens", "total_tokens")
        )
    assert len(outcome.calls) == len(expected["tool_calls"])
    for call, wanted in zip(outcome.calls, expected["tool_calls"], strict=True):
        assert call.tool_name == wanted["name"]
        if not expected.get("ids_made"):
            assert call.tool_call_id == wanted["id"]
        if wanted.get("bad_args"):
            assert call.args is None
        else:
            assert call.args is not None
            assert json.loads(call.args) == wanted["args"]


async def test_tags_can_be_lifted() -> None:
    outcome = await outcome_of("think_tags", think_tags=True)
    assert (outcome.reasoning, outcome.text) == ("Hmm", "Yes")


async def test_an_empty_stream_is_asked_again() -> None:
    async with playing("no_chunks") as url, model_of(url, max_retries=1) as model:
        assert (await ask(model)).kind == "empty_stream"
