"""A streaming chat-completions back end that costs next to nothing.

One raw asyncio protocol, answers built once per model name and written as they stand, so that the back
end is never what limits a measurement. The model's name says what it does:

- `text-N`: N text deltas as fast as the socket takes them;
- `text-N@MS`: the same with MS milliseconds before each delta;
- `quiet`: one delta, then silence until the client goes away;
- `gated-N` or `gated-N@MS`: N text deltas and a call of the tool `gated`; N text deltas and a stop once
  the request holds a tool result.

Every event is an HTTP chunk of its own, usage comes with the last one, connections are kept alive. Each
delta's text ends in MARK, bytes found nowhere else (a single one may stand in a number), so that a reader
counts deltas with `bytes.count`.

Run: `python -m bench.mock_backend`; prints `ready PORT`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import signal
from typing import Any, cast

from bench.loops import run

MARK = "~|~"
DELTA_TEXT = f" word{MARK}"
MODELS = ("text-200", "text-200@20", "text-20", "text-5@20", "quiet", "gated-20")  # what the benchmark uses
TOOL_NAME = "gated"
TOOL_ARGS = '{"amount": 7}'

_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-cache\r\n"
    b"Connection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n"
)
_LAST = b"0\r\n\r\n"
_MODEL = re.compile(rb'"model"\s*:\s*"(?:[^"/]*/)?([^"]+)"')
_TOOL_RESULT = re.compile(rb'"role"\s*:\s*"tool"')
_LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)
_KIND = re.compile(r"(text|gated)-(\d{1,6})(?:@(\d{1,6}))?\Z")
_MAX_REQUEST = 64 * 1024 * 1024


def _event(data: str) -> bytes:
    body = f"data: {data}\n\n".encode()
    return b"%x\r\n%s\r\n" % (len(body), body)


def _chunk(model: str, delta: dict[str, Any], finish: str | None = None, tokens: int | None = None) -> bytes:
    chunk: dict[str, Any] = {
        "id": "chatcmpl-bench",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": model,
        "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}],
    }
    if tokens is not None:
        chunk["usage"] = {"prompt_tokens": 10, "completion_tokens": tokens, "total_tokens": 10 + tokens}
    return _event(json.dumps(chunk, separators=(",", ":")))


def _call_events(model: str) -> list[bytes]:
    first = {
        "index": 0,
        "id": "call_bench0001",
        "type": "function",
        "function": {"name": TOOL_NAME, "arguments": ""},
    }
    rest = {"index": 0, "function": {"arguments": TOOL_ARGS}}
    return [_chunk(model, {"tool_calls": [first]}), _chunk(model, {"tool_calls": [rest]})]


class Answer:
    """What a model says: an opening, paced events (each with the delay in seconds before it), an end."""

    __slots__ = ("delay", "end", "events", "opening", "whole")

    def __init__(self, opening: bytes, events: list[bytes], end: bytes | None, delay: float) -> None:
        self.opening = opening
        self.events = events
        self.end = end
        self.delay = delay
        self.whole = b"" if delay or end is None else opening + b"".join(events) + end


def build_answer(model: str, resumed: bool) -> Answer | None:
    """The answer of a model name, None for an unknown one."""
    opening = _HEAD + _chunk(model, {"role": "assistant", "content": ""})
    delta = _chunk(model, {"content": DELTA_TEXT})
    if model == "quiet":
        return Answer(opening, [delta], None, 0.0)
    match = _KIND.match(model)
    if match is None:
        return None
    kind, count, pace = match[1], int(match[2]), int(match[3] or 0)
    asks = kind == "gated" and not resumed
    end = b"".join(_call_events(model)) if asks else b""
    end += _chunk(model, {}, "tool_calls" if asks else "stop", count) + _event("[DONE]") + _LAST
    return Answer(opening, [delta] * count, end, pace / 1000)


class Connection(asyncio.Protocol):
    """One keep-alive connection: a request, its answer, the next request."""

    answers: dict[tuple[bytes, bool], Answer | None] = {}  # noqa: RUF012 - shared on purpose, filled once per model

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        self._busy = False
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if len(self._buffer) > _MAX_REQUEST:
            self._refuse(413)
        elif not self._busy:
            self._next()

    def _next(self) -> None:
        head, separator, rest = self._buffer.partition(b"\r\n\r\n")
        if not separator:
            return
        length = _LENGTH.search(head)
        size = int(length[1]) if length else 0
        if len(rest) < size:
            return
        body, self._buffer = rest[:size], rest[size:]
        model = _MODEL.search(body)
        if model is None:
            self._refuse(400)
            return
        key = (model[1], _TOOL_RESULT.search(body) is not None)
        if key not in self.answers:
            self.answers[key] = build_answer(key[0].decode(), key[1])
        answer = self.answers[key]
        if answer is None:
            self._refuse(404)
        else:
            self._answer(answer)

    def _answer(self, answer: Answer) -> None:
        transport = self._transport
        if transport is None:
            return
        if answer.whole:
            transport.write(answer.whole)
            if self._buffer:
                self._next()
            return
        self._busy = True
        transport.write(answer.opening)
        if answer.delay:
            self._tick(answer, self._loop.time(), 0)
        else:
            transport.write(b"".join(answer.events))

    def _tick(self, answer: Answer, start: float, sent: int) -> None:
        """Send the event that is due and come back for the next; the schedule is absolute."""
        if self._transport is None:
            return
        if sent:
            self._transport.write(answer.events[sent - 1])
        if sent < len(answer.events):
            due = start + (sent + 1) * answer.delay
            self._timer = self._loop.call_at(due, self._tick, answer, start, sent + 1)
        elif answer.end is not None:
            self._transport.write(answer.end)
            self._busy = False
            if self._buffer:
                self._next()

    def _refuse(self, status: int) -> None:
        body = b'{"error":{"message":"not a model of this mock","type":"invalid_request_error"}}'
        if self._transport is not None:
            head = b"HTTP/1.1 %d Refused\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
            self._transport.write(head % (status, len(body)) + body)
            self._transport.close()


async def serve(port: int) -> None:
    """Serve on 127.0.0.1 until SIGTERM."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    server = await loop.create_server(Connection, "127.0.0.1", port, backlog=4096)
    print("ready", server.sockets[0].getsockname()[1], flush=True)
    await stop.wait()
    server.close()


def main() -> None:
    """Parse the command line and serve."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--port", type=int, default=0)
    run(serve(parser.parse_args().port))


if __name__ == "__main__":
    main()
