"""The options `telemetry` and `tracing_options`."""

import re
from collections.abc import Iterable
from typing import Any

from entracte.v1 import options_pb2
from entracte_server.domain.errors import invalid
from entracte_server.domain.tracing import TelemetryOptions, TracingOptions, attribute
from entracte_server.rpc import checks

MAX_NAME = 256
MAX_ENTRIES = 64
"""How many tags, keys and pieces of metadata there may be: spans have room for 128 attributes."""

MAX_METADATA = 64 * 1024
"""Bytes."""

_NAME = f"1 to {MAX_NAME} printable characters"
_HEX = re.compile(r"[0-9a-fA-F]+")


def telemetry_from(options: options_pb2.GenerateOptions) -> TelemetryOptions:
    """What may be recorded of a run. Raises `Refusal`."""
    given = options.telemetry
    return TelemetryOptions(
        given.is_enabled if given.HasField("is_enabled") else None,
        given.record_inputs if given.HasField("record_inputs") else None,
        given.record_outputs if given.HasField("record_outputs") else None,
        checks.identifier("options.telemetry.function_id", given.function_id, required=False),
    )


def tracing_from(options: options_pb2.GenerateOptions) -> TracingOptions:
    """How a run appears in traces. Raises `Refusal`."""
    given, field = options.tracing_options, "options.tracing_options"
    metadata: dict[str, Any] = {}
    if given.HasField("metadata"):
        checks.text(f"{field}.metadata.text", given.metadata.text, MAX_METADATA)
        _, metadata = checks.json_object(f"{field}.metadata", given.metadata)
        if any(not _is_name(name) for name in metadata) or len(metadata) > MAX_ENTRIES:
            raise invalid(f"{field}.metadata.text", f"use at most {MAX_ENTRIES} keys, each {_NAME}")
    trace_id = _id(f"{field}.trace_id", given.trace_id, 32)
    parent_span_id = _id(f"{field}.parent_span_id", given.parent_span_id, 16)
    if parent_span_id and not trace_id:
        raise invalid(f"{field}.parent_span_id", "goes with trace_id: give the trace that the span is in")
    return TracingOptions(
        metadata={name: attribute(value) for name, value in metadata.items()},
        request_context_keys=_names(f"{field}.request_context_keys", given.request_context_keys),
        trace_id=trace_id,
        parent_span_id=parent_span_id,
        tags=_names(f"{field}.tags", given.tags),
    )


def _id(field: str, value: str, digits: int) -> str:
    """An id of at most so many hexadecimal digits, filled up with zeros."""
    if not value:
        return ""
    if len(value) > digits or not _HEX.fullmatch(value):
        raise invalid(field, f"use 1 to {digits} hexadecimal digits")
    if not value.strip("0"):
        raise invalid(field, "must not be zero")
    return value.lower().zfill(digits)


def _names(field: str, given: Iterable[str]) -> tuple[str, ...]:
    names = tuple(given)
    if len(names) > MAX_ENTRIES:
        raise invalid(field, f"at most {MAX_ENTRIES}")
    for i, name in enumerate(names):
        if not _is_name(name):
            raise invalid(f"{field}[{i}]", f"use {_NAME}")
    return names


def _is_name(name: str) -> bool:
    return 0 < len(name) <= MAX_NAME and name.isprintable()
