"""The chunk codec: a domain payload becomes protobuf bytes once, which are stored and sent unchanged.

What is written is an *entry*: the `chunks` field of a stream response (tag, length, chunk). Entries
placed one after another are a response. Protobuf lets the fields of a message come in any order and
in several pieces, so the parts of a chunk that stay the same over a step are encoded once, and a
delta costs a few byte strings rather than a message object.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from entracte.v1 import agent_service_pb2, chunk_pb2
from entracte_server.domain import chunks as d
from entracte_server.domain.chunks import AgentPath, Chunk, OpenCall, PathElement, Payload
from entracte_server.domain.results import CheckResult
from entracte_server.wire import values

PENDING_KINDS = values.EnumTexts(chunk_pb2.PendingCallKind.DESCRIPTOR)
VERBS = values.EnumTexts(chunk_pb2.DecisionVerb.DESCRIPTOR)
SOURCES = values.EnumTexts(chunk_pb2.ChunkSource.DESCRIPTOR)

_ENUMS = {
    "entracte.v1.FinishReason": values.FINISH_REASONS,
    "entracte.v1.StopCause": values.STOP_CAUSES,
    "entracte.v1.PendingCallKind": PENDING_KINDS,
    "entracte.v1.DecisionVerb": VERBS,
}

_FIELDS: dict[type[Payload], str] = {
    d.Start: "start",
    d.StepStart: "step_start",
    d.TextStart: "text_start",
    d.TextDelta: "text_delta",
    d.TextEnd: "text_end",
    d.ReasoningStart: "reasoning_start",
    d.ReasoningDelta: "reasoning_delta",
    d.ReasoningEnd: "reasoning_end",
    d.ReasoningSignature: "reasoning_signature",
    d.RedactedReasoning: "redacted_reasoning",
    d.ToolCallInputStreamingStart: "tool_call_input_streaming_start",
    d.ToolCallDelta: "tool_call_delta",
    d.ToolCallInputStreamingEnd: "tool_call_input_streaming_end",
    d.ToolCall: "tool_call",
    d.ToolResult: "tool_result",
    d.ToolError: "tool_error",
    d.ToolOutput: "tool_output",
    d.ToolOutputDenied: "tool_output_denied",
    d.ToolCallApproval: "tool_call_approval",
    d.ToolCallSuspended: "tool_call_suspended",
    d.ToolCallResolved: "tool_call_resolved",
    d.Source: "source_reference",
    d.File: "file",
    d.Object: "object",
    d.ObjectResult: "object_result",
    d.IsTaskComplete: "is_task_complete",
    d.StepFinish: "step_finish",
    d.Finish: "finish",
    d.Error: "error",
    d.Tripwire: "tripwire",
    d.Abort: "abort",
    d.Raw: "raw",
    d.Custom: "custom",
}
_CLASSES = {field: cls for cls, field in _FIELDS.items()}

_SOURCE_OF: dict[type[Payload], d.ChunkSource] = {
    d.ToolOutput: "user",
    d.Custom: "user",
    d.ToolCallResolved: "system",
}
_IGNORABLE = frozenset({d.ToolCallResolved, d.Custom, d.Raw})

_Convert = Callable[[Any], Any]


def _open_call(call: OpenCall) -> chunk_pb2.OpenCall:
    return chunk_pb2.OpenCall(
        pending_call_id=call.pending_call_id,
        tool_call_id=call.tool_call_id,
        tool_name=call.tool_name,
        kind=PENDING_KINDS.number(call.kind),
        agent_path=_path(call.agent_path),
    )


def _open_call_from(call: chunk_pb2.OpenCall) -> OpenCall:
    return OpenCall(
        call.pending_call_id,
        call.tool_call_id,
        call.tool_name,
        PENDING_KINDS.texts[call.kind],
        _path_from(call.agent_path),
    )


def _check_result(result: CheckResult) -> chunk_pb2.IsTaskCompleteChunk.CheckResult:
    return chunk_pb2.IsTaskCompleteChunk.CheckResult(
        scorer=result.name, score=result.score, passed=result.passed, reason=result.reason
    )


def _check_result_from(result: chunk_pb2.IsTaskCompleteChunk.CheckResult) -> CheckResult:
    score = result.score if result.HasField("score") else None
    return CheckResult(result.scorer, score, result.passed, result.reason)


def _converters(field: FieldDescriptor) -> tuple[_Convert, _Convert] | None:
    """How a field's value is converted to protobuf and back; None where it is the same."""
    if field.enum_type is not None:
        texts = _ENUMS[field.enum_type.full_name]
        return texts.number, texts.texts.__getitem__
    if field.message_type is None:
        return (list, tuple) if field.is_repeated else None
    messages: dict[str, tuple[_Convert, _Convert]] = {
        "entracte.v1.Json": (values.json, lambda message: message.text),
        "entracte.v1.Usage": (values.usage, values.usage_from),
        "entracte.v1.RunError": (values.run_error, values.run_error_from),
        "entracte.v1.Tripwire": (values.tripwire, values.tripwire_from),
        "google.protobuf.Timestamp": (values.timestamp, values.milliseconds),
        "entracte.v1.IsTaskCompleteChunk.CheckResult": (
            lambda results: [_check_result(result) for result in results],
            lambda results: tuple(_check_result_from(result) for result in results),
        ),
        "entracte.v1.OpenCall": (
            lambda calls: [_open_call(call) for call in calls],
            lambda calls: tuple(_open_call_from(call) for call in calls),
        ),
    }
    return messages[field.message_type.full_name]


class _PayloadCodec:
    """Converts one payload class, by the names its fields share with its protobuf message."""

    def __init__(self, cls: type[Payload], field_name: str) -> None:
        field = chunk_pb2.Chunk.DESCRIPTOR.fields_by_name[field_name]
        message = field.message_type
        assert message is not None
        self.cls = cls
        self.tag = _tag(field.number)
        self.message: Any = getattr(chunk_pb2, message.name)
        self.fields = [
            (name, descriptor, _converters(descriptor))
            for name, descriptor in ((n, message.fields_by_name.get(n)) for n in cls.__struct_fields__)
            if descriptor is not None
        ]

    def encode(self, payload: Payload) -> bytes:
        arguments = {}
        for name, _, convert in self.fields:
            value = getattr(payload, name)
            if value is not None:
                arguments[name] = value if convert is None else convert[0](value)
        body: bytes = self.message(**arguments).SerializeToString()
        return self.tag + _varint(len(body)) + body

    def decode(self, message: Any) -> Payload:
        arguments: dict[str, Any] = {}
        for name, descriptor, convert in self.fields:
            if descriptor.has_presence and not message.HasField(name):
                arguments[name] = None
            else:
                value = getattr(message, name)
                arguments[name] = value if convert is None else convert[1](value)
        return self.cls(**arguments)


def _varint(value: int) -> bytes:
    if value < 128:
        return _SMALL[value]
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


_SMALL = [bytes([i]) for i in range(128)]


def _tag(number: int) -> bytes:
    return _varint(number << 3 | 2)


_CODECS = {cls: _PayloadCodec(cls, field) for cls, field in _FIELDS.items()}
_ENTRY = _tag(agent_service_pb2.StreamResponse.DESCRIPTOR.fields_by_name["chunks"].number)
_SEQUENCE = _varint(chunk_pb2.Chunk.DESCRIPTOR.fields_by_name["sequence"].number << 3)
_TEXT_DELTA = _CODECS[d.TextDelta].tag
_REASONING_DELTA = _CODECS[d.ReasoningDelta].tag


def _path(path: Sequence[PathElement]) -> list[chunk_pb2.PathElement]:
    return [chunk_pb2.PathElement(agent_id=e.agent_id, tool_call_id=e.tool_call_id) for e in path]


def _path_from(path: Iterable[chunk_pb2.PathElement]) -> AgentPath:
    return tuple(PathElement(e.agent_id, e.tool_call_id) for e in path)


@lru_cache(maxsize=8)
def _stamp(emit_time: int) -> bytes:
    """A time as a field of a chunk. Streams that run side by side have a millisecond in common."""
    return chunk_pb2.Chunk(emit_time=values.timestamp(emit_time)).SerializeToString()


class ChunkEncoder:
    """Encodes the chunks of one attempt of one step of a run."""

    __slots__ = ("_attempt", "_delta_id", "_delta_id_bytes", "_head", "_path", "_run_id", "_step")

    def __init__(self, run_id: str, step: int, attempt: int, agent_path: Sequence[PathElement] = ()) -> None:
        self._run_id = run_id
        self._step = step
        self._attempt = attempt
        self._path = agent_path
        self._head = self._header("agent", False)
        self._delta_id = ""
        self._delta_id_bytes = b""

    def _header(self, source: d.ChunkSource, ignorable: bool) -> bytes:
        return chunk_pb2.Chunk(
            run_id=self._run_id,
            source=SOURCES.number(source),
            step=self._step,
            attempt=self._attempt,
            agent_path=_path(self._path),
            ignorable=ignorable,
        ).SerializeToString()

    def _delta(self, tag: bytes, block_id: str, text: str) -> bytes:
        """A delta's payload field. Block ids repeat, so their bytes are kept."""
        if block_id != self._delta_id:
            raw = block_id.encode()
            self._delta_id = block_id
            self._delta_id_bytes = b"\x0a" + _varint(len(raw)) + raw
        body = text.encode()
        body = self._delta_id_bytes + b"\x12" + _varint(len(body)) + body
        return tag + _varint(len(body)) + body

    def encode(self, payloads: Iterable[Payload], first: int, emit_time: int) -> bytes:
        """The entries of `payloads`, numbered from `first`, made at `emit_time` (ms)."""
        stamp = _stamp(emit_time)
        head = self._head + stamp
        out: list[bytes] = []
        sequence = first
        for payload in payloads:
            kind = type(payload)
            if kind is d.TextDelta:
                body = self._delta(_TEXT_DELTA, payload.id, payload.text)  # type: ignore[attr-defined]
                start = head
            elif kind is d.ReasoningDelta:
                body = self._delta(_REASONING_DELTA, payload.id, payload.text)  # type: ignore[attr-defined]
                start = head
            else:
                body = _CODECS[kind].encode(payload)
                source = _SOURCE_OF.get(kind, "agent")
                ignorable = kind in _IGNORABLE
                start = head
                if ignorable or source != "agent":
                    start = self._header(source, ignorable) + stamp
            number = _SEQUENCE + _varint(sequence)
            out += (_ENTRY, _varint(len(start) + len(number) + len(body)), start, number, body)
            sequence += 1
        return b"".join(out)


def decode(entries: bytes) -> list[Chunk]:
    """The chunks in a run of entries."""
    return [from_message(m) for m in agent_service_pb2.StreamResponse.FromString(entries).chunks]


def from_message(message: chunk_pb2.Chunk) -> Chunk:
    """A chunk from its protobuf message. Raises ValueError for a payload this version lacks."""
    field = message.WhichOneof("payload")
    if field is None or field not in _CLASSES:
        raise ValueError(f"unknown chunk payload {field!r}")
    return Chunk(
        run_id=message.run_id,
        sequence=message.sequence,
        emit_time=values.milliseconds(message.emit_time),
        step=message.step,
        attempt=message.attempt,
        payload=_CODECS[_CLASSES[field]].decode(getattr(message, field)),
        source=SOURCES.texts[message.source],
        agent_path=_path_from(message.agent_path),
        ignorable=message.ignorable,
    )


def to_message(chunk: Chunk) -> chunk_pb2.Chunk:
    """A chunk as its protobuf message, for results."""
    message = chunk_pb2.Chunk(
        run_id=chunk.run_id,
        sequence=chunk.sequence,
        source=SOURCES.number(chunk.source),
        step=chunk.step,
        attempt=chunk.attempt,
        agent_path=_path(chunk.agent_path),
        ignorable=chunk.ignorable,
    )
    if chunk.emit_time:
        message.emit_time.CopyFrom(values.timestamp(chunk.emit_time))
    message.MergeFromString(_CODECS[type(chunk.payload)].encode(chunk.payload))
    return message


def _ends(entries: bytes) -> Iterator[int]:
    """Where each entry ends."""
    position = 0
    while position < len(entries):
        length, shift, at = 0, 0, position + len(_ENTRY)
        while True:
            byte = entries[at]
            length |= (byte & 127) << shift
            at += 1
            shift += 7
            if byte < 128:
                break
        position = at + length
        yield position


def without_first(entries: bytes, count: int) -> bytes:
    """`entries` without the first `count` of them: a row may begin before a reader's position. The rest
    is what it was, byte for byte."""
    return entries[next(islice(_ends(entries), count - 1, None)) :] if count > 0 else entries


def split(entries: bytes, limit: int) -> list[bytes]:
    """`entries` in pieces of at most `limit` bytes (one entry, if larger, is a piece)."""
    if len(entries) <= limit:
        return [entries]
    pieces = []
    start = position = 0
    for end in _ends(entries):
        if end - start > limit and position > start:
            pieces.append(entries[start:position])
            start = position
        position = end
    pieces.append(entries[start:])
    return pieces


def under(entries: bytes, path: AgentPath) -> tuple[bytes, bool]:
    """The entries of what the sub-agent at `path`, and what it delegated to, made; and whether its run ends
    with them."""
    pieces: list[bytes] = []
    ended, start = False, 0
    for end, message in zip(
        _ends(entries), agent_service_pb2.StreamResponse.FromString(entries).chunks, strict=True
    ):
        its = _path_from(message.agent_path)
        if its[: len(path)] == path:
            pieces.append(entries[start:end])
            if its == path and message.HasField("finish"):
                ended = values.FINISH_REASONS.texts[message.finish.reason] != "suspended"
        start = end
    return b"".join(pieces), ended
