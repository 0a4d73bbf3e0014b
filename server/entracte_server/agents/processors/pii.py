"""Personal data and secrets: found by patterns and checksums, and then refused, replaced or reported."""

from collections.abc import Iterable
from typing import Any, Literal

import pydantic

from entracte_server.agents.processors import patterns, texts
from entracte_server.agents.processors.base import Processor
from entracte_server.agents.processors.patterns import KINDS, Found, Kind
from entracte_server.agents.processors.views import Answer, Input, StreamInfo, ToolOutput
from entracte_server.domain.chunks import (
    Payload,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningSignature,
    TextDelta,
    TextEnd,
)

_BLOCKING = frozenset({"process_output_stream", "end_output_stream", "process_llm_response"})
_REPORTING = frozenset({"process_output_stream", "end_output_stream", "process_output_step"})
_REDACTING = frozenset({"process_llm_response", "process_output_step"})


class PiiFilter(Processor):
    """Finds personal data and secrets in what goes to the model, in tools' results and in the model's
    answers (their text and thinking; the arguments of tool calls are left alone).

    Kinds: `email`, `phone`, `card` (Luhn's checksum), `iban` (its checksum), `ip`, `ssn`, `key` (API keys,
    tokens, private keys). As an input processor it sees the input, as an output processor the rest.

    Parameters:
        strategy: `redact` (the default) replaces what is found. `block` stops the run. `warn` adds a
            warning to the result.
        kinds: What to look for; all unless given.
        replacement: What stands in its place; `{kind}` is the kind, in capitals. Default `[{kind}]`.
        retry: With `block`, whether an answer is sent back to the model, within `max_processor_retries`.

    With `redact` an answer streams on: only what may be the beginning of something is waited for.
    """

    name = "pii"
    sees_tool_errors = True

    class Parameters(pydantic.BaseModel):
        """See the class."""

        model_config = pydantic.ConfigDict(extra="forbid")

        strategy: Literal["redact", "block", "warn"] = "redact"
        kinds: tuple[Kind, ...] = KINDS
        replacement: str = pydantic.Field(default="[{kind}]", max_length=100)
        retry: bool = False

    parameters: Parameters

    def configured(self) -> None:
        strategy = self.parameters.strategy
        self.can_rewrite = strategy == "redact"
        self.can_veto = strategy == "block"
        self.switched_off = {"redact": _REDACTING, "block": _BLOCKING, "warn": _REPORTING}[strategy]
        self._answer = (0, 0)
        self._waiting: dict[str, str] = {}
        self._changed: set[str] = set()
        self._inside: set[str] = set()

    # ---- whole texts ----

    def _redacted(self, text: str) -> str:
        found = patterns.find(text, self.parameters.kinds)
        return patterns.replaced(text, found, self.parameters.replacement) if found else text

    def _report(self, where: str, found: Iterable[Found], *, retry: bool = False) -> None:
        kinds = sorted({one.kind for one in found})
        if not kinds:
            return
        message = f"{where} contains personal data or secrets: {', '.join(kinds)}."
        if self.parameters.strategy == "block":
            self.abort(message, retry=retry, metadata={"kinds": kinds})
        self.warn(message)

    def _found(self, parts: Iterable[str]) -> list[Found]:
        return [one for part in parts for one in patterns.find(part, self.parameters.kinds)]

    # Plain functions: what is long is searched in a thread.

    def process_input(self, given: Input) -> Input | None:
        """What the caller says."""
        if self.parameters.strategy == "redact":
            return given.replace(messages=texts.in_messages(given.messages, self._redacted))
        self._report("The input", self._found(texts.texts_of(given.messages)))
        return None

    def process_tool_result(self, result: ToolOutput) -> ToolOutput | None:
        """What a tool returned."""
        if self.parameters.strategy == "redact":
            return result.replace(value=texts.in_json(result.value, self._redacted))
        self._report(f"The result of {result.tool_name}", self._found(texts.texts_in(result.value)))
        return None

    def process_llm_response(self, answer: Answer) -> None:
        """Reports."""
        self._report("The answer", self._found((answer.text, answer.reasoning_text)))

    def process_output_step(self, answer: Answer) -> None:
        """Blocks."""
        found = self._found((answer.text, answer.reasoning_text))
        self._report("The answer", found, retry=self.parameters.retry)

    # ---- streams ----

    async def process_output_stream(self, parts: list[Payload], info: StreamInfo) -> list[Payload]:
        """Redacts what is complete, and keeps back what is not yet."""
        if self._answer != (info.number, info.attempt):
            self._answer = (info.number, info.attempt)
            self._waiting, self._changed, self._inside = {}, set(), set()
        out: list[Payload] = []
        for part in parts:
            match part:
                case TextDelta():
                    out += self._delta(TextDelta, f"t{part.id}", part.id, part.text)
                case ReasoningDelta():
                    out += self._delta(ReasoningDelta, f"r{part.id}", part.id, part.text)
                case TextEnd():
                    out += (*self._rest(f"t{part.id}"), part)
                case ReasoningEnd():
                    out += (*self._rest(f"r{part.id}"), part)
                case ReasoningSignature():
                    out += self._rest(f"r{part.id}")
                    if f"r{part.id}" not in self._changed:  # it would be one of another text
                        out.append(part)
                case _:
                    out.append(part)
        return out

    async def end_output_stream(self, info: StreamInfo) -> list[Payload]:
        """What is still kept back."""
        return [part for key in list(self._waiting) for part in self._rest(key)]

    def _delta(self, kind: Any, key: str, block: str, text: str) -> list[Payload]:
        if key in self._inside:  # of a word that was too long to wait for, and that has been replaced
            word = len(text.split(maxsplit=1)[0]) if text and not text[0].isspace() else 0
            text = text[word:]
            if not text:
                return []
            self._inside.discard(key)
        text = self._waiting.get(key, "") + text
        cut = patterns.settled(text)
        self._waiting[key] = text[cut:]
        ready = text[:cut]
        found = patterns.find(ready, self.parameters.kinds)
        if found:
            self._changed.add(key)
            if found[-1].end == len(text):
                self._inside.add(key)
            ready = patterns.replaced(ready, found, self.parameters.replacement)
        return [kind(block, ready)] if ready else []

    def _rest(self, key: str) -> list[Payload]:
        text = self._waiting.pop(key, "")
        redacted = self._redacted(text)
        if redacted != text:
            self._changed.add(key)
        kind: Any = TextDelta if key[0] == "t" else ReasoningDelta
        return [kind(key[1:], redacted)] if redacted else []
