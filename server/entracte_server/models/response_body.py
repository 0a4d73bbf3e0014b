"""The body of a provider's answer, whatever it turns out to be."""

from collections.abc import Mapping
from typing import Protocol

from entracte_server.domain.results import RunError
from entracte_server.models.base import ModelError, ModelEvent
from entracte_server.models.provider_errors import clean, provider_error
from entracte_server.models.provider_json import read_json
from entracte_server.models.providers import DEFAULT_MAX_ANSWER_BYTES
from entracte_server.models.sse import EventTooLarge, SseDecoder

_BLANK = b" \t\r\n\xef\xbb\xbf"
_EVENT_STREAM_STARTS = (b":", b"data", b"event", b"id", b"retry")


class AnswerReader(Protocol):
    """What makes events of the records of one answer.

    `record` takes one event of a stream, `document` a whole JSON body, `take` gives the events so far,
    `end` ends the answer with its `ModelFinish`, and `close` ends the open block when it fails in the
    middle. Each may raise `ModelError`, after which `take` gives what came before the error.
    """

    @property
    def done(self) -> bool:
        """Whether the last record has come."""
        ...

    @property
    def finished(self) -> bool:
        """Whether a finish reason was seen: a stream that breaks off now is complete."""
        ...

    @property
    def begun(self) -> bool:
        """Whether anything of an answer was seen."""
        ...

    def record(self, name: str, data: bytes) -> bool:
        """Takes one event; tells whether it brought the answer forward."""
        ...

    def document(self, data: bytes) -> None:
        """Takes a whole body."""
        ...

    def take(self) -> list[ModelEvent]:
        """The events since the last call."""
        ...

    def close(self) -> None:
        """Ends the open block."""
        ...

    def end(
        self, *, whole: bool = True, headers: Mapping[str, str] | None = None, warnings: tuple[str, ...] = ()
    ) -> None:
        """Ends the answer. `whole` tells whether the body ended properly."""
        ...


class BodyReader:
    """Feeds an `AnswerReader` with the bytes of a body, in pieces of any size.

    The first byte that is not blank decides: a body that opens with a bracket is JSON, one that opens
    with a tag is a page, anything else should be an event stream. What the header says is not
    asked: proxies are known to get it wrong. A body of more than `max_bytes` is given up.
    """

    def __init__(
        self,
        answer: AnswerReader,
        secrets: tuple[str, ...] = (),
        max_bytes: int = DEFAULT_MAX_ANSWER_BYTES,
    ) -> None:
        self._answer = answer
        self._secrets = secrets
        self._max_bytes = max_bytes
        self._decoder: SseDecoder | None = None
        self._pieces: list[bytes] = []
        self._head = b""
        self._size = 0
        self._events = 0

    def feed(self, data: bytes) -> bool:
        """Takes the next bytes; tells whether they brought the answer forward. Raises `ModelError`."""
        self._size += len(data)
        if self._size > self._max_bytes:
            raise _too_large(f"the model's answer is larger than {self._max_bytes} bytes")
        if self._decoder is None:
            self._pieces.append(data)
            if not self._head:
                self._head = data.lstrip(_BLANK)[:500]
                if self._head and self._head[0] not in b"{[<":
                    self._decoder = SseDecoder()
                    data = b"".join(self._pieces)
                    self._pieces.clear()
        if self._decoder is None:
            # Blanks keep a connection alive; JSON needs none.
            return bool(self._head) and not data.isspace()
        try:
            events = self._decoder.feed(data)
        except EventTooLarge as error:
            raise _too_large(str(error)) from None
        progress = False
        record = self._answer.record
        for name, content in events:
            if record(name, content):
                progress = True
        self._events += len(events)
        return progress

    def end(self) -> None:
        """Takes the end of the body. Raises `ModelError`."""
        if self._decoder is None:
            if self._head.startswith(b"<"):
                raise self._no_answer(b"".join(self._pieces))
            if self._head:
                self._answer.document(b"".join(self._pieces).strip(_BLANK))
            return
        for name, content in self._decoder.close():
            self._events += 1
            # Cut in the middle this event is not JSON, which says nothing against the provider.
            if content == b"[DONE]" or _is_whole(content):
                self._answer.record(name, content)
        if not self._events and not self._looks_like_events():
            raise self._no_answer(self._head)

    def _looks_like_events(self) -> bool:
        return any(self._head[: len(start)] == start[: len(self._head)] for start in _EVENT_STREAM_STARTS)

    def _no_answer(self, body: bytes) -> ModelError:
        text = clean(body[:300].decode("utf-8", "replace").strip(), 300, self._secrets)
        message = f"the provider's answer is neither an event stream nor JSON: {text}"
        return provider_error(message, retryable=False, secrets=self._secrets)


def _is_whole(content: bytes) -> bool:
    try:
        return read_json(content) is not None
    except RecursionError:
        return True


def _too_large(message: str) -> ModelError:
    return ModelError(RunError("provider_error", message))
