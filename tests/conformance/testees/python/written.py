"""The SDK's records as the protocol writes them (see ../../README.md)."""

import dataclasses
import json
from datetime import datetime, timedelta
from typing import Any

from entracte import EntracteError, GenerateResult, RunError, ThreadMessage

_PROPERTIES = {"reason_json": "reason_data"}
"""JSON texts whose value has another name."""

_LEFT_OUT = {"response", "request", "messages", "remembered_messages", "scoring_data", "object_type"}


def jvalue(text: str | None, native: Any) -> dict[str, str] | None:
    """A JSON value: its exact text, and the native value written again."""
    if text is None:
        return None
    return {"text": text, "native": json.dumps(native, ensure_ascii=False)}


def written(value: Any) -> Any:
    """Any value of the SDK."""
    if isinstance(value, GenerateResult):
        return {**_fields(value), "messages": len(value.messages)}
    if isinstance(value, ThreadMessage):
        return {**_fields(value), "text": value.text}
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, (list, tuple)):
        return [written(item) for item in value]
    if dataclasses.is_dataclass(value):
        found = _fields(value)
        if found.get("type") == "custom":
            found["custom_id"] = found.pop("id")
        return found
    return value


def _fields(record: Any) -> dict[str, Any]:
    """The fields of a record by their names in the protocol."""
    found = {}
    if hasattr(record, "type"):
        found["type"] = record.type
    for field in dataclasses.fields(record):
        name = field.name
        if name in _LEFT_OUT:
            continue
        if name.endswith("_json"):
            native = _PROPERTIES.get(name, name.removesuffix("_json"))
            found[native] = jvalue(getattr(record, name), getattr(record, native))
        else:
            found[name] = written(getattr(record, name))
    return found


def failure(error: BaseException) -> dict[str, Any]:
    """An error, of the SDK or not."""
    found: dict[str, Any] = {"kind": "other", "class": type(error).__name__, "message": str(error)}
    if isinstance(error, (TypeError, ValueError)):
        found["kind"] = "usage"
    if isinstance(error, EntracteError):
        found.update(
            kind="entracte",
            code=error.code,
            reason=error.reason,
            message=error.message,
            metadata=dict(error.metadata),
            violations=written(error.violations),
            retry_after=written(error.retry_after),
        )
    return found


def observed(name: str, value: Any) -> dict[str, Any]:
    """What an observer was told, as far as the protocol asks."""
    match name:
        case "on_chunk":
            return {"type": value.type, "sequence": value.sequence}
        case "on_step_finish":
            return {"step": value.step, "text": value.text}
        case "on_finish":
            return {"text": value.text, "finish_reason": value.finish_reason}
        case "on_error":
            return {"kind": value.kind} if isinstance(value, RunError) else failure(value)
        case _:
            return {"reason": value.reason}
