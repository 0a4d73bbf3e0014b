"""Results, pending calls, decisions and runs from the wire."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from entracte import _results as r
from entracte._chunk_codec import chunk_of, path_of
from entracte._chunks import ToolCallChunk, ToolResultChunk
from entracte._enums import (
    CALL_STATES,
    EXPIRY_ACTIONS,
    FOLLOW_UP_KINDS,
    FOLLOW_UP_STATES,
    KINDS,
    RUN_STATES,
    VERBS,
    finish_reason,
    stop_cause,
)
from entracte._message_codec import message_of, reasoning_of
from entracte._messages import Message
from entracte._outcomes import run_error_of, text_of, time_of, tripwire_of, usage_of
from entracte.v1 import chunk_pb2, follow_up_pb2, generate_result_pb2, message_pb2, pending_call_pb2, run_pb2


def decision_of(message: pending_call_pb2.Decision) -> r.Decision:
    """Reads a decision."""
    return r.Decision(
        decision_id=message.decision_id,
        pending_call_id=message.pending_call_id,
        run_id=message.run_id,
        tool_call_id=message.tool_call_id,
        tool_name=message.tool_name,
        verb=VERBS.get(message.verb, "unknown"),
        principal=message.principal,
        on_behalf_of=message.on_behalf_of,
        decide_time=_time(message, "decide_time"),
        args_json=text_of(message, "args"),
        edited_args_json=text_of(message, "edited_args"),
        data_json=text_of(message, "data"),
        is_error=message.is_error,
        reason=message.reason,
        reason_json=text_of(message, "reason_json"),
        comment=message.comment,
        request_id=message.request_id,
        args_digest=message.args_digest,
    )


def pending_call_of(message: pending_call_pb2.PendingCall) -> r.PendingCall:
    """Reads a pending call."""
    claim = None
    if message.HasField("claim"):
        claim = r.Claim(message.claim.principal, _time(message.claim, "expire_time"))
    return r.PendingCall(
        pending_call_id=message.pending_call_id,
        run_id=message.run_id,
        tool_call_id=message.tool_call_id,
        agent_id=message.agent_id,
        agent_path=path_of(message.agent_path),
        kind=KINDS.get(message.kind, "unknown"),
        tool_name=message.tool_name,
        tool_description=message.tool_description,
        args_json=text_of(message, "args"),
        args_digest=message.args_digest,
        suspend_payload_json=text_of(message, "suspend_payload"),
        resume_schema_json=text_of(message, "resume_schema"),
        create_time=_time(message, "create_time"),
        expire_time=_time(message, "expire_time"),
        state=CALL_STATES.get(message.state, "unknown"),
        claim=claim,
        thread_id=message.thread_id,
        resource_id=message.resource_id,
        round=message.round,
        decision=decision_of(message.decision) if message.HasField("decision") else None,
        on_expiry=EXPIRY_ACTIONS.get(message.on_expiry, "unknown") if message.on_expiry else None,
        default_answer_json=text_of(message, "default_answer"),
    )


def result_of(message: generate_result_pb2.GenerateResult, object_type: Any = None) -> r.GenerateResult:
    """Reads a result. `object_type` is the class of its structured output, if it has one."""
    return r.GenerateResult(
        run_id=message.run_id,
        text=message.text,
        object_json=text_of(message, "object"),
        tool_calls=_tool_calls(message.tool_calls),
        tool_results=_tool_results(message.tool_results),
        usage=usage_of(message.usage),
        steps=tuple(_step_of(step) for step in message.steps),
        finish_reason=finish_reason(message.finish_reason),
        stop_cause=stop_cause(message.stop_cause),
        response=_response_of(message.response),
        request=r.RequestInfo(text_of(message.request, "body")),
        warnings=tuple(message.warnings),
        provider_metadata_json=text_of(message, "provider_metadata"),
        reasoning=tuple(reasoning_of(part) for part in message.reasoning),
        reasoning_text=message.reasoning_text,
        sources=tuple(
            r.Source(source.id, source.url, source.title, text_of(source, "provider_metadata"))
            for source in message.sources
        ),
        files=tuple(r.File(file.media_type, file.data, file.url) for file in message.files),
        suspend_payload=_suspend_payload_of(message),
        pending_calls=tuple(pending_call_of(call) for call in message.pending_calls),
        trace_id=message.trace_id,
        span_id=message.span_id,
        messages=_messages(message.messages),
        remembered_messages=_messages(message.remembered_messages),
        error=run_error_of(message.error) if message.HasField("error") else None,
        tripwire=tripwire_of(message.tripwire) if message.HasField("tripwire") else None,
        scoring_data=_scoring_data_of(message),
        used_fallback_value=message.used_fallback_value,
        auto_resume_error=message.auto_resume_error,
        object_type=object_type,
    )


def run_of(message: run_pb2.Run, result: generate_result_pb2.GenerateResult | None = None) -> r.Run:
    """Reads a run."""
    return r.Run(
        run_id=message.run_id,
        agent_id=message.agent_id,
        state=RUN_STATES.get(message.state, "unknown"),
        last_sequence=message.last_sequence,
        step=message.step,
        create_time=_time(message, "create_time"),
        update_time=_time(message, "update_time"),
        finish_time=_time(message, "finish_time"),
        finish_reason=finish_reason(message.finish_reason),
        stop_cause=stop_cause(message.stop_cause),
        usage=usage_of(message.usage),
        error=run_error_of(message.error) if message.HasField("error") else None,
        principal=message.principal,
        thread_id=message.thread_id,
        resource_id=message.resource_id,
        root_run_id=message.root_run_id,
        parent_run_id=message.parent_run_id,
        pending_calls=tuple(pending_call_of(call) for call in message.pending_calls),
        request_context_json=text_of(message, "request_context"),
        result=None if result is None else result_of(result),
        follow_ups=tuple(follow_up_of(job) for job in message.follow_ups),
        agent_version_id=message.agent_version_id,
    )


def follow_up_of(message: follow_up_pb2.FollowUp) -> r.FollowUp:
    """Reads what is done after the end of a run."""
    return r.FollowUp(
        kind=FOLLOW_UP_KINDS.get(message.kind, "unknown"),
        name=message.name,
        state=FOLLOW_UP_STATES.get(message.state, "unknown"),
        scorer=message.scorer,
        score=message.score.score if message.HasField("score") else None,
        reason=message.score.reason,
        error=message.error,
        attempts=message.attempts,
        sampling_ratio=message.sampling_ratio if message.HasField("sampling_ratio") else None,
        usage=usage_of(message.usage),
        duration=message.duration.seconds + message.duration.nanos / 1e9,
        create_time=_time(message, "create_time"),
        finish_time=_time(message, "finish_time"),
        title=message.title if message.HasField("title") else None,
    )


def _step_of(message: generate_result_pb2.StepResult) -> r.StepResult:
    return r.StepResult(
        step=message.step,
        text=message.text,
        tool_calls=_tool_calls(message.tool_calls),
        tool_results=_tool_results(message.tool_results),
        finish_reason=finish_reason(message.finish_reason),
        usage=usage_of(message.usage),
        request=r.RequestInfo(text_of(message.request, "body")) if message.HasField("request") else None,
        response=_response_of(message.response) if message.HasField("response") else None,
        reasoning_text=message.reasoning_text,
        tripwire=tripwire_of(message.tripwire) if message.HasField("tripwire") else None,
        is_draft=message.is_draft,
    )


def _response_of(message: generate_result_pb2.ResponseInfo) -> r.ResponseInfo:
    return r.ResponseInfo(
        id=message.id,
        timestamp=_time(message, "timestamp"),
        model_id=message.model_id,
        headers=dict(message.headers),
        messages=_messages(message.messages),
        ui_messages=_messages(message.ui_messages),
        request_limit=_limit_of(message.request_limit) if message.HasField("request_limit") else None,
        token_limit=_limit_of(message.token_limit) if message.HasField("token_limit") else None,
    )


def _limit_of(message: generate_result_pb2.RateLimit) -> r.RateLimit:
    return r.RateLimit(
        limit=message.limit if message.HasField("limit") else None,
        remaining=message.remaining if message.HasField("remaining") else None,
        reset=message.reset.ToTimedelta() if message.HasField("reset") else None,
    )


def _suspend_payload_of(message: generate_result_pb2.GenerateResult) -> r.SuspendPayload | None:
    if not message.HasField("suspend_payload"):
        return None
    payload = message.suspend_payload
    return r.SuspendPayload(
        tool_call_id=payload.tool_call_id,
        tool_name=payload.tool_name,
        args_json=text_of(payload, "args"),
        suspend_payload_json=text_of(payload, "suspend_payload"),
        resume_schema_json=text_of(payload, "resume_schema"),
    )


def _scoring_data_of(message: generate_result_pb2.GenerateResult) -> r.ScoringData | None:
    if not message.HasField("scoring_data"):
        return None
    return r.ScoringData(text_of(message.scoring_data, "input"), text_of(message.scoring_data, "output"))


def _tool_calls(chunks: Iterable[chunk_pb2.Chunk]) -> tuple[ToolCallChunk, ...]:
    decoded = (chunk_of(chunk) for chunk in chunks)
    return tuple(chunk for chunk in decoded if isinstance(chunk, ToolCallChunk))


def _tool_results(chunks: Iterable[chunk_pb2.Chunk]) -> tuple[ToolResultChunk, ...]:
    decoded = (chunk_of(chunk) for chunk in chunks)
    return tuple(chunk for chunk in decoded if isinstance(chunk, ToolResultChunk))


def _messages(messages: Iterable[message_pb2.Message]) -> tuple[Message, ...]:
    return tuple(message_of(message) for message in messages)


def _time(holder: Any, field: str) -> datetime | None:
    return time_of(getattr(holder, field)) if holder.HasField(field) else None
