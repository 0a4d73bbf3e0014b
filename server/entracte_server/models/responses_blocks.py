"""The texts and the thinking in an answer of the Responses API, as blocks: start, deltas, end."""

from typing import Any

from entracte_server.domain import json_text
from entracte_server.domain.chunks import (
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    TextDelta,
    TextEnd,
    TextStart,
)
from entracte_server.models.base import ModelEvent
from entracte_server.models.responses_items import keep
from entracte_server.models.surrogates import SurrogateJoiner

_GAP = "\n\n"
"""Between two parts of a summary."""


class ItemBlocks:
    """One block for each item that says or thinks something; one is open at a time.

    The end of a block has in its metadata what has to go back to the provider. `texts` counts the blocks
    of text.
    """

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._joiner = SurrogateJoiner()
        self._open = ""
        self._id = ""
        self._index = -1
        self._part: object = None
        self._seen: set[tuple[int, object]] = set()
        self._phases: dict[int, str] = {}
        self._thoughts = 0
        self.texts = 0

    def expect(self, index: int, item: dict[str, Any]) -> None:
        """A message begins."""
        if isinstance(phase := item.get("phase"), str):
            self._phases[index] = json_text.scrub(phase[:100])

    def streamed(self, index: int, part: object) -> bool:
        """Whether anything of a part of an item was shown."""
        return (index, part) in self._seen

    def text(self, index: int, piece: Any, out: list[ModelEvent], part: object) -> bool:
        """Takes text of a message; tells whether it is any."""
        return self._add("text", index, piece, out, part)

    def think(self, index: int, piece: Any, out: list[ModelEvent], part: object) -> bool:
        """Takes thinking, or its summary; tells whether it is any."""
        return self._add("reasoning", index, piece, out, part)

    def end_message(self, index: int, item: dict[str, Any], out: list[ModelEvent]) -> None:
        """Takes the end of a message."""
        self.expect(index, item)
        if self._open == "text" and self._index == index:
            self.close(out)

    def end_thinking(self, index: int, item: dict[str, Any], out: list[ModelEvent]) -> None:
        """Takes a complete item of thinking, which is also shown where it was not streamed."""
        for key in ("summary", "content"):
            parts = item.get(key)
            for number, part in enumerate(parts if isinstance(parts, list) else ()):
                if isinstance(part, dict) and not self.streamed(index, (key, number)):
                    self.think(index, part.get("text"), out, (key, number))
        sent = {k: v for k, v in item.items() if k != "status" and v not in (None, [])}
        sent.setdefault("summary", [])
        # A summary alone is refused: nothing is stored at the provider that it could belong to.
        useful = "encrypted_content" in sent or "content" in sent
        if useful and not (self._open == "reasoning" and self._index == index):
            self._begin("reasoning", index, out)
        if self._open == "reasoning" and self._index == index:
            self.close(out, keep(self._provider, index, item=sent) if useful else None)

    def close(self, out: list[ModelEvent], metadata: str | None = None) -> None:
        """Ends the open block."""
        if not self._open:
            return
        if left := self._joiner.flush(self._id):
            out.append((TextDelta if self._open == "text" else ReasoningDelta)(self._id, left))
        if self._open == "text":
            phase = self._phases.get(self._index)
            more = {"phase": phase} if phase else {}
            out.append(TextEnd(self._id, keep(self._provider, self._index, **more)))
        else:
            out.append(ReasoningEnd(self._id, metadata))
        self._open = ""

    def _add(self, kind: str, index: int, piece: Any, out: list[ModelEvent], part: object) -> bool:
        if not piece or not isinstance(piece, str):
            return False
        if self._open != kind or self._index != index:
            self._begin(kind, index, out)
        elif part != self._part and kind == "reasoning":
            out.append(ReasoningDelta(self._id, _GAP))
        if part != self._part:
            self._part = part
            self._seen.add((index, part))
        if piece := self._joiner.join(self._id, piece):
            out.append((TextDelta if kind == "text" else ReasoningDelta)(self._id, piece))
        return True

    def _begin(self, kind: str, index: int, out: list[ModelEvent]) -> None:
        self.close(out)
        self._open, self._index, self._part = kind, index, None
        if kind == "text":
            self._id = f"t{self.texts}"
            self.texts += 1
            out.append(TextStart(self._id))
        else:
            self._id = f"r{self._thoughts}"
            self._thoughts += 1
            out.append(ReasoningStart(self._id))
