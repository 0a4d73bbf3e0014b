"""One answer of an OpenAI-style provider, put together leniently from its records.

A record is the data of one server-sent event, or a whole JSON body. What counts is what the records
hold, not what the provider calls it: one choice is followed, the last finish reason and the last
usage hold, a whole message counts as one delta unless deltas came before it.
"""

import contextlib
from collections.abc import Container, Mapping
from typing import Any

import msgspec

from entracte_server.domain import json_text
from entracte_server.domain.chunks import Raw
from entracte_server.domain.results import RunError, Usage
from entracte_server.models.base import ModelError, ModelEvent, ModelFinish
from entracte_server.models.blocks import Blocks
from entracte_server.models.call_assembler import CallAssembler
from entracte_server.models.extras import Extras
from entracte_server.models.plain_delta import decode_plain
from entracte_server.models.provider_errors import clean, provider_error
from entracte_server.models.provider_json import decode_json, read_json
from entracte_server.models.provider_words import finish_reason, read_usage
from entracte_server.models.surrogates import SurrogateJoiner
from entracte_server.models.tool_calls import scrub_json

# How often a record that looked plain may turn out not to be, before they all go the general way.
_PLAIN_MISSES = 16


class AnswerAssembler:
    """Takes records, gives events.

    Call `record` for each event of the stream (or `document` for a JSON body), `take` for the events
    so far, and `end` when the body is over; each may raise `ModelError`, after which `take` gives
    what came before the error.

    `reserved_ids` are tool call ids a call may not have. With `include_raw` each record is also a
    raw event. With `think_tags` a leading `<think>` block of the text is reasoning. With
    `finish_optional` a body that ends properly is complete without a finish reason. `secrets` are
    taken out of error texts.
    """

    def __init__(
        self,
        reserved_ids: Container[str] = frozenset(),
        *,
        include_raw: bool = False,
        think_tags: bool = False,
        finish_optional: bool = False,
        secrets: tuple[str, ...] = (),
    ) -> None:
        self._events: list[ModelEvent] = []
        self._include_raw = include_raw
        self._finish_optional = finish_optional
        self._secrets = secrets
        joiner = SurrogateJoiner()
        self._halves = False
        self._plain = False
        self._plain_misses_left = 0 if include_raw else _PLAIN_MISSES
        self._blocks = Blocks(joiner, think_tags=think_tags)
        self._calls = CallAssembler(reserved_ids, joiner)
        self._extras = Extras()
        self._choice: object = None
        self._seen_delta = False
        self._seen_choice = False
        self._refusal: list[str] = []
        self._finish_word = ""
        self._native_word = ""
        self._usage: Mapping[str, Any] | None = None
        self._id = ""
        self._model = ""
        self._created = 0
        self.done = False

    @property
    def finished(self) -> bool:
        """Whether a finish reason was seen: a stream that breaks off now is complete."""
        return bool(self._finish_word)

    @property
    def begun(self) -> bool:
        """Whether anything of a choice was seen."""
        return self._seen_choice

    def take(self) -> list[ModelEvent]:
        """The events since the last call."""
        events = self._events
        self._events = []
        return events

    def record(self, name: str, data: bytes) -> bool:
        """Takes one event of the stream; tells whether it brought the answer forward: by a piece of what
        the model says, or by a new usage or finish reason. Anything else is no more than a keep-alive.
        """
        if data == b"[DONE]":
            self.done = True
            return True
        if self._plain and not name and (forward := self._plain_record(data)) is not None:
            return forward
        try:
            chunk = decode_json(data)
        except (msgspec.DecodeError, RecursionError):
            return self._odd_record(name, data)
        if type(chunk) is not dict:
            return self._unexpected(chunk)
        return self._chunk(chunk, name, data)

    def document(self, data: bytes) -> None:
        """Takes a whole JSON body. One that is not whole is a cut answer."""
        try:
            chunk = read_json(data)
        except RecursionError:
            message = "the model's answer is nested too deeply"
            raise provider_error(message, retryable=False, secrets=self._secrets) from None
        if chunk is None:
            raise ModelError(RunError("cut", "the model's answer is not complete JSON", retryable=True))
        if isinstance(chunk, list) and len(chunk) == 1:
            chunk = chunk[0]
        if not isinstance(chunk, dict):
            self._unexpected(chunk)
        else:
            self._expect_halves()
            self._chunk(chunk, "", data)
            self.done = True

    def close(self) -> None:
        """Ends the open block, when the answer fails in the middle."""
        self._blocks.close(self._events)

    def end(
        self, *, whole: bool = True, headers: Mapping[str, str] | None = None, warnings: tuple[str, ...] = ()
    ) -> None:
        """Ends the answer: tool calls, files, and one `ModelFinish`.

        `whole` tells whether the body ended properly. Raises `ModelError`: `cut` without a finish
        reason, `empty_stream` without any choice, `content_filter` for a blocked answer that has
        nothing to show, `provider_error` where the provider's finish reason says so.
        """
        if not self._finish_word and not (self._finish_optional and whole and self._seen_choice):
            self.close()
            if not self._seen_choice and whole:
                raise ModelError(RunError("empty_stream", "the model's answer was empty", retryable=True))
            message = "the model's answer broke off without a finish reason"
            raise ModelError(RunError("cut", message, retryable=True))
        self._blocks.finish(self._events)
        reason = finish_reason(self._finish_word or ("tool_calls" if self._calls else "stop"))
        if self._finish_word.lower() == "error":
            raise ModelError(RunError("provider_error", "the provider ended the answer with an error"))
        if reason == "content-filter" and not self._blocks.texts and not self._calls:
            raise ModelError(RunError("content_filter", "the provider's content filter blocked the answer"))
        self._calls.finish(self._events)
        self._extras.finish(self._events)
        metadata = {"native_finish_reason": self._native_word} if self._native_word else None
        self._events.append(
            ModelFinish(
                reason=reason,
                raw_reason=self._finish_word,
                usage=read_usage(self._usage) if self._usage is not None else Usage(),
                response_id=self._id,
                response_model=self._model,
                response_time=self._created,
                headers=headers or {},
                warnings=warnings,
                provider_metadata=json_text.dump(metadata) if metadata else None,
                dropped_calls=self._calls.dropped,
                refusal="".join(self._refusal),
            )
        )

    def _plain_record(self, data: bytes) -> bool | None:
        """Takes a record of the common shapes; None if it is none and nothing was taken."""
        try:
            choice = decode_plain(data).choices[0]
        except (msgspec.DecodeError, RecursionError):
            self._plain = False
            self._plain_misses_left -= 1
            return None
        delta = choice.delta
        calls = delta.tool_calls
        if choice.index or (calls and not self._calls.continues(calls)):
            return None
        reasoning = delta.reasoning_content or delta.reasoning
        if reasoning:
            self._blocks.reason(reasoning, self._events)
        if delta.content:
            self._blocks.write(delta.content, self._events)
        forward = bool(reasoning or delta.content)
        if calls:
            self._blocks.close(self._events)
            forward = self._calls.extend(calls, self._events) or forward
        return forward

    def _odd_record(self, name: str, data: bytes) -> bool:
        chunk = None
        with contextlib.suppress(RecursionError):
            chunk = read_json(data)
        if isinstance(chunk, dict):
            # What msgspec refuses and json accepts are, first of all, halves of surrogate pairs.
            self._expect_halves()
            return self._chunk(chunk, name, data)
        if chunk is not None:
            return self._unexpected(chunk)
        text = data.decode("utf-8", "replace")
        if name == "error":
            raise provider_error(text, secrets=self._secrets)
        if (name and name != "message") or self._finish_word:
            return False
        message = f"the provider sent a record that is not JSON, or nested too deeply: {text[:500]}"
        raise provider_error(message, retryable=False, secrets=self._secrets)

    def _expect_halves(self) -> None:
        self._halves = self._blocks.halves = True

    def _unexpected(self, value: Any) -> bool:
        if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            return any([self._chunk(item, "", msgspec.json.encode(item)) for item in value])
        if self._finish_word or value is None:
            return False
        message = f"the provider sent a record that is not an object: {clean(str(value), 500)}"
        raise provider_error(message, retryable=False, secrets=self._secrets)

    def _chunk(self, chunk: dict[str, Any], name: str, data: bytes) -> bool:
        if self._include_raw:
            self._events.append(Raw(scrub_json(data.decode("utf-8", "replace"))))
        if chunk.get("error") or name == "error":
            raise provider_error(chunk, secrets=self._secrets)
        shown = len(self._events)
        usage = chunk.get("usage")
        forward = bool(usage) and isinstance(usage, dict) and usage != self._usage
        if forward:
            self._usage = usage
        if not self._id or not self._model:
            self._identify(chunk)
        self._extras.chunk(chunk, self._events)
        choices = chunk.get("choices")
        if not choices or type(choices) is not list:
            if chunk.get("object") == "error":
                raise provider_error(chunk, secrets=self._secrets)
            return forward or len(self._events) > shown
        choice = choices[0] if len(choices) == 1 else _choice_zero(choices)
        if type(choice) is not dict or not self._follows(choice.get("index")):
            return forward or len(self._events) > shown
        delta = choice.get("delta")
        if delta:
            self._seen_delta = True
            forward = self._delta(delta) or forward
        elif (message := choice.get("message")) and not self._seen_delta:
            forward = self._delta(message, whole=True) or forward
        word = choice.get("finish_reason")
        if word:
            forward = self._finish(chunk, choice, word) or forward
        self._plain = bool(
            self._plain_misses_left > 0 and not self._halves and self._choice == 0 and self._id and delta
        )
        return forward or len(self._events) > shown

    def _identify(self, chunk: dict[str, Any]) -> None:
        for key, attribute in (("id", "_id"), ("model", "_model")):
            value = chunk.get(key)
            if isinstance(value, str) and not getattr(self, attribute):
                setattr(self, attribute, json_text.scrub(value[:500]))
        created = chunk.get("created")
        if isinstance(created, (int, float)) and not self._created and 0 < created < 1e11:
            self._created = int(created * 1000)

    def _follows(self, index: Any) -> bool:
        """Whether this choice is ours: number 0, or whichever came first if it is the only one."""
        index = index or 0
        if not self._seen_choice:
            self._seen_choice = True
            self._choice = index
        elif index == 0 and self._choice != 0 and not self._blocks.texts and not self._calls:
            self._choice = 0
        return bool(index == self._choice)

    def _finish(self, chunk: dict[str, Any], choice: dict[str, Any], word: Any) -> bool:
        """Takes a finish reason; tells whether it is a new one."""
        if choice.get("error"):
            raise provider_error(choice, secrets=self._secrets)
        before = self._finish_word
        self._finish_word = json_text.scrub(str(word)[:200])
        native = choice.get("native_finish_reason")
        if isinstance(native, str) and native != word:
            self._native_word = json_text.scrub(native[:200])
        x_groq = chunk.get("x_groq")
        usage = choice.get("usage") or (x_groq.get("usage") if isinstance(x_groq, dict) else None)
        if usage and isinstance(usage, dict):
            self._usage = usage
        return self._finish_word != before

    def _delta(self, delta: Any, *, whole: bool = False) -> bool:
        """Takes a delta; tells whether it brought anything that may not show as an event yet."""
        if type(delta) is not dict:
            return False
        blocks, events = self._blocks, self._events
        content = delta.get("content")
        if len(delta) == 1 and type(content) is str:
            blocks.write(content, events)
            return bool(content)
        forward = False
        reasoning = delta.get("reasoning_content") or delta.get("reasoning")
        if reasoning and isinstance(reasoning, str):
            blocks.reason(reasoning, events)
            forward = True
        details = delta.get("reasoning_details")
        if details and isinstance(details, list):
            forward = blocks.reason_in_detail(details, events) or forward
        if content:
            if type(content) is str:
                blocks.write(content, events)
                forward = True
            elif type(content) is list:
                self._content_parts(content)
        refusal = delta.get("refusal")
        if refusal and isinstance(refusal, str):
            self._refusal.append(blocks.say(refusal, events))
        calls = delta.get("tool_calls")
        if calls:
            blocks.close(events)
            forward = self._calls.add(calls, events, whole=whole) or forward
        function = delta.get("function_call")
        if function and isinstance(function, dict) and (function.get("name") or function.get("arguments")):
            blocks.close(events)
            added = self._calls.add([{"index": "function_call", "function": function}], events)
            forward = added or forward
        heard = self._extras.audio_bytes
        transcript = self._extras.delta(delta, events)
        if transcript:
            blocks.say(transcript, events)
        return forward or self._extras.audio_bytes > heard

    def _content_parts(self, parts: list[Any]) -> None:
        for part in parts:
            if isinstance(part, str):
                self._blocks.write(part, self._events)
                continue
            if not isinstance(part, dict):
                continue
            text = part.get("text")
            thinking = part.get("thinking")
            if thinking:
                inner = thinking if isinstance(thinking, list) else [thinking]
                for piece in inner:
                    piece = piece.get("text") if isinstance(piece, dict) else piece
                    if isinstance(piece, str):
                        self._blocks.reason(piece, self._events)
            elif text and isinstance(text, str):
                self._blocks.write(text, self._events)
            else:
                self._extras.part(part, self._events)


def _choice_zero(choices: list[Any]) -> Any:
    for choice in choices:
        if isinstance(choice, dict) and not choice.get("index"):
            return choice
    return choices[0]
