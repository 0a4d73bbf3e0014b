"""Reading an object out of what a model wrote: whole, in a code fence, or among prose; and while it is
still being written. Nothing is mended: what is not JSON is no object."""

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import msgspec
import pydantic_core

from entracte_server.agents import schemas
from entracte_server.agents.schemas import Violation
from entracte_server.domain import chunks as c
from entracte_server.domain import json_text
from entracte_server.domain.data import Data

GROWTH = 1.25
"""By how much a text must have grown before it is read again."""

MAX_CANDIDATES = 32
"""In how many places of a text a value is looked for."""

MAX_FENCE_LINES = 4096

_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})([^\n]*)\n?", re.MULTILINE)
_OPENING = re.compile(r"[\[{]")


class Unfit(Exception):
    """No object in a text fits the schema; `violations` say what is wrong with the likeliest one."""

    def __init__(self, violations: tuple[Violation, ...]) -> None:
        super().__init__(str(schemas.InvalidValue(violations)))
        self.violations = violations


class _Found(Data, frozen=True):
    text: str
    value: Any


# ---- an answer that is complete ----


def read_object(text: str, schema: str, wrapper: str = "") -> str:
    """The JSON text of the object in `text`, exactly as it is written there. `wrapper` is the key under
    which the model was asked to put it, if it was. Raises `Unfit`.

    Of several objects in prose the last one that fits counts: models think aloud before they answer.
    """
    if not text.strip():
        raise Unfit((Violation("", "the answer is empty"),))
    violations: tuple[Violation, ...] | None = None
    for found in _candidates(text):
        inner = _unwrapped(found, wrapper)
        for value in (inner,) if inner is found else (inner, found):
            try:
                schemas.check(schema, value.value)
            except schemas.InvalidValue as error:
                violations = violations or error.violations
            else:
                return json_text.without_surrogates(value.text, value.value)
    if violations is None:
        try:
            json_text.parse(text.strip())
        except json_text.InvalidJson as error:
            violations = (Violation("", str(error)),)
    raise Unfit(violations or ())


def _candidates(text: str) -> Iterator[_Found]:
    """The values in a text, the likeliest first."""
    if len(text) > json_text.MAX_JSON_BYTES:
        return
    whole = text.strip("\ufeff \t\r\n")
    try:
        yield _Found(whole, json_text.parse(whole))
        return
    except json_text.InvalidJson:
        pass
    for fenced in reversed(_fenced(text)):
        try:
            yield _Found(fenced, json_text.parse(fenced))
        except json_text.InvalidJson:
            continue
    yield from reversed(_in_prose(text))


def _fenced(text: str) -> list[str]:
    """What is in code fences that are closed."""
    found: list[str] = []
    opened: re.Match[str] | None = None
    for line in islice(_FENCE.finditer(text), MAX_FENCE_LINES):
        if opened is None:
            opened = line
        elif line[1] == opened[1] and not line[2].strip():
            found.append(text[opened.end() : line.start()].strip())
            opened = None
    return found[-MAX_CANDIDATES:]


def _in_prose(text: str) -> list[_Found]:
    """The objects and arrays in a text. One that is cut off is none, and nor is what is inside it."""
    found: list[_Found] = []
    position = 0
    for _ in range(MAX_CANDIDATES):
        opening = _OPENING.search(text, position)
        if opening is None:
            break
        start = opening.start()
        try:
            value, position = json_text.parse_at(text, start)
        except json_text.InvalidJson:
            if _read_so_far(text[start:]) is not None:
                break
            position = start + 1
        else:
            found.append(_Found(text[start:position], value))
    return found


def _unwrapped(found: _Found, wrapper: str) -> _Found:
    if not wrapper or not isinstance(found.value, dict) or wrapper not in found.value:
        return found
    inner = found.value[wrapper]
    try:
        raw = msgspec.json.decode(found.text, type=dict[str, msgspec.Raw])[wrapper]
        return _Found(bytes(raw).decode(), inner)
    except msgspec.DecodeError:  # a half of a surrogate pair somewhere
        return _Found(json_text.dump(inner), inner)


# ---- an answer that is being written ----


class PartialObject:
    """The object in a text that grows. `wrapper` is as for `read_object`, `model` the structuring model
    that writes it (empty: the agent's own).

    Reading costs as much as the text is long, so it is read again only when it has grown by a quarter.
    """

    def __init__(self, wrapper: str, model: str = "") -> None:
        self._wrapper = wrapper
        self._model = model
        self._pieces: list[str] = []
        self._size = 0
        self._due = 1
        self._shown = ""

    def shown_with(self, batch: list[c.Payload]) -> list[c.Payload]:
        """`batch`, with the object before the texts that made it grow if there is more of it to show."""
        shown = self.add(batch)
        if shown is None:
            return batch
        at = next(i for i, payload in enumerate(batch) if type(payload) is c.TextDelta)
        return [*batch[:at], shown, *batch[at:]]

    def add(self, batch: Sequence[Any]) -> c.Object | None:
        """Takes in what arrived, and gives the object if there is more of it to show."""
        for event in batch:
            if type(event) is c.TextDelta:
                self._pieces.append(event.text)
                self._size += len(event.text)
        if self._size < self._due or self._size > json_text.MAX_JSON_BYTES:
            return None
        text = "".join(self._pieces)
        self._pieces = [text]
        self._due = int(self._size * GROWTH) + 1
        opening = _OPENING.search(text)
        value = None if opening is None else _read_so_far(text[opening.start() :])
        if self._wrapper and isinstance(value, dict):
            value = value.get(self._wrapper)
        if not isinstance(value, (dict, list)):
            return None
        try:
            shown = json_text.dump(value)
        except ValueError:  # a number with more digits than the interpreter writes
            return None
        if shown == self._shown:
            return None
        self._shown = shown
        return c.Object(shown, self._model)


def _read_so_far(text: str) -> Any:
    """The value that `text` stands for as far as it goes; None for what is not JSON."""
    try:
        return pydantic_core.from_json(
            text, allow_inf_nan=False, cache_strings="keys", allow_partial="trailing-strings"
        )
    except ValueError:
        return None
