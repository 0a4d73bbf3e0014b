"""One answer of the Responses API, put together leniently from its events.

The answer is a list of items: thinking, messages, calls. Events name the item they belong to by its index.
What was not streamed is taken from the item when it is done, or from the whole response at the end, so
that a server that leaves events out is understood as well.
"""

import contextlib
from collections.abc import Container, Mapping
from typing import Any

import msgspec

from entracte_server.domain import json_text
from entracte_server.domain.chunks import FinishReason, Raw
from entracte_server.domain.results import RunError, Usage
from entracte_server.models.base import ModelError, ModelEvent, ModelFinish
from entracte_server.models.provider_errors import clean, provider_error
from entracte_server.models.provider_json import decode_json, read_json
from entracte_server.models.provider_words import read_usage
from entracte_server.models.responses_blocks import ItemBlocks
from entracte_server.models.responses_calls import ItemCalls
from entracte_server.models.responses_extras import ItemExtras
from entracte_server.models.tool_calls import scrub_json

_INCOMPLETE: Mapping[str, FinishReason] = {
    "max_output_tokens": "length",
    "max_tokens": "length",
    "content_filter": "content-filter",
}
_ENDINGS = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled"})

# Items that say nothing a client or the next request could use.
_SILENT_ITEMS = frozenset({"mcp_list_tools", "compaction"})


class ResponsesAssembler:
    """An `AnswerReader`. `provider` is the name under which thinking is kept to be sent back; `reserved_ids`
    are tool call ids a call may not have; with `include_raw` each event is also a raw event; `secrets` are
    taken out of error texts.
    """

    def __init__(
        self,
        provider: str,
        reserved_ids: Container[str] = frozenset(),
        *,
        include_raw: bool = False,
        secrets: tuple[str, ...] = (),
    ) -> None:
        self._events: list[ModelEvent] = []
        self._include_raw = include_raw
        self._secrets = secrets
        self._blocks = ItemBlocks(provider)
        self._calls = ItemCalls(provider, reserved_ids)
        self._extras = ItemExtras()
        self._done_items: set[int] = set()
        self._left_out: set[str] = set()
        self._refusal: list[str] = []
        self._response: Mapping[str, Any] = {}
        self._status = ""
        self._begun = False
        self._handlers = {
            "response.output_text.delta": self._text,
            "response.refusal.delta": self._refuse,
            "response.reasoning_summary_text.delta": self._think,
            "response.reasoning_text.delta": self._think,
            "response.function_call_arguments.delta": self._args,
            "response.function_call_arguments.done": self._args_done,
            "response.output_item.added": self._item_added,
            "response.output_item.done": self._item_done,
            "response.output_text.annotation.added": self._annotation,
        }

    @property
    def done(self) -> bool:
        """The event that ends an answer brings its usage as well."""
        return bool(self._status)

    @property
    def finished(self) -> bool:
        return bool(self._status)

    @property
    def begun(self) -> bool:
        return self._begun

    def take(self) -> list[ModelEvent]:
        events = self._events
        self._events = []
        return events

    def close(self) -> None:
        self._blocks.close(self._events)

    def record(self, name: str, data: bytes) -> bool:
        if data == b"[DONE]" or self._status:
            return False
        try:
            event = decode_json(data)
        except (msgspec.DecodeError, RecursionError):
            event = None
            with contextlib.suppress(RecursionError):
                event = read_json(data)
        if type(event) is not dict:
            return self._odd(name, data)
        if self._include_raw:
            self._events.append(Raw(scrub_json(data.decode("utf-8", "replace"))))
        return self._event(event, name)

    def document(self, data: bytes) -> None:
        try:
            value = read_json(data)
        except RecursionError:
            message = "the model's answer is nested too deeply"
            raise provider_error(message, retryable=False, secrets=self._secrets) from None
        if value is None:
            raise ModelError(RunError("cut", "the model's answer is not complete JSON", retryable=True))
        if not isinstance(value, dict):
            self._odd("", data)
            return
        if self._include_raw:
            self._events.append(Raw(scrub_json(data.decode("utf-8", "replace"))))
        if value.get("error"):
            raise provider_error(value, secrets=self._secrets)
        if isinstance(value.get("output"), list):
            self._end_with(value, str(value.get("status") or "completed"))

    def end(
        self, *, whole: bool = True, headers: Mapping[str, str] | None = None, warnings: tuple[str, ...] = ()
    ) -> None:
        if not self._status:
            self.close()
            if not self._begun and whole:
                raise ModelError(RunError("empty_stream", "the model's answer was empty", retryable=True))
            message = "the model's answer broke off before its end"
            raise ModelError(RunError("cut", message, retryable=True))
        self.close()
        reason, word = self._reason()
        if reason == "content-filter" and not self._blocks.texts and not self._calls:
            raise ModelError(RunError("content_filter", "the provider's content filter blocked the answer"))
        self._calls.finish(self._events, whole=self._status != "incomplete")
        usage = self._response.get("usage")
        created = self._response.get("created_at")
        self._events.append(
            ModelFinish(
                reason=reason,
                raw_reason=word,
                usage=read_usage(usage) if isinstance(usage, dict) else Usage(),
                response_id=self._label("id"),
                response_model=self._label("model"),
                response_time=_milliseconds(created),
                headers=headers or {},
                warnings=(*warnings, *self._warnings()),
                dropped_calls=self._calls.dropped,
                refusal="".join(self._refusal),
            )
        )

    # ---- events ----

    def _event(self, event: dict[str, Any], name: str) -> bool:
        kind = event["type"] = str(event.get("type") or name)
        handler = self._handlers.get(kind)
        if handler is not None:
            self._begun = True
            return handler(event)
        response = event.get("response")
        if kind == "error" or (not kind and event.get("error")):
            raise self._failure(event)
        if isinstance(response, dict):
            self._response = {**self._response, **response}
            if kind in _ENDINGS:
                self._end_with(response, kind.removeprefix("response."))
                return True
        # Whatever else there is tells how far a tool of the provider has come, or repeats a text.
        return kind.startswith("response.") and ("_call" in kind or kind.endswith(".added"))

    def _odd(self, name: str, data: bytes) -> bool:
        text = clean(data.decode("utf-8", "replace"), 500, self._secrets)
        if name == "error":
            raise provider_error(text, secrets=self._secrets)
        if name and name != "message":
            return False
        message = f"the provider sent a record that is not an object, or nested too deeply: {text}"
        raise provider_error(message, retryable=False, secrets=self._secrets)

    def _failure(self, record: Mapping[str, Any]) -> ModelError:
        error = record.get("error")
        if not isinstance(error, Mapping):
            error = {key: value for key, value in record.items() if key not in ("type", "sequence_number")}
        return provider_error(error, secrets=self._secrets)

    def _text(self, event: dict[str, Any]) -> bool:
        part = _number(event, "content_index")
        return self._blocks.text(_index(event), event.get("delta"), self._events, part)

    def _refuse(self, event: dict[str, Any]) -> bool:
        refused = self._text(event)
        if refused:
            self._refusal.append(json_text.scrub(event["delta"]))
        return refused

    def _think(self, event: dict[str, Any]) -> bool:
        kind = "summary" if "summary" in event["type"] else "content"
        part = (kind, _number(event, f"{kind}_index"))
        return self._blocks.think(_index(event), event.get("delta"), self._events, part)

    def _args(self, event: dict[str, Any]) -> bool:
        return self._calls.extend(_index(event), event.get("delta"), self._events)

    def _args_done(self, event: dict[str, Any]) -> bool:
        self._calls.end_args(_index(event), event.get("arguments"), self._events)
        return True

    def _annotation(self, event: dict[str, Any]) -> bool:
        return self._extras.cite(event.get("annotation"), self._events)

    def _item_added(self, event: dict[str, Any]) -> bool:
        item, index = event.get("item"), _index(event)
        if not isinstance(item, dict):
            return False
        match item.get("type"):
            case "function_call":
                self._blocks.close(self._events)
                return self._calls.open(index, item, self._events)
            case "message":
                self._blocks.expect(index, item)
        return True

    def _item_done(self, event: dict[str, Any]) -> bool:
        item = event.get("item")
        if not isinstance(item, dict):
            return False
        self._whole(_index(event), item)
        return True

    def _whole(self, index: int, item: dict[str, Any]) -> None:
        """Takes a complete item; what of it was streamed is not shown again."""
        if index in self._done_items:
            return
        self._done_items.add(index)
        self._begun = True
        events = self._events
        kind = item.get("type")
        match kind:
            case "message":
                self._message(index, item)
            case "reasoning":
                self._blocks.end_thinking(index, item, events)
            case "function_call":
                self._blocks.close(events)
                self._calls.whole(index, item, events)
            case _ if isinstance(kind, str) and self._calls.by_provider(kind):
                self._blocks.close(events)
                self._calls.executed(item, kind, events)
                self._extras.made(item, events)
            case _ if str(kind) not in _SILENT_ITEMS:
                self._left_out.add(json_text.scrub(str(kind)[:60]))

    def _message(self, index: int, item: dict[str, Any]) -> None:
        content = item.get("content")
        for number, part in enumerate(content if isinstance(content, list) else ()):
            if not isinstance(part, dict):
                continue
            refusal = part.get("refusal")
            text = refusal if part.get("type") == "refusal" else part.get("text")
            if not self._blocks.streamed(index, number):
                self._blocks.text(index, text, self._events, number)
                if part.get("type") == "refusal" and isinstance(refusal, str):
                    self._refusal.append(json_text.scrub(refusal))
            annotations = part.get("annotations")
            for annotation in annotations if isinstance(annotations, list) else ():
                self._extras.cite(annotation, self._events)
        self._blocks.end_message(index, item, self._events)

    # ---- the end ----

    def _end_with(self, response: Mapping[str, Any], word: str) -> None:
        self._response = {**self._response, **response}
        error = response.get("error")
        if word == "failed" or (isinstance(error, dict) and error):
            self.close()
            raise self._failure(error if isinstance(error, dict) else {"message": "the provider failed"})
        output = response.get("output")
        for index, item in enumerate(output if isinstance(output, list) else ()):
            if isinstance(item, dict):
                self._whole(index, item)
        if word == "cancelled":
            raise ModelError(RunError("cut", "the provider cancelled its answer", retryable=True))
        self._status = word
        self._begun = True

    def _reason(self) -> tuple[FinishReason, str]:
        if self._status != "incomplete":
            return "tool-calls" if self._calls else "stop", self._status
        details = self._response.get("incomplete_details")
        word = details.get("reason") if isinstance(details, dict) else None
        word = json_text.scrub(word[:200]) if isinstance(word, str) else "incomplete"
        return _INCOMPLETE.get(word, "other"), word

    def _label(self, key: str) -> str:
        value = self._response.get(key)
        return json_text.scrub(value[:500]) if isinstance(value, str) else ""

    def _warnings(self) -> tuple[str, ...]:
        kinds = ", ".join(sorted(self._left_out))
        return (f"the model's answer has items of a kind unknown here, left out: {kinds}",) if kinds else ()


def _index(event: Mapping[str, Any]) -> int:
    return _number(event, "output_index")


def _number(event: Mapping[str, Any], key: str) -> int:
    value = event.get(key)
    return value if type(value) is int else 0


def _milliseconds(created: Any) -> int:
    return int(created * 1000) if isinstance(created, (int, float)) and 0 < created < 1e11 else 0
