"""Chunks from the wire."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from entracte import _chunks as c
from entracte._chunk_base import PathElement
from entracte._enums import KINDS, SOURCES, VERBS, ChunkSource, finish_reason, stop_cause
from entracte._outcomes import run_error_of, text_of, time_of, tripwire_of, usage_of
from entracte.v1 import chunk_pb2

# The attributes of ChunkHeader, in order.
_Header = tuple[str, int, datetime | None, ChunkSource, int, int, tuple[PathElement, ...], bool]
_Decoder = Callable[[_Header, Any], c.Chunk]


def path_of(elements: Sequence[chunk_pb2.PathElement]) -> tuple[PathElement, ...]:
    """Reads a path of delegations."""
    return tuple(PathElement(element.agent_id, element.tool_call_id) for element in elements)


def chunk_of(message: chunk_pb2.Chunk) -> c.Chunk | None:
    """Reads a chunk; None when this version does not know its payload."""
    name = message.WhichOneof("payload")
    if name is None:
        return None
    path = message.agent_path
    header: _Header = (
        message.run_id,
        message.sequence,
        time_of(message.emit_time) if message.HasField("emit_time") else None,
        SOURCES.get(message.source, "unknown"),
        message.step,
        message.attempt,
        path_of(path) if path else (),
        message.ignorable,
    )
    return _DECODERS[name](header, getattr(message, name))


def _tool_call(header: _Header, p: chunk_pb2.ToolCallChunk) -> c.ToolCallChunk:
    return c.ToolCallChunk(
        *header,
        p.tool_call_id,
        p.tool_name,
        text_of(p, "args"),
        p.invalid_args if p.HasField("invalid_args") else None,
        p.provider_executed,
        text_of(p, "provider_metadata"),
    )


def _tool_result(header: _Header, p: chunk_pb2.ToolResultChunk) -> c.ToolResultChunk:
    return c.ToolResultChunk(
        *header,
        p.tool_call_id,
        p.tool_name,
        text_of(p, "args"),
        text_of(p, "result") or "null",
        p.provider_executed,
    )


def _expire_time(p: chunk_pb2.ToolCallApprovalChunk | chunk_pb2.ToolCallSuspendedChunk) -> datetime | None:
    return time_of(p.expire_time) if p.HasField("expire_time") else None


def _approval(header: _Header, p: chunk_pb2.ToolCallApprovalChunk) -> c.ToolCallApprovalChunk:
    return c.ToolCallApprovalChunk(
        *header,
        p.tool_call_id,
        p.tool_name,
        text_of(p, "args"),
        p.pending_call_id,
        p.args_digest,
        text_of(p, "resume_schema"),
        _expire_time(p),
    )


def _suspended(header: _Header, p: chunk_pb2.ToolCallSuspendedChunk) -> c.ToolCallSuspendedChunk:
    return c.ToolCallSuspendedChunk(
        *header,
        p.tool_call_id,
        p.tool_name,
        text_of(p, "args"),
        p.pending_call_id,
        p.args_digest,
        text_of(p, "resume_schema"),
        _expire_time(p),
        KINDS.get(p.kind, "unknown"),
        text_of(p, "suspend_payload"),
    )


def _resolved(header: _Header, p: chunk_pb2.ToolCallResolvedChunk) -> c.ToolCallResolvedChunk:
    return c.ToolCallResolvedChunk(
        *header,
        p.pending_call_id,
        p.tool_call_id,
        p.tool_name,
        VERBS.get(p.verb, "unknown"),
        p.principal,
        p.decision_id,
        text_of(p, "edited_args"),
    )


def _task_complete(header: _Header, p: chunk_pb2.IsTaskCompleteChunk) -> c.IsTaskCompleteChunk:
    return c.IsTaskCompleteChunk(
        *header,
        p.iteration,
        p.passed,
        tuple(
            c.CheckResult(r.scorer, r.score if r.HasField("score") else None, r.passed, r.reason)
            for r in p.results
        ),
        p.timed_out,
        p.reason,
        p.max_iteration_reached,
        p.suppress_feedback,
        p.ends_run,
    )


def _step_finish(header: _Header, p: chunk_pb2.StepFinishChunk) -> c.StepFinishChunk:
    return c.StepFinishChunk(
        *header,
        p.message_id,
        finish_reason(p.reason),
        p.is_continued,
        usage_of(p.usage),
        usage_of(p.total_usage),
        p.raw_reason,
        p.response_id,
        p.response_model,
        tuple(p.warnings),
    )


def _finish(header: _Header, p: chunk_pb2.FinishChunk) -> c.FinishChunk:
    return c.FinishChunk(
        *header,
        finish_reason(p.reason),
        stop_cause(p.stop_cause),
        usage_of(p.usage),
        tuple(
            c.OpenCall(
                o.pending_call_id,
                o.tool_call_id,
                o.tool_name,
                KINDS.get(o.kind, "unknown"),
                path_of(o.agent_path),
            )
            for o in p.open_calls
        ),
    )


_DECODERS: dict[str, _Decoder] = {
    "start": lambda h, p: c.StartChunk(*h, p.agent_id, p.message_id),
    "step_start": lambda h, p: c.StepStartChunk(*h, p.message_id, p.model, tuple(p.warnings)),
    "text_start": lambda h, p: c.TextStartChunk(*h, p.id, text_of(p, "provider_metadata")),
    "text_delta": lambda h, p: c.TextDeltaChunk(*h, p.id, p.text),
    "text_end": lambda h, p: c.TextEndChunk(*h, p.id, text_of(p, "provider_metadata")),
    "reasoning_start": lambda h, p: c.ReasoningStartChunk(*h, p.id, text_of(p, "provider_metadata")),
    "reasoning_delta": lambda h, p: c.ReasoningDeltaChunk(*h, p.id, p.text),
    "reasoning_end": lambda h, p: c.ReasoningEndChunk(*h, p.id, text_of(p, "provider_metadata")),
    "reasoning_signature": lambda h, p: c.ReasoningSignatureChunk(*h, p.id, p.signature),
    "redacted_reasoning": lambda h, p: c.RedactedReasoningChunk(*h, p.id, p.data),
    "tool_call_input_streaming_start": lambda h, p: c.ToolCallInputStreamingStartChunk(
        *h, p.tool_call_id, p.tool_name
    ),
    "tool_call_delta": lambda h, p: c.ToolCallDeltaChunk(*h, p.tool_call_id, p.tool_name, p.args_text_delta),
    "tool_call_input_streaming_end": lambda h, p: c.ToolCallInputStreamingEndChunk(*h, p.tool_call_id),
    "tool_call": _tool_call,
    "tool_result": _tool_result,
    "tool_error": lambda h, p: c.ToolErrorChunk(
        *h, p.tool_call_id, p.tool_name, text_of(p, "args"), p.message, p.code
    ),
    "tool_output": lambda h, p: c.ToolOutputChunk(*h, p.tool_call_id, p.tool_name, text_of(p, "output")),
    "tool_output_denied": lambda h, p: c.ToolOutputDeniedChunk(
        *h, p.tool_call_id, p.tool_name, text_of(p, "args"), p.reason, text_of(p, "reason_json")
    ),
    "tool_call_approval": _approval,
    "tool_call_suspended": _suspended,
    "tool_call_resolved": _resolved,
    "source_reference": lambda h, p: c.SourceChunk(*h, p.id, text_of(p, "provider_metadata"), p.url, p.title),
    "file": lambda h, p: c.FileChunk(*h, p.media_type, p.data, p.url),
    "object": lambda h, p: c.ObjectChunk(*h, text_of(p, "object"), p.structuring_model),
    "object_result": lambda h, p: c.ObjectResultChunk(
        *h, text_of(p, "object"), p.structuring_model, p.is_fallback
    ),
    "is_task_complete": _task_complete,
    "tripwire": lambda h, p: c.TripwireChunk(*h, tripwire_of(p.tripwire)),
    "step_finish": _step_finish,
    "finish": _finish,
    "error": lambda h, p: c.ErrorChunk(*h, run_error_of(p.error)),
    "abort": lambda h, p: c.AbortChunk(*h, p.reason),
    "raw": lambda h, p: c.RawChunk(*h, text_of(p, "value")),
    "custom": lambda h, p: c.CustomChunk(*h, p.name, text_of(p, "data"), p.id, p.transient),
}
