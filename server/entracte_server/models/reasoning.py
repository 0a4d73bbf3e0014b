"""Thinking as providers send it: structured details to be sent back, and tags in the text."""

from collections.abc import Iterator
from typing import Any

from entracte_server.domain import json_text
from entracte_server.models.provider_json import json_of

DETAILS = "reasoning_details"
"""The key under which a reasoning block's `provider_metadata` keeps the provider's own records."""

_TEXTS = ("text", "summary")


class ReasoningDetails:
    """The `reasoning_details` of one reasoning block, put together from their pieces.

    Providers refuse a conversation whose signed or encrypted thinking does not come back as it was.
    """

    def __init__(self) -> None:
        self._entries: list[dict[str, Any]] = []

    def add(self, piece: dict[str, Any]) -> None:
        """Takes one record, or a piece of the one before."""
        last = self._entries[-1] if self._entries else None
        if last is None or not _continues(last, piece):
            last = {}
            self._entries.append(last)
        for key, value in piece.items():
            if key in _TEXTS and isinstance(value, str):
                last.setdefault(key, []).append(value)
            elif value is not None:
                last[key] = value

    def metadata(self, shown: int) -> str | None:
        """The block's `provider_metadata`, given how many characters of it were shown as text.

        A single text that was shown whole is not kept twice: `restore_details` puts it back.
        """
        if not self._entries:
            return None
        entries = [
            {key: "".join(value) if key in _TEXTS else value for key, value in entry.items()}
            for entry in self._entries
        ]
        texts = [(entry, key) for entry in entries for key in _TEXTS if key in entry]
        if len(texts) == 1:
            entry, key = texts[0]
            if len(entry[key]) == shown:
                entry[key] = None
        return json_of({DETAILS: entries})


def restore_details(metadata: str | None, text: str) -> list[dict[str, Any]]:
    """The records that `ReasoningDetails.metadata` kept, `text` being the block's text."""
    if metadata is None:
        return []
    kept = json_text.parse(metadata)
    entries = kept.get(DETAILS) if isinstance(kept, dict) else None
    if not isinstance(entries, list):
        return []
    for entry in entries:
        for key in _TEXTS:
            if key in entry and entry[key] is None:
                entry[key] = text
    return entries


def _continues(last: dict[str, Any], piece: dict[str, Any]) -> bool:
    if last.get("type") != piece.get("type") or last.get("index") != piece.get("index"):
        return False
    return not piece.get("data") and not (last.get("id") and piece.get("id") and last["id"] != piece["id"])


class ThinkTags:
    """Lifts a leading `<think>...</think>` out of a text that arrives in pieces.

    Only what opens the answer counts as thinking: a tag further on is the model's own text. Line ends
    right after a tag belong to the tag.
    """

    _OPEN = "<think>"
    _CLOSE = "</think>"

    def __init__(self) -> None:
        self._state = "before"
        self._held = ""
        self._after_tag = False

    def feed(self, piece: str) -> Iterator[tuple[bool, str]]:
        """Pairs of whether a text is thinking, and the text."""
        text = self._held + piece
        self._held = ""
        if self._state == "before":
            start = text.lstrip()
            if len(start) < len(self._OPEN) and self._OPEN.startswith(start):
                self._held = text
                return
            if start.startswith(self._OPEN):
                self._enter("inside")
                text = start[len(self._OPEN) :]
            else:
                self._state = "after"
        if self._state == "inside":
            thinking, tag, rest = text.partition(self._CLOSE)
            if not tag:
                # The end of what is there may be the beginning of the closing tag.
                for size in range(min(len(text), len(self._CLOSE) - 1), 0, -1):
                    if self._CLOSE.startswith(text[-size:]):
                        thinking, self._held = text[:-size], text[-size:]
                        break
            yield from self._give(thinking)
            if tag:
                self._enter("after")
            text = rest
        if text:
            yield from self._give(text)

    def flush(self) -> Iterator[tuple[bool, str]]:
        """What the end of the answer leaves."""
        yield from self._give(self._held)
        self._held = ""

    def _enter(self, state: str) -> None:
        self._state = state
        self._after_tag = True

    def _give(self, text: str) -> Iterator[tuple[bool, str]]:
        if self._after_tag:
            text = text.lstrip("\n")
        if text:
            self._after_tag = False
            yield self._state == "inside", text
