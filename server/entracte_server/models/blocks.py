"""The text and the thinking of one answer, as blocks: start, deltas, end."""

from typing import Any

from entracte_server.domain import json_text
from entracte_server.domain.chunks import (
    ReasoningDelta,
    ReasoningEnd,
    ReasoningSignature,
    ReasoningStart,
    RedactedReasoning,
    TextDelta,
    TextEnd,
    TextStart,
)
from entracte_server.models.base import ModelEvent
from entracte_server.models.reasoning import ReasoningDetails, ThinkTags
from entracte_server.models.surrogates import SurrogateJoiner

_TEXT = "text"
_REASONING = "reasoning"
_SAYING = ("text", "summary", "signature", "data")


class Blocks:
    """Adds the events of text and thinking to `out`, opening and closing blocks as the kind changes.

    All events of a reasoning block have its id: its deltas, signature and redacted data, and its end,
    whose `provider_metadata` is what has to go back to the provider. `texts` counts text blocks.
    `halves` is set once halves of surrogate pairs may come.
    """

    def __init__(self, joiner: SurrogateJoiner, *, think_tags: bool = False) -> None:
        self._joiner = joiner
        self._tags = ThinkTags() if think_tags else None
        self._open = ""
        self._id = ""
        self._reasonings = 0
        self._reasoning_size = 0
        self._details: ReasoningDetails | None = None
        self._plain_reasoning = False
        self.texts = 0
        self.halves = False

    def write(self, text: str, out: list[ModelEvent]) -> None:
        """Takes the model's text, in which thinking may be marked by tags."""
        if self._tags is not None:
            for thinking, piece in self._tags.feed(text):
                self._show(_REASONING if thinking else _TEXT, piece, out)
        elif self._open == _TEXT and not self.halves:
            if text:
                out.append(TextDelta(self._id, text))
        else:
            self._show(_TEXT, text, out)

    def say(self, text: str, out: list[ModelEvent]) -> str:
        """Takes text to be shown as it is; gives what could be shown."""
        return self._show(_TEXT, text, out)

    def reason(self, text: str, out: list[ModelEvent]) -> None:
        """Takes thinking in plain words."""
        self._plain_reasoning = True
        self._show(_REASONING, text, out)

    def reason_in_detail(self, details: list[Any], out: list[ModelEvent]) -> bool:
        """Takes the provider's records of thinking; tells whether they say anything. Their words are
        shown unless plain ones came."""
        said = False
        for piece in details:
            if not isinstance(piece, dict) or not any(piece.get(key) for key in _SAYING):
                continue
            said = True
            self._switch(_REASONING, out)
            if self._details is None:
                self._details = ReasoningDetails()
            self._details.add(piece)
            words = piece.get("text") or piece.get("summary")
            if isinstance(words, str) and not self._plain_reasoning:
                self._show(_REASONING, words, out)
            signature = piece.get("signature")
            if signature and isinstance(signature, str):
                out.append(ReasoningSignature(self._id, json_text.scrub(signature)))
            data = piece.get("data")
            if data and isinstance(data, str):
                out.append(RedactedReasoning(self._id, json_text.scrub(data)))
        return said

    def close(self, out: list[ModelEvent]) -> None:
        """Ends the open block."""
        self._switch("", out)

    def finish(self, out: list[ModelEvent]) -> None:
        """Shows what was held back, and ends the open block."""
        if self._tags is not None:
            for thinking, text in self._tags.flush():
                self._show(_REASONING if thinking else _TEXT, text, out)
        for block in (_REASONING, _TEXT):
            # Half a character that never got as far as opening its block.
            if block != self._open and (left := self._joiner.flush(block)):
                self._show(block, left, out)
        self.close(out)

    def _show(self, block: str, text: str, out: list[ModelEvent]) -> str:
        if self.halves and text:
            text = self._joiner.join(block, text)
        if not text:
            return text
        self._switch(block, out)
        if block == _TEXT:
            out.append(TextDelta(self._id, text))
        else:
            self._reasoning_size += len(text)
            out.append(ReasoningDelta(self._id, text))
        return text

    def _switch(self, block: str, out: list[ModelEvent]) -> None:
        if self._open == block:
            return
        if self._open and (left := self._joiner.flush(self._open)):
            delta = TextDelta if self._open == _TEXT else ReasoningDelta
            out.append(delta(self._id, left))
        if self._open == _TEXT:
            out.append(TextEnd(self._id))
        elif self._open == _REASONING:
            metadata = self._details.metadata(self._reasoning_size) if self._details else None
            out.append(ReasoningEnd(self._id, metadata))
            self._details = None
        self._open = block
        if block == _TEXT:
            self._id = f"t{self.texts}"
            self.texts += 1
            out.append(TextStart(self._id))
        elif block == _REASONING:
            self._id = f"r{self._reasonings}"
            self._reasonings += 1
            self._reasoning_size = 0
            out.append(ReasoningStart(self._id))
