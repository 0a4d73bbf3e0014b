"""Stored rows as the messages of responses."""

from collections.abc import Iterable

from entracte.v1 import chunk_pb2, follow_up_pb2, pending_call_pb2, run_pb2
from entracte_server.domain.follow_ups import FollowUpRow
from entracte_server.domain.runs import DecisionRow, PendingRow, RunRow
from entracte_server.wire import codec, values

STATES = values.EnumTexts(run_pb2.RunState.DESCRIPTOR)
EXPIRY_ACTIONS = values.EnumTexts(pending_call_pb2.ExpiryAction.DESCRIPTOR)
FOLLOW_UP_KINDS = values.EnumTexts(follow_up_pb2.FollowUpKind.DESCRIPTOR)
FOLLOW_UP_STATES = values.EnumTexts(follow_up_pb2.FollowUpState.DESCRIPTOR)
PENDING_STATES = values.EnumTexts(pending_call_pb2.PendingCallState.DESCRIPTOR)


def run_message(
    run: RunRow,
    pending: Iterable[PendingRow] = (),
    request_context: str | None = None,
    follow_ups: Iterable[FollowUpRow] = (),
) -> run_pb2.Run:
    """A run."""
    message = run_pb2.Run(
        run_id=run.run_id,
        agent_id=run.agent_id,
        state=STATES.number(run.state),
        last_sequence=run.last_sequence,
        step=run.step,
        create_time=values.timestamp(run.create_time),
        update_time=values.timestamp(run.update_time),
        finish_reason=values.FINISH_REASONS.number(run.finish_reason),
        stop_cause=values.STOP_CAUSES.number(run.stop_cause),
        usage=values.usage(run.usage),
        principal=run.principal,
        thread_id=run.thread_id,
        resource_id=run.resource_id,
        root_run_id=run.root_run_id or run.run_id,
        parent_run_id=run.parent_run_id,
        pending_calls=[pending_message(row) for row in pending],
        request_context=values.json(request_context),
        follow_ups=[follow_up_message(row) for row in follow_ups],
        agent_version_id=run.agent_version,
    )
    if run.finish_time:
        message.finish_time.CopyFrom(values.timestamp(run.finish_time))
    if run.error is not None:
        message.error.CopyFrom(values.run_error(run.error))
    return message


def follow_up_message(row: FollowUpRow) -> follow_up_pb2.FollowUp:
    """A follow-up job."""
    message = follow_up_pb2.FollowUp(
        kind=FOLLOW_UP_KINDS.number(row.kind),
        name=row.name,
        state=FOLLOW_UP_STATES.number(row.state),
        create_time=values.timestamp(row.create_time),
        attempts=row.attempts,
        error=row.error,
        sampling_ratio=row.ratio,
        scorer=row.subject,
        usage=values.usage(row.usage),
        duration=values.duration(row.duration_ms / 1000),
    )
    if row.finish_time:
        message.finish_time.CopyFrom(values.timestamp(row.finish_time))
    if row.score is not None:
        message.score.score = row.score
        message.score.reason = row.reason
    if row.title:
        message.title = row.title
    return message


def pending_message(
    row: PendingRow, decision: DecisionRow | None = None, now: int = 0
) -> pending_call_pb2.PendingCall:
    """A pending call. A claim is shown while it lasts, as of `now` (ms)."""
    message = pending_call_pb2.PendingCall(
        pending_call_id=row.pending_call_id,
        run_id=row.run_id,
        tool_call_id=row.call_id,
        agent_id=row.agent_id,
        agent_path=[
            chunk_pb2.PathElement(agent_id=e.agent_id, tool_call_id=e.tool_call_id) for e in row.agent_path
        ],
        kind=codec.PENDING_KINDS.number(row.kind),
        tool_name=row.tool_name,
        tool_description=row.tool_description,
        args=values.json(row.args),
        args_digest=row.args_digest,
        suspend_payload=values.json(row.suspend_payload),
        resume_schema=values.json(row.resume_schema),
        create_time=values.timestamp(row.create_time),
        state=PENDING_STATES.number(row.state),
        thread_id=row.thread_id,
        resource_id=row.resource_id,
        round=row.round,
    )
    if row.expire_time:
        message.expire_time.CopyFrom(values.timestamp(row.expire_time))
    if row.on_expiry is not None:
        message.on_expiry = EXPIRY_ACTIONS.number(row.on_expiry.action)
        if row.on_expiry.answer is not None:
            message.default_answer.text = row.on_expiry.answer
    if row.claimed_by and row.claimed_until > now:
        message.claim.principal = row.claimed_by
        message.claim.expire_time.CopyFrom(values.timestamp(row.claimed_until))
    if decision is not None:
        message.decision.CopyFrom(decision_message(decision))
    return message


def decision_message(row: DecisionRow) -> pending_call_pb2.Decision:
    """A decision."""
    return pending_call_pb2.Decision(
        decision_id=row.decision_id,
        pending_call_id=row.pending_call_id,
        run_id=row.run_id,
        tool_call_id=row.call_id,
        tool_name=row.tool_name,
        verb=codec.VERBS.number(row.verb),
        principal=row.principal,
        on_behalf_of=row.on_behalf_of,
        decide_time=values.timestamp(row.decide_time),
        args=values.json(row.args),
        edited_args=values.json(row.edited_args),
        data=values.json(row.data),
        reason=row.reason,
        reason_json=values.json(row.reason_json),
        comment=row.comment,
        request_id=row.request_id,
        args_digest=row.args_digest,
        is_error=row.is_error,
    )
