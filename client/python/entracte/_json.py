"""JSON text on the wire, native values for callers.

Integers of any size and the order of keys survive both ways. Where the exact text matters (the
digest of an approval is made over it) the records keep it beside the value, in `*_json`.
"""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Any, Final

from entracte.v1 import json_pb2


class _Unset(Enum):
    UNSET = "UNSET"

    def __repr__(self) -> str:
        return "UNSET"


Unset = _Unset
UNSET: Final = _Unset.UNSET
"""Stands for "not given" where None is a value (JSON `null`)."""


@dataclass(frozen=True, slots=True)
class RawJson:
    """JSON text to be sent as it is, wherever a JSON value is taken: `RawJson('{"n": 1.0}')`."""

    text: str


def parse(text: str) -> Any:
    """The value of a JSON text."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise
    except ValueError:
        # Python refuses to convert decimal texts beyond a limit; Decimal does not.
        return json.loads(text, parse_int=_huge_int)


def dump(value: Any) -> str:
    """The JSON text of a value.

    Raises ValueError for NaN and infinities, TypeError for what JSON has no form for.
    """
    if isinstance(value, RawJson):
        return value.text
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def to_json(value: Any) -> json_pb2.Json:
    """The message that carries a value."""
    return json_pb2.Json(text=dump(value))


def schema_to_json(schema: Any) -> json_pb2.Json:
    """The message that carries a JSON Schema: a dict, or a class that can describe itself as one
    with `model_json_schema()` (pydantic models do)."""
    describe: Callable[[], Any] | None = getattr(schema, "model_json_schema", None)
    return to_json(describe() if callable(describe) else schema)


def _huge_int(text: str) -> int:
    limit = sys.get_int_max_str_digits()
    return int(text) if not limit or len(text) <= limit else int(Decimal(text))
