"""A provider for tests: a real HTTP server whose answers a test writes byte by byte."""

import asyncio
import contextlib
import json
import os
import pathlib
import socket
import struct
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from entracte_server.domain.chunks import (
    Custom,
    File,
    Raw,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningSignature,
    ReasoningStart,
    RedactedReasoning,
    Source,
    TextDelta,
    TextEnd,
    TextStart,
    ToolCall,
    ToolCallDelta,
    ToolCallInputStreamingEnd,
    ToolCallInputStreamingStart,
)
from entracte_server.domain.messages import text_message
from entracte_server.domain.results import RunError
from entracte_server.models import (
    Model,
    ModelError,
    ModelEvent,
    ModelFinish,
    ModelRequest,
    Providers,
    ProviderSettings,
    closing,
)

SHARED = pathlib.Path(
    os.environ.get("ENTRACTE_SHARED") or pathlib.Path(__file__).resolve().parents[3] / "shared"
)
"""Where traffic of real providers may be; tests that need it are skipped where it is not."""

T = TypeVar("T")

HI = ModelRequest([text_message("user", "hi")])


def choice(delta: Any = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    """A chunk with one choice."""
    return {
        "id": "cmpl-1",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": "toy-1",
        "choices": [{"index": 0, "delta": {} if delta is None else delta, "finish_reason": finish}],
        **more,
    }


def text(*pieces: str) -> list[dict[str, Any]]:
    return [choice({"content": piece}) for piece in pieces]


def calls(*pieces: dict[str, Any]) -> dict[str, Any]:
    """A chunk with pieces of tool calls."""
    return choice({"tool_calls": list(pieces)})


def piece(
    name: str | None = None, arguments: Any = None, *, id: str | None = None, index: Any = None
) -> dict[str, Any]:
    """One entry of `tool_calls`, without the keys that are None."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    labels = {key: value for key, value in (("index", index), ("id", id)) if value is not None}
    return {**labels, "function": function}


def sse(records: Iterable[Any], *, done: bool = True, eol: str = "\n") -> bytes:
    """Records as an event stream."""
    lines = [f"data: {json.dumps(record)}{eol}{eol}" for record in records]
    return "".join([*lines, *([f"data: [DONE]{eol}{eol}"] if done else [])]).encode()


@dataclass
class Answer:
    """What the provider sends: `pieces` are bytes to write and seconds to wait, and then it ends the
    body, or breaks it off, or resets the connection, or sends nothing for ever."""

    pieces: Sequence[bytes | float]
    end: Literal["proper", "cut", "reset", "hang"] = "proper"
    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: {"content-type": "text/event-stream"})
    before_head: float = 0.0


@dataclass
class Received:
    path: str
    headers: dict[str, str]
    body: Any


class FakeProvider:
    """Gives `answers` in order, the last one again and again; `requests` holds what came."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.requests: list[Received] = []
        self.connections = 0
        self.asked = asyncio.Event()
        self.left = asyncio.Event()
        self.url = ""
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> "FakeProvider":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=1024)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for writer in list(self._writers):
            writer.close()
        await self._server.wait_closed()
        await asyncio.sleep(0)

    def say(self, *answers: Answer | Sequence[Any] | bytes) -> None:
        """Sets the answers; records are sent as a proper event stream."""
        self.answers = [
            answer
            if isinstance(answer, Answer)
            else Answer([answer if isinstance(answer, bytes) else sse(answer)])
            for answer in answers
        ]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            self.left.set()
        finally:
            self._writers.discard(writer)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin1").split("\r\n")
        headers = {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(":") for line in head[1:] if line)
        }
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        self.requests.append(Received(head[0].split(" ")[1], headers, json.loads(body)))
        self.asked.set()
        answer = self.answers[min(len(self.requests), len(self.answers)) - 1]
        await asyncio.sleep(answer.before_head)
        lines = [f"HTTP/1.1 {answer.status} X", *(f"{k}: {v}" for k, v in answer.headers.items())]
        writer.write("\r\n".join([*lines, "transfer-encoding: chunked", "", ""]).encode("latin1"))
        for part in answer.pieces:
            if isinstance(part, bytes):
                if part:
                    writer.write(b"%x\r\n%s\r\n" % (len(part), part))
                await writer.drain()
            else:
                await asyncio.sleep(part)
        match answer.end:
            case "proper":
                writer.write(b"0\r\n\r\n")
                await writer.drain()
                return True
            case "hang":
                if not await reader.read():
                    self.left.set()
            case "reset":
                await asyncio.sleep(0.05)
                connection = writer.get_extra_info("socket")
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return False


@contextlib.asynccontextmanager
async def model_of(
    provider: FakeProvider | str, *, idle_timeout: float = 5.0, **settings: Any
) -> AsyncIterator[Model]:
    """The model `test/m` of a provider, given as the server or as its URL."""
    url = provider if isinstance(provider, str) else provider.url
    one = ProviderSettings("test", base_url=url, **{"api_key": "secret-key-1", **settings})
    providers = Providers([one], idle_timeout=idle_timeout)
    try:
        yield providers.resolve("test/m")
    finally:
        await providers.aclose()


@dataclass
class Outcome:
    """One answer as it was seen."""

    batches: list[list[ModelEvent]]
    error: RunError | None

    @property
    def events(self) -> list[ModelEvent]:
        return [event for batch in self.batches for event in batch]

    def of(self, kind: type[T]) -> list[T]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.of(TextDelta))

    @property
    def reasoning(self) -> str:
        return "".join(event.text for event in self.of(ReasoningDelta))

    @property
    def calls(self) -> list[ToolCall]:
        return self.of(ToolCall)

    @property
    def finish(self) -> ModelFinish:
        assert self.error is None, self.error
        return self.of(ModelFinish)[0]

    @property
    def kind(self) -> str:
        """The kind of the error."""
        assert self.error is not None
        return self.error.kind


async def ask(model: Model, request: ModelRequest = HI) -> Outcome:
    """Asks once, and checks what must hold for every answer."""
    batches: list[list[ModelEvent]] = []
    error = None
    try:
        async with closing(model.stream(request)) as answer:
            async for batch in answer:
                assert batch, "a batch is never empty"
                batches.append(batch)
    except ModelError as failure:
        error = failure.error
    outcome = Outcome(batches, error)
    check_shape(outcome, request)
    return outcome


def check_shape(outcome: Outcome, request: ModelRequest = HI) -> None:
    """Blocks are opened, filled and closed; calls are announced under one id and end once; the finish is
    the last event and the only one; no text is empty or holds half a character."""
    open_block = ""
    blocks: set[str] = set()
    names: dict[str, str] = {}
    pieces: dict[str, str] = {}
    ended: list[str] = []
    for event in outcome.events:
        match event:
            case TextStart(id=id) | ReasoningStart(id=id):
                assert not open_block
                assert id not in blocks
                blocks.add(id)
                open_block = id
            case TextDelta(id=id, text=piece_) | ReasoningDelta(id=id, text=piece_):
                assert id == open_block
                assert piece_
                piece_.encode()
            case ReasoningSignature(id=id) | RedactedReasoning(id=id):
                assert id == open_block
            case TextEnd(id=id) | ReasoningEnd(id=id):
                assert id == open_block
                open_block = ""
            case ToolCallInputStreamingStart(tool_call_id=id, tool_name=name):
                assert id
                assert name
                assert id not in names
                assert id not in request.reserved_ids
                names[id] = name
                pieces[id] = ""
            case ToolCallDelta(tool_call_id=id, args_text_delta=piece_):
                assert piece_
                piece_.encode()
                pieces[id] += piece_
            case ToolCallInputStreamingEnd(tool_call_id=id):
                assert id in names
                ended.append(id)
            case ToolCall():
                assert ended[-1] == event.tool_call_id
                assert names[event.tool_call_id] == event.tool_name
                assert (event.args is None) == (event.args_error is not None)
                if event.args is None:
                    assert event.invalid_args == pieces[event.tool_call_id]
                elif event.args != "{}" and "\\ud8" not in pieces[event.tool_call_id]:
                    assert event.args == pieces[event.tool_call_id].strip()
            case ModelFinish() | Raw() | Source() | File() | Custom():
                pass
            case _:
                raise AssertionError(f"a model does not send {event!r}")
    assert not open_block
    assert len(ended) == len(set(ended))
    finishes = outcome.of(ModelFinish)
    if outcome.error is None:
        assert len(finishes) == 1
        assert outcome.events[-1] is finishes[0]
        theirs = {call.tool_call_id for call in outcome.calls if call.provider_executed}
        assert [id for id in names if id not in theirs] == [id for id in ended if id not in theirs]
        assert set(names) == set(ended)
    else:
        assert not finishes
