"""JSON as text: strict reading, faithful writing.

Values travel and are stored as the text that was received. Integers of any size survive; duplicate
keys, non-finite numbers and over-deep documents are refused; halves of surrogate pairs are replaced
by U+FFFD where they come from a model or a tool, and refused where they come from a client.
"""

import dataclasses
import datetime as dt
import decimal
import enum
import json
import re
import uuid
from collections.abc import Mapping
from typing import Any

import pydantic

MAX_JSON_BYTES = 4 * 1024 * 1024
"""Largest JSON text accepted in one field, in bytes of UTF-8."""

MAX_JSON_DEPTH = 128
"""Deepest nesting of arrays and objects accepted."""

MAX_STORED_DEPTH = 2 * MAX_JSON_DEPTH
"""The same for what tools say: they may put what they were given into something of their own."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")


class InvalidJson(ValueError):
    """The text is not JSON that Entracte accepts; the message says why."""


def scrub(text: str) -> str:
    """`text` with each lone surrogate replaced by U+FFFD, so that it can be encoded as UTF-8."""
    if text.isascii():
        return text
    return _SURROGATE.sub("�", text)


def has_surrogate(text: str) -> bool:
    """Whether `text` holds half of a surrogate pair and so cannot be encoded as UTF-8."""
    return not text.isascii() and _SURROGATE.search(text) is not None


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise InvalidJson(f"duplicate key {scrub(key[:80])!r}")
            seen.add(key)
    return result


def _constant(name: str) -> Any:
    raise InvalidJson(f"{name} is not a JSON number")


def _float(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise InvalidJson(f"number out of range: {text[:40]}")
    return value


def _int(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidJson(f"a number of {len(text)} digits is too long") from None


def _too_deep(limit: int) -> InvalidJson:
    return InvalidJson(f"nested deeper than {limit} levels")


def _check_depth(value: Any, limit: int) -> None:
    """Level by level, so that no text makes it slow or recurse."""
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(limit):
        level = [
            child
            for item in level
            for child in (item.values() if isinstance(item, dict) else item)
            if isinstance(child, (dict, list))
        ]
        if not level:
            return
    raise _too_deep(limit)


_decoder = json.JSONDecoder(
    object_pairs_hook=_pairs, parse_constant=_constant, parse_float=_float, parse_int=_int
)
_own_decoder = json.JSONDecoder(object_pairs_hook=_pairs)
"""For text that we wrote: its numbers are in order, and looking at each would cost most of the time."""


def parse(text: str, max_depth: int = MAX_JSON_DEPTH) -> Any:
    """The value that `text` stands for.

    Raises `InvalidJson`: not JSON, a duplicate key, NaN or Infinity, nesting over
    `max_depth`, or more than `MAX_JSON_BYTES`. An integer too long for the interpreter's
    conversion limit is refused too.
    """
    return _read(text, _decoder, max_depth)


def _read(text: str, decoder: json.JSONDecoder, max_depth: int) -> Any:
    if len(text) > MAX_JSON_BYTES or (
        len(text) * 4 > MAX_JSON_BYTES and len(text.encode("utf-8", "replace")) > MAX_JSON_BYTES
    ):
        raise InvalidJson(f"larger than {MAX_JSON_BYTES} bytes")
    try:
        value = decoder.decode(text)
    except json.JSONDecodeError as error:
        raise InvalidJson(f"not JSON at character {error.pos}: {error.msg}") from None
    except RecursionError:
        raise _too_deep(max_depth) from None
    if text.count("[") + text.count("{") > max_depth:
        _check_depth(value, max_depth)
    return value


def parse_at(text: str, start: int) -> tuple[Any, int]:
    """The value that begins at `start`, and where it ends. Raises `InvalidJson` as `parse` does."""
    try:
        value, end = _decoder.raw_decode(text, start)
    except json.JSONDecodeError as error:
        raise InvalidJson(f"not JSON at character {error.pos}: {error.msg}") from None
    except RecursionError:
        raise _too_deep(MAX_JSON_DEPTH) from None
    _check_depth(value, MAX_JSON_DEPTH)
    return value, end


def parse_strict(text: str) -> Any:
    """As `parse`, for text of a client: an escape that stands for half a surrogate pair is refused."""
    value = parse(text)
    if _SURROGATE_ESCAPE.search(text) and has_surrogate(json.dumps(value, ensure_ascii=False)):
        raise InvalidJson("a \\u escape stands for half of a surrogate pair")
    return value


def without_surrogates(text: str, value: Any) -> str:
    """`text`, which stands for `value`; written anew where an escape in it stands for half a surrogate
    pair."""
    if _SURROGATE_ESCAPE.search(text) and has_surrogate(json.dumps(value, ensure_ascii=False)):
        return dump(value)
    return text


def _default(value: Any) -> Any:
    if isinstance(value, pydantic.BaseModel):
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if isinstance(value, (dt.datetime, dt.date, dt.time)):
        return value.isoformat()
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=repr)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (uuid.UUID, decimal.Decimal)):
        return str(value)
    raise TypeError(f"a value of type {type(value).__name__} is not JSON")


def dump(value: Any) -> str:
    """The compact JSON text of `value`; keys keep their order, lone surrogates become U+FFFD.

    Pydantic models, dataclasses, dates, enums, UUIDs, decimals (as text) and sets (sorted) are
    converted. Raises `TypeError` for what JSON has no form for, and `ValueError` for NaN,
    infinities and circular values.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_default)
    except RecursionError:
        raise ValueError("the value is nested too deeply for JSON") from None
    return scrub(text)


def dump_for_storage(value: Any) -> str:
    """As `dump`, for a value that is stored and read again: what `parse_stored` would refuse is refused
    here, as a `ValueError` (too large, too deep, keys that become equal as text)."""
    text = dump(value)
    _read(text, _own_decoder, MAX_STORED_DEPTH)
    return text


def parse_stored(text: str) -> Any:
    """As `parse`, for what `dump_for_storage` made."""
    return parse(text, MAX_STORED_DEPTH)
