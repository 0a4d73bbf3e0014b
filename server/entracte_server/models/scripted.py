"""A model that plays a script: for tests, demos, and the first run without a key.

A script is a list of steps, one per model call; the last step repeats. A step is a list of parts:

- `{"text": "..."}` and `{"reasoning": "..."}`: a block, streamed word by word;
- `{"tool": "name", "id": "c1", "args": {...}}`: a tool call whose arguments come in two pieces;
  without `id` one is made, without `args` there are none, `rawArgs` sends a text as it is;
- `{"finish": "stop"}` or `{"finish": {"reason": "stop", "usage": {"input": 1, "output": 2}}}`: how
  the answer ends. Without it: `tool-calls` where there are calls, else `stop`; `{"finish": null}`
  breaks the stream off without a finish reason;
- `{"error": "..."}`: the provider fails in the middle of its answer; `{"breakStream": "..."}`: the
  connection to it does;
- `{"throw": "..."}`: the call fails before there is any answer. With `"retryable": true` the next
  step is tried, up to `max_retries` times; with `"status": 429` as well, and `"retryAfter"`, it is a rate
  limit, for which is waited where the request allows it;
- `{"delay": 100}`: a pause in milliseconds;
- `{"raw": {...}}`: a raw chunk, sent only where the request asks for raw chunks;
- `{"file": "...", "mediaType": "..."}` and `{"source": "https://...", "title": "..."}`.

`error` and `throw` take a text, or an object with `message`, `kind`, `status`, `code`, `retryable`
and `retryAfter`; those keys may also stand beside them.
A step may be a Python function that gets the request and returns the parts.
"""

import asyncio
import contextlib
import json
import pathlib
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Literal, cast, get_args

import msgspec

from entracte_server.domain import json_text
from entracte_server.domain.chunks import (
    File,
    FinishReason,
    Raw,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    Source,
    TextDelta,
    TextEnd,
    TextStart,
    ToolCallDelta,
    ToolCallInputStreamingEnd,
    ToolCallInputStreamingStart,
)
from entracte_server.domain.results import RunError, Usage
from entracte_server.models.base import ModelError, ModelEvent, ModelFinish, ModelRequest, ResponseFormats
from entracte_server.models.rate_limits import Waits, is_rate_limit
from entracte_server.models.tool_calls import finished_call, mint_call_id

ScriptPart = Mapping[str, Any]
# The parts are checked when the script is made. A narrower type here would make type checkers refuse
# lists of parts of different shapes that are written in place.
ScriptStep = Sequence[Any] | Callable[[ModelRequest], Sequence[Any]]
Position = Literal["calls", "transcript"]

USAGE_PER_CALL = Usage(input=10, output=5, total=15)
"""What a step without usage of its own reports."""

MAX_REQUESTS = 1000
"""How many requests a scripted model remembers."""

_WORD = re.compile(r"\S*\s+|\S+")
_REASONS = frozenset(get_args(FinishReason))
_PARTS = (
    "text",
    "reasoning",
    "tool",
    "finish",
    "error",
    "breakStream",
    "throw",
    "delay",
    "raw",
    "file",
    "source",
)


class ScriptedModel:
    """Plays `steps`; `requests` holds the requests it was sent, retries included: the last
    `MAX_REQUESTS` of them, so that a server that runs for long does not grow.

    `position` says which step answers a call. `calls` counts the calls made to this object: right
    for tests in one process. `transcript` counts the assistant messages of the request: right where
    a conversation goes on after a restart, or where several conversations use the model at once. With
    `transcript`, steps that only throw are passed over in counting; each throws once per object.
    `pace` is a pause between words in seconds; with it each word is a batch of its own.
    `response_formats` is what it says it can be asked for; what it plays is the script all the same.
    """

    def __init__(
        self,
        steps: Sequence[ScriptStep],
        *,
        name: str = "scripted/script",
        position: Position = "calls",
        pace: float = 0.0,
        response_formats: ResponseFormats = "with-tools",
    ) -> None:
        if not steps:
            raise ValueError("a script needs at least one step")
        for index, step in enumerate(steps):
            if not callable(step):
                _check_step(step, index)
        self._name = name
        self._steps = tuple(steps)
        self._position = position
        self._pace = pace
        self._response_formats = response_formats
        self._thrown: set[int] = set()
        self.calls = 0
        self.requests: list[ModelRequest] = []

    @classmethod
    def from_file(
        cls, path: str | pathlib.Path, *, position: Position = "transcript", pace: float = 0.0
    ) -> "ScriptedModel":
        """The script in a JSON file (an array of steps) or a `.jsonl` file (a step per line).

        Raises `ValueError` naming the file for what is not a script, `OSError` where it cannot be read.
        """
        path = pathlib.Path(path)
        text = path.read_text(encoding="utf-8")
        try:
            if path.suffix == ".jsonl":
                steps = [json.loads(line) for line in text.splitlines() if line.strip()]
            else:
                steps = json.loads(text)
            if not isinstance(steps, list):
                raise ValueError("a script is an array of steps")
            return cls(steps, name=f"scripted/{path.stem}", position=position, pace=pace)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    @property
    def name(self) -> str:
        return self._name

    @property
    def response_formats(self) -> ResponseFormats:
        return self._response_formats

    def request_body(self, request: ModelRequest) -> str:
        """What a script is sent: messages and tools as they are stored."""
        body: dict[str, Any] = {"model": self._name, "messages": request.messages, "tools": request.tools}
        if request.response_format is not None:
            body["response_format"] = request.response_format
        return msgspec.json.encode(body).decode()

    async def stream(self, request: ModelRequest) -> AsyncIterator[list[ModelEvent]]:
        retries = 2 if request.settings.max_retries is None else request.settings.max_retries
        waits = Waits(self._name, request.rate_limit_wait)
        while True:
            index = self._next_index(request)
            step = self._steps[min(index, len(self._steps) - 1)]
            self.calls += 1
            self.requests.append(request)
            if len(self.requests) > MAX_REQUESTS:
                del self.requests[0]
            if callable(step):
                parts = step(request)
                _check_step(parts, index)
            else:
                parts = step
            player = _Player(index, request, self._name, self._pace)
            try:
                async with contextlib.aclosing(player.play(parts)) as batches:
                    async for batch in batches:
                        yield batch
                return
            except ModelError as error:
                failure = error.error
                if player.answered or not failure.retryable:
                    raise
                wait = waits.take(failure.retry_after) if is_rate_limit(failure) else None
                if wait is None and retries <= 0:
                    raise
            if wait is None:
                retries -= 1
            else:
                yield [wait]
                await asyncio.sleep(failure.retry_after)

    def _next_index(self, request: ModelRequest) -> int:
        if self._position == "calls":
            return self.calls
        answers = sum(message.role == "assistant" for message in request.messages)
        for index, step in enumerate(self._steps):
            if _only_throws(step):
                if answers == 0 and index not in self._thrown:
                    self._thrown.add(index)
                    return index
            elif answers == 0:
                return index
            else:
                answers -= 1
        return len(self._steps) + answers


def scripted(
    steps: Sequence[ScriptStep] | Callable[[ModelRequest], Sequence[Any]],
    *,
    position: Position = "calls",
    name: str = "scripted/script",
    response_formats: ResponseFormats = "with-tools",
) -> ScriptedModel:
    """A model that plays `steps`, or that answers every call with what a function returns."""
    return ScriptedModel(
        [steps] if callable(steps) else steps,
        position=position,
        name=name,
        response_formats=response_formats,
    )


class _Player:
    """One answer being played. `answered` tells whether anything of it was seen."""

    def __init__(self, index: int, request: ModelRequest, name: str, pace: float) -> None:
        self.answered = False
        self._index = index
        self._request = request
        self._name = name
        self._pace = pace
        self._blocks = 0
        self._ids: set[str] = set()
        self._has_calls = False

    async def play(self, parts: Sequence[ScriptPart]) -> AsyncGenerator[list[ModelEvent], None]:
        for part in parts:
            if "delay" in part:
                await asyncio.sleep(part["delay"] / 1000)
            elif "throw" in part:
                raise _failure(part, part["throw"])
            elif "error" in part:
                self.answered = True
                raise _failure(part, part["error"])
            elif "breakStream" in part:
                self.answered = True
                raise _failure({"kind": "connection", "retryable": True}, part["breakStream"])
            elif "finish" in part:
                yield [self._finish(part["finish"])]
                return
            elif events := self._events(part):
                self.answered = True
                if self._pace:
                    for event in events:
                        yield [event]
                        await asyncio.sleep(self._pace)
                else:
                    yield events
        yield [self._finish({})]

    def _events(self, part: ScriptPart) -> list[ModelEvent]:
        if "text" in part:
            id = self._block_id("t")
            deltas: list[ModelEvent] = [TextDelta(id, piece) for piece in _words(part["text"])]
            return [TextStart(id), *deltas, TextEnd(id)]
        if "reasoning" in part:
            id = self._block_id("r")
            deltas = [ReasoningDelta(id, piece) for piece in _words(part["reasoning"])]
            return [ReasoningStart(id), *deltas, ReasoningEnd(id)]
        if "tool" in part:
            return self._call(part)
        if "source" in part:
            return [Source(self._block_id("s"), part["source"], part.get("title", ""))]
        if "file" in part:
            return [File(part.get("mediaType", "text/plain"), part["file"].encode())]
        return [Raw(json_text.dump(part["raw"]))] if self._request.include_raw else []

    def _call(self, part: ScriptPart) -> list[ModelEvent]:
        self._has_calls = True
        tool: str = part["tool"]
        id = part.get("id") or mint_call_id()
        if id in self._ids or id in self._request.reserved_ids:
            id = mint_call_id()
        self._ids.add(id)
        text = part["rawArgs"] if "rawArgs" in part else json_text.dump(part.get("args", {}))
        middle = (len(text) + 1) // 2
        deltas: list[ModelEvent] = [
            ToolCallDelta(id, piece, tool)
            for piece in (json_text.scrub(text[:middle]), json_text.scrub(text[middle:]))
            if piece
        ]
        return [
            ToolCallInputStreamingStart(id, tool),
            *deltas,
            ToolCallInputStreamingEnd(id),
            finished_call(id, tool, text),
        ]

    def _finish(self, finish: Any) -> ModelFinish:
        if finish is None:
            raise ModelError(
                RunError("cut", "the model's answer ended without a finish reason", retryable=True)
            )
        fields = finish if isinstance(finish, Mapping) else {"reason": finish}
        word = fields.get("reason") or ("tool-calls" if self._has_calls else "stop")
        if word == "error":
            raise ModelError(RunError("provider_error", "the model ended its answer with an error"))
        usage = USAGE_PER_CALL
        if isinstance(fields.get("usage"), Mapping):
            usage = Usage(**fields["usage"])
            if not usage.total:
                usage = usage + Usage(total=usage.input + usage.output)
        return ModelFinish(
            reason=cast("FinishReason", word if word in _REASONS else "other"),
            raw_reason=word,
            usage=usage,
            response_id=f"scripted-{self._index}",
            response_model=self._name,
        )

    def _block_id(self, kind: str) -> str:
        id = f"{kind}{self._index}-{self._blocks}"
        self._blocks += 1
        return id


def _words(text: str) -> list[str]:
    return _WORD.findall(json_text.scrub(text))


def _failure(part: ScriptPart, what: Any) -> ModelError:
    fields: dict[str, Any] = dict(part)
    fields.update(what if isinstance(what, Mapping) else {"message": what})
    props = fields.get("props") or {}
    return ModelError(
        RunError(
            kind=fields.get("kind", "provider_error"),
            message=json_text.scrub(str(fields.get("message", "the model failed"))),
            status=fields.get("status", props.get("statusCode", 0)),
            retryable=fields.get("retryable", props.get("isRetryable", False)),
            retry_after=float(fields.get("retryAfter", 0.0)),
            code=fields.get("code", ""),
        )
    )


def _only_throws(step: ScriptStep) -> bool:
    return not callable(step) and any("throw" in part for part in step)


def _check_step(step: Any, index: int) -> None:
    if isinstance(step, (str, bytes, Mapping)) or not isinstance(step, Sequence):
        raise ValueError(f"step {index} of the script is not a list of parts")
    for part in step:
        if not isinstance(part, Mapping) or sum(kind in part for kind in _PARTS) != 1:
            raise ValueError(
                f"step {index} of the script: a part is an object with one of {', '.join(_PARTS)};"
                f" got {part!r:.200}"
            )
