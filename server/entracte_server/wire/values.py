"""Single values between the domain and protobuf: times, JSON, enumerations, usage, errors."""

import re
from typing import Any

from google.protobuf.descriptor import EnumDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from entracte.v1 import json_pb2, result_pb2
from entracte_server.domain.results import RunError, Tripwire, Usage


def timestamp(ms: int) -> Timestamp:
    """Milliseconds since the epoch as a timestamp."""
    return Timestamp(seconds=ms // 1000, nanos=ms % 1000 * 1_000_000)


def milliseconds(stamp: Timestamp) -> int:
    """A timestamp as milliseconds since the epoch."""
    return stamp.seconds * 1000 + stamp.nanos // 1_000_000


def duration(seconds: float) -> Duration:
    """Seconds as a duration."""
    nanos = round(seconds * 1e9)
    return Duration(seconds=nanos // 1_000_000_000, nanos=nanos % 1_000_000_000)


def json(text: str | None) -> json_pb2.Json | None:
    """JSON text as a message; None stays absent."""
    return None if text is None else json_pb2.Json(text=text)


class EnumTexts:
    """Maps the values of a protobuf enumeration to the domain's words: `FINISH_REASON_TOOL_CALLS`
    is `tool-calls`; the zero value is no word."""

    def __init__(self, descriptor: EnumDescriptor) -> None:
        prefix = re.sub(r"(?<!^)(?=[A-Z])", "_", descriptor.name).upper() + "_"
        self.numbers: dict[str, Any] = {}
        self.texts: dict[int, Any] = {}
        for value in descriptor.values:
            if value.number:
                text = value.name.removeprefix(prefix).lower().replace("_", "-")
                self.numbers[text] = value.number
                self.texts[value.number] = text

    def number(self, text: str | None) -> Any:
        """The number of a word; 0 for None."""
        return 0 if text is None else self.numbers[text]


FINISH_REASONS = EnumTexts(result_pb2.FinishReason.DESCRIPTOR)
STOP_CAUSES = EnumTexts(result_pb2.StopCause.DESCRIPTOR)


def usage(value: Usage) -> result_pb2.Usage:
    """Token counts as a message."""
    return result_pb2.Usage(
        input_tokens=value.input,
        output_tokens=value.output,
        total_tokens=value.total,
        reasoning_tokens=value.reasoning,
        cached_input_tokens=value.cached_input,
    )


def usage_from(message: result_pb2.Usage) -> Usage:
    """The reverse of `usage`."""
    return Usage(
        message.input_tokens,
        message.output_tokens,
        message.total_tokens,
        message.reasoning_tokens,
        message.cached_input_tokens,
    )


def run_error(value: RunError) -> result_pb2.RunError:
    """A run's error as a message."""
    return result_pb2.RunError(
        kind=value.kind,
        message=value.message,
        provider_status=value.status,
        retryable=value.retryable,
        retry_after=duration(value.retry_after) if value.retry_after else None,
        provider_code=value.code,
        raw=json(value.raw),
    )


def run_error_from(message: result_pb2.RunError) -> RunError:
    """The reverse of `run_error`."""
    return RunError(
        kind=message.kind,
        message=message.message,
        status=message.provider_status,
        retryable=message.retryable,
        retry_after=message.retry_after.seconds + message.retry_after.nanos / 1e9,
        code=message.provider_code,
        raw=message.raw.text if message.HasField("raw") else None,
    )


def tripwire(value: Tripwire) -> result_pb2.Tripwire:
    """A tripwire as a message."""
    return result_pb2.Tripwire(
        reason=value.reason,
        retry=value.retry,
        metadata=json(value.metadata),
        processor_id=value.processor_id,
    )


def tripwire_from(message: result_pb2.Tripwire) -> Tripwire:
    """The reverse of `tripwire`."""
    return Tripwire(
        reason=message.reason,
        processor_id=message.processor_id,
        retry=message.retry,
        metadata=message.metadata.text if message.HasField("metadata") else None,
    )
