"""Records to the columns of a table and back, for the stores of SQL databases.

What conditions, filters and orders need is a column; the rest of a record is one MessagePack blob
(file data stays bytes, defaults are left out, a newer version's fields are skipped). The row's
`format` column says by which version of the records its blob was written.
"""

from typing import Any, TypeVar

import msgspec

from entracte_server.domain.chunks import PathElement, PendingKind, Verb
from entracte_server.domain.data import Data
from entracte_server.domain.expiry import OnExpiry
from entracte_server.domain.results import RunError, Usage
from entracte_server.domain.runs import (
    CallRow,
    DecisionRow,
    PendingRow,
    Processing,
    Remembered,
    RunRow,
    RunSpec,
    StepRecord,
)

Row = tuple[Any, ...]
T = TypeVar("T")


class PendingData(Data, frozen=True):
    """What a pending call's columns do not hold."""

    kind: PendingKind
    tool_name: str
    args: str
    args_digest: bytes
    round: int = 1
    suspend_payload: str | None = None
    resume_schema: str | None = None
    tool_description: str = ""
    tool_digest: bytes = b""
    agent_path: tuple[PathElement, ...] = ()
    on_expiry: OnExpiry | None = None
    needs: tuple[str, ...] = ()


class DecisionData(Data, frozen=True):
    """What a decision's columns do not hold."""

    tool_name: str
    verb: Verb
    decide_time: int
    args: str
    edited_args: str | None = None
    data: str | None = None
    is_error: bool = False
    reason: str = ""
    reason_json: str | None = None
    comment: str = ""
    on_behalf_of: str = ""
    request_id: str = ""
    args_digest: bytes = b""
    sequence: int = 0


_encoder = msgspec.msgpack.Encoder()
encode = _encoder.encode

decode_spec = msgspec.msgpack.Decoder(RunSpec).decode
decode_processing = msgspec.msgpack.Decoder(Processing).decode
decode_remembered = msgspec.msgpack.Decoder(Remembered).decode
decode_step = msgspec.msgpack.Decoder(StepRecord).decode
decode_call = msgspec.msgpack.Decoder(CallRow).decode
_decode_usage = msgspec.msgpack.Decoder(Usage).decode
_decode_error = msgspec.msgpack.Decoder(RunError).decode
_decode_pending = msgspec.msgpack.Decoder(PendingData).decode
_decode_decision = msgspec.msgpack.Decoder(DecisionData).decode

_NO_USAGE = Usage()

RUN_COLUMNS = (
    "seq, tenant, run_id, agent_id, state, principal, create_time, update_time, owner, fence, "
    "last_sequence, step, attempt, finish_time, usage, finish_reason, stop_cause, error, executed_ms, "
    "cancel_reason, takeovers, thread_id, resource_id, root_run_id, parent_run_id, agent_version, format"
)
"""Row id first, then `RunRow`'s fields in their order."""

NEW_RUN_COLUMNS = (
    "tenant, run_id, state, owner, fence, last_sequence, update_time, step, attempt, usage, takeovers, "
    "cancel_reason, executed_ms, finish_time, finish_reason, stop_cause, error, agent_id, agent_version, "
    "principal, create_time, thread_id, resource_id, root_run_id, parent_run_id, format"
)
"""What a run is created with."""

PENDING_COLUMNS = (
    "p.seq, p.tenant, p.pending_call_id, r.run_id, p.call_id, p.state, p.create_time, p.expire_time, "
    "p.claimed_by, p.claimed_until, p.decision_id, p.agent_id, p.thread_id, p.resource_id, p.data"
)
"""Of `pending_calls p JOIN runs r ON r.seq = p.run`."""

DECISION_COLUMNS = (
    "d.seq, d.tenant, d.decision_id, r.run_id, d.call_id, d.pending_call_id, d.principal, d.data"
)
"""Of `decisions d JOIN runs r ON r.seq = d.run`."""


def encode_usage(usage: Usage | None) -> bytes | None:
    """NULL stands for none at all, and in a patch for "as it was"."""
    return None if usage is None or usage == _NO_USAGE else encode(usage)


def encode_error(error: RunError | None) -> bytes | None:
    return None if error is None else encode(error)


def run_values(run: RunRow) -> Row:
    """The values of `NEW_RUN_COLUMNS`, in their order."""
    return (
        run.tenant,
        run.run_id,
        run.state,
        run.owner,
        run.fence,
        run.last_sequence,
        run.update_time,
        run.step,
        run.attempt,
        encode_usage(run.usage),
        run.takeovers,
        run.cancel_reason,
        run.executed_ms,
        run.finish_time,
        run.finish_reason,
        run.stop_cause,
        encode_error(run.error),
        run.agent_id,
        run.agent_version,
        run.principal,
        run.create_time,
        run.thread_id or None,
        run.resource_id or None,
        None if run.root_run_id == run.run_id else run.root_run_id,
        run.parent_run_id or None,
        run.format,
    )


def run_row(row: Row) -> RunRow:
    """From `RUN_COLUMNS`."""
    values = list(row[1:])
    values[13] = _NO_USAGE if row[14] is None else _decode_usage(row[14])
    values[16] = None if row[17] is None else _decode_error(row[17])
    values[20] = values[20] or ""
    values[21] = values[21] or ""
    if values[22] is None:
        values[22] = values[1]
    values[23] = values[23] or ""
    return RunRow(*values)


def pending_data(pending: PendingRow) -> bytes:
    return encode(
        PendingData(
            kind=pending.kind,
            tool_name=pending.tool_name,
            args=pending.args,
            args_digest=pending.args_digest,
            round=pending.round,
            suspend_payload=pending.suspend_payload,
            resume_schema=pending.resume_schema,
            tool_description=pending.tool_description,
            tool_digest=pending.tool_digest,
            agent_path=pending.agent_path,
            on_expiry=pending.on_expiry,
            needs=pending.needs,
        )
    )


def pending_row(row: Row) -> PendingRow:
    """From `PENDING_COLUMNS`."""
    data = _decode_pending(row[14])
    return PendingRow(
        tenant=row[1],
        pending_call_id=row[2],
        run_id=row[3],
        call_id=row[4],
        state=row[5],
        create_time=row[6],
        expire_time=row[7],
        claimed_by=row[8],
        claimed_until=row[9],
        decision_id=row[10],
        agent_id=row[11],
        thread_id=row[12],
        resource_id=row[13],
        kind=data.kind,
        tool_name=data.tool_name,
        args=data.args,
        args_digest=data.args_digest,
        round=data.round,
        suspend_payload=data.suspend_payload,
        resume_schema=data.resume_schema,
        tool_description=data.tool_description,
        tool_digest=data.tool_digest,
        agent_path=data.agent_path,
        on_expiry=data.on_expiry,
        needs=data.needs,
    )


def decision_data(decision: DecisionRow) -> bytes:
    return encode(
        DecisionData(
            tool_name=decision.tool_name,
            verb=decision.verb,
            decide_time=decision.decide_time,
            args=decision.args,
            edited_args=decision.edited_args,
            data=decision.data,
            is_error=decision.is_error,
            reason=decision.reason,
            reason_json=decision.reason_json,
            comment=decision.comment,
            on_behalf_of=decision.on_behalf_of,
            request_id=decision.request_id,
            args_digest=decision.args_digest,
            sequence=decision.sequence,
        )
    )


def decision_row(row: Row) -> DecisionRow:
    """From `DECISION_COLUMNS`."""
    data = _decode_decision(row[7])
    return DecisionRow(
        tenant=row[1],
        decision_id=row[2],
        run_id=row[3],
        call_id=row[4],
        pending_call_id=row[5],
        principal=row[6],
        tool_name=data.tool_name,
        verb=data.verb,
        decide_time=data.decide_time,
        args=data.args,
        edited_args=data.edited_args,
        data=data.data,
        is_error=data.is_error,
        reason=data.reason,
        reason_json=data.reason_json,
        comment=data.comment,
        on_behalf_of=data.on_behalf_of,
        request_id=data.request_id,
        args_digest=data.args_digest,
        sequence=data.sequence,
    )
