"""Payloads of every class, made from the classes themselves, and what they should be as protobuf messages.

The messages are built field by field with nothing of the codec, so the two can be compared.
"""

import types
from collections.abc import Iterator
from typing import Any, Literal, Union, get_args, get_origin

import msgspec
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import strategies as st

from entracte.v1 import chunk_pb2, json_pb2, result_pb2
from entracte_server.domain import chunks as d
from entracte_server.domain.chunks import OpenCall, PathElement, Payload
from entracte_server.domain.data import Data
from entracte_server.domain.results import CheckResult, RunError, Tripwire, Usage

FIELDS = {f.name: f for f in chunk_pb2.Chunk.DESCRIPTOR.oneofs_by_name["payload"].fields}
"""The payloads of the contract, by the name of their field."""

NOT_MADE_YET: set[str] = set()
"""Payloads of the contract that this version of the server does not make."""

NOT_SENT: dict[type[Payload], set[str]] = {d.ToolCall: {"args_error"}}
"""Fields that are for the server alone: they come back as their defaults."""

ODD_TEXTS = (
    "",
    "\0",
    "a\0b\0",
    "\x7f\x80\x9f\xa0",
    "\ufeffbom",
    "\ufffe\uffff",
    "\U0010ffff",
    "\u2028\u2029\r\n",
    "\u202egpj.exe",
    "e\u0301 \u00e9",
    "👩\u200d👩\u200d👧\u200d👦🏽",
    "x" * 127,
    "x" * 128,
    "漢" * 6_000,
)
TEXTS = st.sampled_from(ODD_TEXTS) | st.text(max_size=40)
BYTES = st.binary(max_size=40) | st.sampled_from([b"\0" * 128, bytes(range(256)) * 80])


def classes(base: type[Payload] = Payload) -> Iterator[type[Payload]]:
    """Every payload class there is."""
    for cls in base.__subclasses__():
        yield cls
        yield from classes(cls)


PAYLOADS = sorted(classes(), key=lambda cls: cls.__name__)


def field_of(cls: type[Payload]) -> str:
    """The name of a class's field in the contract: its type, with `_` for `-`. `source` is taken by
    the envelope."""
    return "source_reference" if cls is d.Source else cls.type.replace("-", "_")


# ---- values ----


def _integers(cls: type[Data]) -> st.SearchStrategy[int]:
    bits = 31 if cls in (RunError, d.IsTaskComplete) else 63
    return st.integers(0, 2**bits - 1)


def _values(kind: Any, cls: type[Data]) -> st.SearchStrategy[Any]:
    if kind is str:
        return TEXTS
    if kind is bytes:
        return BYTES
    if kind is bool:
        return st.booleans()
    if kind is int:
        return _integers(cls)
    if kind is float:
        return st.integers(0, 8 * 86_400).map(lambda eighths: eighths / 8)
    arguments = get_args(kind)
    if get_origin(kind) is Literal:
        return st.sampled_from(arguments)
    if get_origin(kind) in (Union, types.UnionType):
        return st.one_of(*(st.none() if a is type(None) else _values(a, cls) for a in arguments))
    if get_origin(kind) is tuple:
        return st.lists(_values(arguments[0], cls), max_size=3).map(tuple)
    return records(kind)


def records(cls: type[Any]) -> st.SearchStrategy[Any]:
    """Records of a class, every field with any value of its type."""
    return st.builds(cls, **{f.name: _values(f.type, cls) for f in msgspec.structs.fields(cls)})


def payloads() -> st.SearchStrategy[Payload]:
    """A payload of any class."""
    return st.sampled_from(PAYLOADS).flatmap(records)


PATHS = st.lists(records(PathElement), max_size=3).map(tuple)


def as_sent(payload: Payload) -> Payload:
    """A payload without what is not sent."""
    hidden = NOT_SENT.get(type(payload), set())
    defaults = {f.name: f.default for f in msgspec.structs.fields(type(payload))}
    return msgspec.structs.replace(payload, **{name: defaults[name] for name in hidden})


# ---- what they should be ----


def _enum(field: FieldDescriptor, text: str) -> int:
    assert field.enum_type is not None
    word = text.upper().replace("-", "_")
    [value] = [v for v in field.enum_type.values if v.number and v.name.endswith(f"_{word}")]
    return value.number


def _usage(value: Usage) -> result_pb2.Usage:
    return result_pb2.Usage(
        input_tokens=value.input,
        output_tokens=value.output,
        total_tokens=value.total,
        reasoning_tokens=value.reasoning,
        cached_input_tokens=value.cached_input,
    )


def _error(value: RunError) -> result_pb2.RunError:
    made = result_pb2.RunError(
        kind=value.kind,
        message=value.message,
        provider_status=value.status,
        retryable=value.retryable,
        provider_code=value.code,
    )
    if value.retry_after:
        made.retry_after.seconds = int(value.retry_after)
        made.retry_after.nanos = round(value.retry_after % 1 * 10**9)
    if value.raw is not None:
        made.raw.text = value.raw
    return made


def _tripwire(value: Tripwire) -> result_pb2.Tripwire:
    made = result_pb2.Tripwire(reason=value.reason, retry=value.retry, processor_id=value.processor_id)
    if value.metadata is not None:
        made.metadata.text = value.metadata
    return made


def _open_call(value: OpenCall) -> chunk_pb2.OpenCall:
    made = chunk_pb2.OpenCall()
    made.pending_call_id = value.pending_call_id
    made.tool_call_id = value.tool_call_id
    made.tool_name = value.tool_name
    made.kind = getattr(chunk_pb2, f"PENDING_CALL_KIND_{value.kind.upper().replace('-', '_')}")
    for element in value.agent_path:
        made.agent_path.add(agent_id=element.agent_id, tool_call_id=element.tool_call_id)
    return made


def _check_result(value: CheckResult) -> chunk_pb2.IsTaskCompleteChunk.CheckResult:
    made = chunk_pb2.IsTaskCompleteChunk.CheckResult(scorer=value.name, reason=value.reason)
    made.passed = value.passed
    if value.score is not None:
        made.score = value.score
    return made


def _item(value: Any) -> Any:
    if isinstance(value, OpenCall):
        return _open_call(value)
    return _check_result(value) if isinstance(value, CheckResult) else value


def _field(field: FieldDescriptor, value: Any) -> Any:
    if field.is_repeated:
        return [_item(item) for item in value]
    if field.enum_type is not None:
        return _enum(field, value)
    if isinstance(value, Usage):
        return _usage(value)
    if isinstance(value, RunError):
        return _error(value)
    if isinstance(value, Tripwire):
        return _tripwire(value)
    if field.message_type is Timestamp.DESCRIPTOR:
        return Timestamp(seconds=value // 1000, nanos=value % 1000 * 1_000_000)
    if field.message_type is not None:
        assert field.message_type is json_pb2.Json.DESCRIPTOR
        return json_pb2.Json(text=value)
    return value


def expected(
    payload: Payload,
    *,
    run_id: str = "run",
    sequence: int = 1,
    emit_time: int | None = 0,
    step: int = 1,
    attempt: int = 1,
    path: tuple[PathElement, ...] = (),
) -> chunk_pb2.Chunk:
    """The chunk that the contract describes. `emit_time` None: not stamped."""
    chunk = chunk_pb2.Chunk(run_id=run_id, sequence=sequence, step=step, attempt=attempt)
    if emit_time is not None:
        chunk.emit_time.seconds, milliseconds = divmod(emit_time, 1000)
        chunk.emit_time.nanos = milliseconds * 1_000_000
        chunk.emit_time.SetInParent()
    chunk.source = chunk_pb2.CHUNK_SOURCE_AGENT
    if isinstance(payload, d.ToolOutput | d.Custom):
        chunk.source = chunk_pb2.CHUNK_SOURCE_USER
    if isinstance(payload, d.ToolCallResolved):
        chunk.source = chunk_pb2.CHUNK_SOURCE_SYSTEM
    for element in path:
        chunk.agent_path.add(agent_id=element.agent_id, tool_call_id=element.tool_call_id)
    chunk.ignorable = isinstance(payload, d.ToolCallResolved | d.Custom | d.Raw)
    name = field_of(type(payload))
    message = getattr(chunk, name)
    message.SetInParent()
    for inner in message.DESCRIPTOR.fields:
        value = getattr(payload, inner.name)
        if value is not None:
            message.MergeFrom(type(message)(**{inner.name: _field(inner, value)}))
    return chunk
