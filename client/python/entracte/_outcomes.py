"""Small records that chunks, results and runs share, and how they are read from the wire."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

from google.protobuf import duration_pb2, timestamp_pb2

from entracte import _json
from entracte.v1 import json_pb2, result_pb2

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens. Input and output include the cached and the reasoning ones."""

    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    reasoning_tokens: int = 0
    cached_input_tokens: int = 0


@dataclass(frozen=True)
class RunError:
    """Why a run failed.

    `kind` is one of `provider_error`, `cut` (the model's stream broke off), `stall`,
    `content_filter`, `empty_stream`, `connection`, `timeout`, `tool_limit`, `expired` (nobody decided a
    call in time), `structured_output_invalid` (`raw` lists the violations), `structured_output_truncated`,
    `internal`. `provider_status` is the provider's HTTP status, 0 where there was none.
    `retryable` tells whether the same request may well succeed later, `retry_after` how long the
    provider asked to wait.
    """

    kind: str
    message: str
    provider_status: int
    retryable: bool
    retry_after: timedelta | None
    provider_code: str
    raw_json: str | None

    @cached_property
    def raw(self) -> Any:
        """What the provider sent; None where it sent nothing readable."""
        return None if self.raw_json is None else _json.parse(self.raw_json)


@dataclass(frozen=True)
class Tripwire:
    """What a processor said when it stopped something."""

    reason: str
    retry: bool
    processor_id: str
    metadata_json: str | None

    @cached_property
    def metadata(self) -> Any:
        """What the processor attached, a dict; None where it attached nothing."""
        return None if self.metadata_json is None else _json.parse(self.metadata_json)


def time_of(message: timestamp_pb2.Timestamp) -> datetime:
    """A timestamp as an aware datetime in UTC, cut to microseconds."""
    return _EPOCH + timedelta(seconds=message.seconds, microseconds=message.nanos // 1000)


def duration_of(message: duration_pb2.Duration) -> timedelta:
    """A duration, cut to microseconds."""
    return timedelta(seconds=message.seconds, microseconds=int(message.nanos / 1000))


def text_of(holder: Any, field: str) -> str | None:
    """The JSON text in a field of type Json, None where the field is absent."""
    if not holder.HasField(field):
        return None
    json_message: json_pb2.Json = getattr(holder, field)
    return json_message.text


def usage_of(message: result_pb2.Usage) -> Usage:
    """Reads a usage."""
    return Usage(
        message.input_tokens,
        message.output_tokens,
        message.total_tokens,
        message.reasoning_tokens,
        message.cached_input_tokens,
    )


def run_error_of(message: result_pb2.RunError) -> RunError:
    """Reads an error of a run."""
    return RunError(
        kind=message.kind,
        message=message.message,
        provider_status=message.provider_status,
        retryable=message.retryable,
        retry_after=duration_of(message.retry_after) if message.HasField("retry_after") else None,
        provider_code=message.provider_code,
        raw_json=text_of(message, "raw"),
    )


def tripwire_of(message: result_pb2.Tripwire) -> Tripwire:
    """Reads a tripwire."""
    return Tripwire(
        reason=message.reason,
        retry=message.retry,
        processor_id=message.processor_id,
        metadata_json=text_of(message, "metadata"),
    )
