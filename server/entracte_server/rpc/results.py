"""What a run has come to, from its stored steps and calls: the one way a result is made, whoever asks."""

from collections.abc import Iterable, Iterator, Mapping

from entracte.v1 import chunk_pb2, generate_result_pb2, message_pb2
from entracte_server.domain import chunks as c
from entracte_server.domain.errors import Refusal
from entracte_server.domain.messages import ReasoningPart, TextPart
from entracte_server.domain.results import Usage
from entracte_server.domain.runs import CallRow, PendingRow, Snapshot, StepRecord
from entracte_server.engine import history, prompt
from entracte_server.engine.scoring import scorer_input, scoring_data
from entracte_server.models.rate_limits import Limit, read_limits
from entracte_server.rpc.messages import to_messages, to_reasoning
from entracte_server.rpc.resources import pending_message
from entracte_server.wire import codec, values

MAX_MESSAGE = 16 * 1024 * 1024
"""Largest response, in bytes."""


def _text(record: StepRecord) -> str:
    return "".join(part.text for part in record.parts if isinstance(part, TextPart))


def _thinking(record: StepRecord) -> list[ReasoningPart]:
    return [part for part in record.parts if isinstance(part, ReasoningPart)]


def _chunk(run_id: str, record: StepRecord, payload: c.Payload) -> chunk_pb2.Chunk:
    return codec.to_message(c.Chunk(run_id, 0, 0, record.step, record.attempt, payload))


def _call_chunks(run_id: str, record: StepRecord, calls: list[CallRow]) -> list[chunk_pb2.Chunk]:
    return [
        _chunk(
            run_id,
            record,
            c.ToolCall(
                call.call_id,
                call.tool_name,
                call.run_args if call.edited else call.args,
                call.invalid_args,
                provider_executed=call.provider_executed,
            ),
        )
        for call in calls
    ]


def _result_chunks(run_id: str, record: StepRecord, calls: list[CallRow]) -> list[chunk_pb2.Chunk]:
    return [
        _chunk(
            run_id,
            record,
            c.ToolResult(
                call.call_id,
                call.tool_name,
                call.run_args if call.edited else call.args,
                call.outcome.value,
            ),
        )
        for call in calls
        if call.outcome is not None and call.outcome.kind == "result"
    ]


def _response(record: StepRecord) -> generate_result_pb2.ResponseInfo:
    message = generate_result_pb2.ResponseInfo(
        id=record.response.id,
        model_id=record.response.model or record.model,
        headers=dict(record.response.headers),
    )
    if record.response.time:
        message.timestamp.CopyFrom(values.timestamp(record.response.time))
    limits = read_limits(record.response.headers)
    if limits.requests != Limit():
        message.request_limit.CopyFrom(_limit(limits.requests))
    if limits.tokens != Limit():
        message.token_limit.CopyFrom(_limit(limits.tokens))
    return message


def _limit(limit: Limit) -> generate_result_pb2.RateLimit:
    message = generate_result_pb2.RateLimit(limit=limit.most, remaining=limit.left)
    if limit.reset is not None:
        message.reset.FromNanoseconds(round(limit.reset * 1e9))
    return message


def _with_metadata(
    messages: Iterable[message_pb2.Message], attached: Mapping[str, str]
) -> Iterator[message_pb2.Message]:
    """The messages with what processors attached to those of these ids."""
    for message in messages:
        copy = message_pb2.Message()
        copy.CopyFrom(message)
        if message.id in attached:
            copy.metadata.text = attached[message.id]
        yield copy


def result_message(snapshot: Snapshot, request_body: str | None = None) -> generate_result_pb2.GenerateResult:
    """The result of a run, with what it remembers, as it is stored: final when the run has ended,
    what there is so far otherwise. `request_body` is the last request's body, where it is wanted."""
    run, steps = snapshot.run, snapshot.steps
    calls: dict[int, list[CallRow]] = {}
    for call in sorted(snapshot.calls, key=lambda k: (k.step, k.index)):
        calls.setdefault(call.step, []).append(call)
    waiting = snapshot.waiting
    spec = prompt.processed(snapshot.spec, snapshot.processing)
    result = generate_result_pb2.GenerateResult(
        run_id=run.run_id,
        finish_reason=values.FINISH_REASONS.number(run.finish_reason),
        stop_cause=values.STOP_CAUSES.number(run.stop_cause),
        pending_calls=[pending_message(row) for row in waiting],
        messages=to_messages(spec.input),
    )
    asked = len(result.messages)
    remembered = [message for message in spec.history if not history.is_note(message)]
    result.remembered_messages.extend(to_messages(remembered))
    if snapshot.spec.trace is not None:
        result.trace_id, result.span_id = snapshot.spec.trace.trace_id, snapshot.spec.trace.span_id
    texts = []
    attached: dict[str, str] = {}
    usage = sum((call.usage for call in snapshot.calls if call.usage is not None), start=Usage())
    for record in steps:
        own = calls.get(record.step, [])
        usage = usage + record.whole_usage
        if record.again or record.held:  # nothing of it counts but what it cost
            continue
        step = result.steps.add(
            step=record.step,
            text=_text(record),
            tool_calls=_call_chunks(run.run_id, record, own),
            tool_results=_result_chunks(run.run_id, record, own),
            finish_reason=values.FINISH_REASONS.number(record.reason),
            usage=values.usage(record.whole_usage),
            response=_response(record),
            reasoning_text="".join(part.text for part in _thinking(record)),
            is_draft=record.is_draft,
        )
        if record.tripwire is not None:
            step.tripwire.CopyFrom(values.tripwire(record.tripwire))
            result.tripwire.CopyFrom(step.tripwire)
        added = to_messages(prompt.step_messages(record, own))
        if record.metadata is not None:
            attached[record.message_id] = record.metadata
        step.response.messages.extend(added)
        result.messages.extend(added)
        if not record.is_draft:
            texts.append(step.text)
        result.tool_calls.extend(step.tool_calls)
        result.tool_results.extend(step.tool_results)
        result.warnings.extend(record.warnings)
        result.reasoning.extend(to_reasoning(part) for part in _thinking(record))
        result.sources.extend(
            chunk_pb2.SourceChunk(
                id=s.id,
                url=s.url,
                title=s.title,
                provider_metadata=values.json(s.provider_metadata),
            )
            for s in record.sources
        )
        result.files.extend(
            chunk_pb2.FileChunk(media_type=f.media_type, data=f.data, url=f.url) for f in record.files
        )
    result.text = "".join(texts)
    result.reasoning_text = "".join(part.text for part in result.reasoning)
    result.usage.CopyFrom(values.usage(usage))
    if result.steps:
        last = steps[len(result.steps) - 1]
        result.response.CopyFrom(_response(last))
        result.response.messages.extend(result.messages[asked:])
        if attached:
            result.response.ui_messages.extend(_with_metadata(result.messages[asked:], attached))
        if last.response.provider_metadata is not None:
            result.provider_metadata.text = last.response.provider_metadata
        if (made := last.structured) is not None and made.object is not None and not last.is_draft:
            result.object.text = made.object
            result.used_fallback_value = made.is_fallback
    if run.error is not None:
        result.error.CopyFrom(values.run_error(run.error))
    if waiting:
        result.suspend_payload.CopyFrom(_suspend_payload(waiting[0]))
    if request_body is not None:
        result.request.body.text = request_body
    if snapshot.spec.options.return_scorer_data:
        seen = [record for record in steps if not record.held]
        given = scorer_input(run, spec, seen, snapshot.calls)
        result.scoring_data.input.text, result.scoring_data.output.text = scoring_data(given)
    size = result.ByteSize()
    if size > MAX_MESSAGE - 1024 * 1024:
        raise too_large(size, run_id=run.run_id, rpc="WatchRun")
    return result


def too_large(size: int, *, run_id: str, rpc: str) -> Refusal:
    """The refusal of a response of `size` bytes; `rpc` reads the same piece by piece."""
    return Refusal(
        "RESULT_TOO_LARGE",
        f"The response would have {size} bytes, more than a message may have; read it with {rpc}.",
        run_id=run_id,
        rpc=rpc,
        bytes=str(size),
    )


def _suspend_payload(row: PendingRow) -> generate_result_pb2.SuspendPayload:
    return generate_result_pb2.SuspendPayload(
        tool_call_id=row.call_id,
        tool_name=row.tool_name,
        args=values.json(row.args),
        suspend_payload=values.json(row.suspend_payload),
        resume_schema=values.json(row.resume_schema),
    )
