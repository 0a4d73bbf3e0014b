"""How a run appears in traces: what callers and authors may say about it, and where it stands in them."""

from collections.abc import Mapping, Sequence
from typing import Any

from entracte_server.domain import json_text
from entracte_server.domain.data import Data

Scalar = str | bool | int | float
Attribute = Scalar | tuple[Scalar, ...]
"""What a span can carry."""

_INT64 = 1 << 63


class TelemetryOptions(Data, frozen=True):
    """What may be recorded of a run. None means: as the agent says, else as the server does.

    `is_enabled`: whether it is traced. `record_inputs`, `record_outputs`: whether what is said to models
    and tools, and what they answer, is recorded. `function_id`: a name to find the spans under.
    """

    is_enabled: bool | None = None
    record_inputs: bool | None = None
    record_outputs: bool | None = None
    function_id: str = ""

    def over(self, other: "TelemetryOptions") -> "TelemetryOptions":
        """These, and what they leave open as `other` says."""
        return TelemetryOptions(
            other.is_enabled if self.is_enabled is None else self.is_enabled,
            other.record_inputs if self.record_inputs is None else self.record_inputs,
            other.record_outputs if self.record_outputs is None else self.record_outputs,
            self.function_id or other.function_id,
        )


class TracingOptions(Data, frozen=True):
    """How a run appears in traces.

    `metadata` are attributes of its spans, and so are the values of the `request_context` that
    `request_context_keys` name; dots reach nested ones. `trace_id` and `parent_span_id` have 32 and 16
    hexadecimal digits, or are empty: the trace it belongs to, and the span it is a child of.
    """

    metadata: Mapping[str, Attribute] = {}
    request_context_keys: tuple[str, ...] = ()
    trace_id: str = ""
    parent_span_id: str = ""
    tags: tuple[str, ...] = ()

    def over(self, other: "TracingOptions") -> "TracingOptions":
        """These added to `other`; the ids are a caller's only."""
        return TracingOptions(
            {**other.metadata, **self.metadata},
            tuple(dict.fromkeys((*other.request_context_keys, *self.request_context_keys))),
            self.trace_id,
            self.parent_span_id,
            tuple(dict.fromkeys((*other.tags, *self.tags))),
        )

    def attributes(self, request_context: Mapping[str, Any]) -> dict[str, Attribute]:
        """What they make of spans."""
        found: dict[str, Attribute] = {}
        for key in self.request_context_keys:
            value = _reach(request_context, key)
            if value is not None:
                found[key] = attribute(value)
        for key, value in self.metadata.items():
            found[key] = attribute(value)
        return found


class Trace(Data, frozen=True):
    """Where a run stands in traces: the ids of the trace and of its first span in hexadecimal digits,
    and the W3C flags and state that go with them."""

    trace_id: str
    span_id: str
    flags: int = 0
    state: str = ""


def attribute(value: Any) -> Attribute:
    """A JSON value as a span can carry it: scalars and lists of scalars of one type as they are, anything
    else as JSON text. Raises `ValueError` for what is no JSON value."""
    if isinstance(value, str | bool | float):
        return value
    if isinstance(value, int):
        return value if -_INT64 <= value < _INT64 else str(value)
    if isinstance(value, list | tuple) and _are_alike(value):
        return tuple(value)
    try:
        return json_text.dump_for_storage(value)
    except TypeError as error:
        raise ValueError(str(error)) from None


def _are_alike(values: Sequence[Any]) -> bool:
    """Whether all are scalars of one type, as they are."""
    if len({type(value) for value in values}) != 1 or isinstance(values[0], list | tuple):
        return False
    return all(attribute(value) is value for value in values)


def _reach(values: Mapping[str, Any], key: str) -> Any:
    """The value under a key, or where its dots lead; None where there is none."""
    if key in values:
        return values[key]
    found: Any = values
    for name in key.split("."):
        if not isinstance(found, Mapping) or name not in found:
            return None
        found = found[name]
    return found
