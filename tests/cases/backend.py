"""A model provider on this machine: answers chat-completion calls with what a test puts together."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from entracte_server import App
from tests.cases.support import Caller, serving

# ---- pieces of an answer ----


def record(data: Any, *, event: str = "", ascii: bool = True) -> bytes:
    """A server-sent event."""
    head = f"event: {event}\n" if event else ""
    text = json.dumps(data, ensure_ascii=ascii)
    return f"{head}data: {text}\n\n".encode("utf-8", "surrogatepass")


def chunk(delta: Any = None, finish: str | None = None, *, index: int = 0, **more: Any) -> dict[str, Any]:
    """A chunk with one choice."""
    choice = {"index": index, "delta": {} if delta is None else delta, "finish_reason": finish}
    return {
        "id": "a1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [choice],
        **more,
    }


def text(*pieces: str) -> bytes:
    """Pieces of text, a chunk each."""
    return b"".join(record(chunk({"content": piece})) for piece in pieces)


def piece(name: str | None = None, arguments: Any = ..., **labels: Any) -> dict[str, Any]:
    """A piece of a tool call; what is not given is absent."""
    function: dict[str, Any] = {} if name is None else {"name": name}
    if arguments is not ...:
        function["arguments"] = arguments
    return {**labels, "function": function}


def calls(*pieces: dict[str, Any], finish: str | None = None) -> bytes:
    """A chunk with pieces of tool calls."""
    return record(chunk({"tool_calls": list(pieces)}, finish))


def finish(word: str = "stop", **more: Any) -> bytes:
    """The chunk that ends an answer."""
    return record(chunk(finish=word, **more))


DONE = b"data: [DONE]\n\n"


class Cut:
    """The connection breaks off here."""


class Stall:
    """Nothing more comes, and the connection stays open; `comments` are sent now and then."""

    def __init__(self, comments: bool = False) -> None:
        self.comments = comments


@dataclass
class Status:
    """An answer that is no stream: an HTTP status with a body."""

    code: int
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)


Part = bytes | float | Cut | Stall
Answer = Sequence[Part] | Status


def usual(*parts: Part, word: str = "stop") -> list[Part]:
    """An answer with a proper end."""
    return [*parts, finish(word), DONE]


END: Answer = usual(text("the end"))


class Backend:
    """Gives `answers` in order, the last one again and again. `requests` are the bodies that came,
    `closed` counts connections the caller gave up in the middle of an answer. Each answer is written
    `split` bytes at a time."""

    def __init__(self, answers: Iterable[Answer], split: int = 1 << 20) -> None:
        self.answers = list(answers)
        self.requests: list[dict[str, Any]] = []
        self.closed = 0
        self.url = ""
        self._split = split
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def close(self) -> None:
        """Drop all connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin1").lower()
        length = int(head.split("content-length:")[1].split("\r\n")[0])
        self.requests.append(json.loads(await reader.readexactly(length)))
        answer = self.answers[min(len(self.requests), len(self.answers)) - 1]
        if isinstance(answer, Status):
            body = json.dumps(answer.body).encode()
            lines = [f"{name}: {value}" for name, value in answer.headers.items()]
            fixed = [f"HTTP/1.1 {answer.code} X", "content-type: application/json"]
            writer.write(
                "\r\n".join([*fixed, *lines, f"content-length: {len(body)}", "", ""]).encode() + body
            )
            return True
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        for part in answer:
            if isinstance(part, bytes):
                for start in range(0, len(part), self._split):
                    piece = part[start : start + self._split]
                    writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                    await writer.drain()
                    await asyncio.sleep(0)
            elif isinstance(part, float):
                await asyncio.sleep(part)
            elif isinstance(part, Cut):
                return False
            else:
                await self._stall(reader, writer, part)
                return False
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    async def _stall(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, stall: Stall) -> None:
        gone = asyncio.create_task(reader.read())
        try:
            while not gone.done():
                await asyncio.wait({gone}, timeout=0.05)
                if stall.comments:
                    writer.write(b"7\r\n: ping\n\r\n")
        finally:
            gone.cancel()
        self.closed += 1


@asynccontextmanager
async def backend(*answers: Answer, split: int = 1 << 20) -> AsyncIterator[Backend]:
    """A provider that gives these answers, then `the end`."""
    it = Backend([*answers, END], split)
    server = await asyncio.start_server(it.serve, "127.0.0.1", 0)
    it.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    try:
        yield it
    finally:
        server.close()
        await it.close()
        await server.wait_closed()


@asynccontextmanager
async def asking(
    app: App, *answers: Answer, split: int = 1 << 20, provider: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[tuple[Caller, Backend]]:
    """A server whose agents ask `mock/...` models, which give these answers, then `the end`."""
    async with backend(*answers, split=split) as it:
        options = {"base_url": it.url, "requires_key": False, "max_retries": 0, **(provider or {})}
        async with serving(app, providers={"mock": options}, **settings) as caller:
            yield caller, it


# ---- what a provider was sent ----


def sent_calls(request: dict[str, Any]) -> list[tuple[str, str, str]]:
    """The calls in a request body: id, name and arguments' text."""
    return [
        (call["id"], call["function"]["name"], call["function"]["arguments"])
        for message in request["messages"]
        for call in message.get("tool_calls") or ()
    ]


def sent_results(request: dict[str, Any]) -> list[tuple[str, str]]:
    """The results in a request body: id and content."""
    return [(m["tool_call_id"], m["content"]) for m in request["messages"] if m["role"] == "tool"]


def well_formed(request: dict[str, Any]) -> bool:
    """Whether a strict provider would take the history: each call has a name, an id of its own and
    exactly one result, in the messages right after it."""
    messages = request["messages"]
    ids: set[str] = set()
    at = 0
    while at < len(messages):
        own = [call["id"] for call in messages[at].get("tool_calls") or ()]
        names = [call["function"]["name"] for call in messages[at].get("tool_calls") or ()]
        at += 1
        if not all(own) or not all(names) or len(set(own)) != len(own) or ids & set(own):
            return False
        ids |= set(own)
        answered = []
        while at < len(messages) and messages[at]["role"] == "tool":
            answered.append(messages[at]["tool_call_id"])
            at += 1
        if answered != own:
            return False
    return True
