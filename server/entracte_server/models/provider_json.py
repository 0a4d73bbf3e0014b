"""JSON as providers send it."""

import json
import math
from typing import Any

import msgspec

from entracte_server.domain import json_text

_decoder = msgspec.json.Decoder()


def read_json(data: bytes) -> Any:
    """The JSON value of a record, or None: also where msgspec refuses what a provider meant.

    Raises `RecursionError` where it is nested deeper than JSON may be anywhere in Entracte.
    """
    try:
        return decode_json(data)
    except msgspec.DecodeError:
        pass
    try:
        return _shallow(data, json.loads(data.decode("utf-8", "replace")))
    except ValueError:
        return None


def decode_json(data: bytes) -> Any:
    """The JSON value of a record. Raises `msgspec.DecodeError`, and `RecursionError` as `read_json` does."""
    return _shallow(data, _decoder.decode(data))


def json_of(value: Any) -> str:
    """The JSON text of a part of what was read. Numbers that JSON does not have are null in it."""
    try:
        return json_text.dump(value)
    except ValueError:
        return json_text.dump(_finite(value))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _shallow(data: bytes, value: Any) -> Any:
    """`value`, read from `data`. The decoder's own limit is the stack's, and leaves values through that
    nothing else could compare, print or write."""
    if data.count(b"[") + data.count(b"{") <= json_text.MAX_JSON_DEPTH:
        return value
    level = [value]
    for _ in range(json_text.MAX_JSON_DEPTH + 1):
        level = [
            inner
            for outer in level
            if isinstance(outer, (dict, list))
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return value
    raise RecursionError("nested too deeply")
