"""Records as plain data, for logs, files and other processes."""

import base64
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from typing import Any

from entracte import _json


def to_dict(record: Any) -> Any:
    """A chunk, result, run or any other record of this SDK as data that `json.dumps` takes.

    Dicts and lists of records are taken too. Times become ISO 8601 texts, durations seconds, bytes
    base64. A JSON text appears as its value, under its name without the suffix `_json`.
    """
    if is_dataclass(record) and not isinstance(record, type):
        return _fields(record)
    if isinstance(record, Mapping):
        return {key: to_dict(value) for key, value in record.items()}
    if isinstance(record, list | tuple):
        return [to_dict(value) for value in record]
    if isinstance(record, datetime):
        return record.isoformat()
    if isinstance(record, timedelta):
        return record.total_seconds()
    if isinstance(record, bytes):
        return base64.b64encode(record).decode()
    return record


def _fields(record: Any) -> dict[str, Any]:
    names = {field.name for field in fields(record)}
    kind = getattr(record, "type", None)
    plain: dict[str, Any] = {"type": kind} if isinstance(kind, str) else {}
    for field in fields(record):
        value = getattr(record, field.name)
        if field.name.endswith("_json"):
            name = field.name.removesuffix("_json")
            name = f"{name}_data" if name in names else name
            plain[name] = None if value is None else _json.parse(value)
        else:
            plain[field.name] = to_dict(value)
    return plain
