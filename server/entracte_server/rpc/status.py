"""Refusals as gRPC statuses with google.rpc details. The one place where codes are chosen."""

from typing import NoReturn

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from entracte_server.domain.errors import Refusal
from entracte_server.rpc.call import Context
from entracte_server.store.base import (
    LeaseLost,
    NotFound,
    RequestReused,
    RunExists,
    StoreUnavailable,
)

DOMAIN = "entracte.dev"
MAX_TEXT = 1000
"""Longest text of a status, in bytes. A status is sent as headers, text and details each, and clients
take 8 KiB of them in all by default."""

MAX_ENCODED_TEXT = 1500
"""The same as sent: three bytes for each that is not printable ASCII."""

MAX_VALUE = 1024
"""Longest value of the metadata, in bytes."""

MAX_FIELD = 256
MAX_DESCRIPTION = 512
"""Longest name and description of a violation, in bytes."""

MAX_STATUS = 4000
"""Largest status, in bytes; violations that go beyond it are left out, but for the first."""

CODES: dict[str, grpc.StatusCode] = {
    "REQUEST_INVALID": grpc.StatusCode.INVALID_ARGUMENT,
    "JSON_INVALID": grpc.StatusCode.INVALID_ARGUMENT,
    "SCHEMA_INVALID": grpc.StatusCode.INVALID_ARGUMENT,
    "RESUME_DATA_INVALID": grpc.StatusCode.INVALID_ARGUMENT,
    "EDITED_ARGS_INVALID": grpc.StatusCode.INVALID_ARGUMENT,
    "REQUEST_ID_REUSED": grpc.StatusCode.INVALID_ARGUMENT,
    "PAGE_TOKEN_INVALID": grpc.StatusCode.INVALID_ARGUMENT,
    "OPTION_UNSUPPORTED": grpc.StatusCode.UNIMPLEMENTED,
    "AGENT_NOT_FOUND": grpc.StatusCode.NOT_FOUND,
    "RUN_NOT_FOUND": grpc.StatusCode.NOT_FOUND,
    "PENDING_CALL_NOT_FOUND": grpc.StatusCode.NOT_FOUND,
    "RUN_ALREADY_EXISTS": grpc.StatusCode.ALREADY_EXISTS,
    "PENDING_CALL_ALREADY_DECIDED": grpc.StatusCode.FAILED_PRECONDITION,
    "PENDING_CALL_AMBIGUOUS": grpc.StatusCode.FAILED_PRECONDITION,
    "PENDING_CALL_EXPIRED": grpc.StatusCode.FAILED_PRECONDITION,
    "PENDING_CALL_CLAIMED": grpc.StatusCode.FAILED_PRECONDITION,
    "VERB_MISMATCH": grpc.StatusCode.FAILED_PRECONDITION,
    "ARGS_DIGEST_MISMATCH": grpc.StatusCode.FAILED_PRECONDITION,
    "RUN_FINISHED": grpc.StatusCode.FAILED_PRECONDITION,
    "RUN_NOT_FINISHED": grpc.StatusCode.FAILED_PRECONDITION,
    "AGENT_UNAVAILABLE": grpc.StatusCode.FAILED_PRECONDITION,
    "TOOL_UNAVAILABLE": grpc.StatusCode.FAILED_PRECONDITION,
    "SEQUENCE_TRIMMED": grpc.StatusCode.OUT_OF_RANGE,
    "SEQUENCE_AHEAD": grpc.StatusCode.OUT_OF_RANGE,
    "RESULT_TOO_LARGE": grpc.StatusCode.OUT_OF_RANGE,
    "UNAUTHENTICATED": grpc.StatusCode.UNAUTHENTICATED,
    "ROLE_REQUIRED": grpc.StatusCode.PERMISSION_DENIED,
    "TOO_MANY_STREAMS": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "TOO_MANY_RUNS": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "READER_TOO_SLOW": grpc.StatusCode.UNAVAILABLE,
    "SERVER_DRAINING": grpc.StatusCode.UNAVAILABLE,
    "STORE_UNAVAILABLE": grpc.StatusCode.UNAVAILABLE,
    "RUN_LEASE_LOST": grpc.StatusCode.ABORTED,
    "INTERNAL": grpc.StatusCode.INTERNAL,
    "WAIT_TOO_LONG": grpc.StatusCode.DEADLINE_EXCEEDED,
    "TOOLSET_UNAVAILABLE": grpc.StatusCode.FAILED_PRECONDITION,
    "THREAD_NOT_FOUND": grpc.StatusCode.NOT_FOUND,
    "THREAD_EXISTS": grpc.StatusCode.ALREADY_EXISTS,
    "THREAD_BUSY": grpc.StatusCode.ABORTED,
    "THREAD_PARKED": grpc.StatusCode.FAILED_PRECONDITION,
    "THREAD_QUEUE_FULL": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "THREAD_OF_OTHER_RESOURCE": grpc.StatusCode.FAILED_PRECONDITION,
    "RUN_OF_SUB_AGENT": grpc.StatusCode.FAILED_PRECONDITION,
    "WORKING_MEMORY_CHANGED": grpc.StatusCode.ABORTED,
    "WORKER_TOOL_EXISTS": grpc.StatusCode.ALREADY_EXISTS,
    "WORKER_TOOL_UNKNOWN": grpc.StatusCode.FAILED_PRECONDITION,
    "TOO_MANY_WORKERS": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "WORKER_SESSION_REPLACED": grpc.StatusCode.ABORTED,
    "WORK_NOT_FOUND": grpc.StatusCode.NOT_FOUND,
    "WORK_REASSIGNED": grpc.StatusCode.FAILED_PRECONDITION,
    "WORK_COMPLETED": grpc.StatusCode.FAILED_PRECONDITION,
    "WORK_CANCELLED": grpc.StatusCode.FAILED_PRECONDITION,
    "WORK_OUTPUT_FULL": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "AGENT_VERSION_NOT_FOUND": grpc.StatusCode.NOT_FOUND,
    "AGENT_NOT_PUBLISHED": grpc.StatusCode.FAILED_PRECONDITION,
    "AGENT_DEFINED_IN_CODE": grpc.StatusCode.ALREADY_EXISTS,
    "AGENT_VERSION_ARCHIVED": grpc.StatusCode.FAILED_PRECONDITION,
    "AGENT_VERSION_UNUSABLE": grpc.StatusCode.FAILED_PRECONDITION,
    "PUBLISHED_VERSION_CHANGED": grpc.StatusCode.ABORTED,
}


def refusal_of(
    error: NotFound | RunExists | RequestReused | StoreUnavailable | LeaseLost, run_id: str = ""
) -> Refusal:
    """What a store's error means to a caller."""
    if isinstance(error, NotFound):
        return Refusal("RUN_NOT_FOUND", "There is no such run.", run_id=run_id)
    if isinstance(error, RunExists):
        return Refusal("RUN_ALREADY_EXISTS", "The run id is taken.", run_id=run_id)
    if isinstance(error, RequestReused):
        return Refusal(
            "REQUEST_ID_REUSED", "The request_id was used with another request.", request_id=error.request_id
        )
    if isinstance(error, StoreUnavailable):
        return Refusal("STORE_UNAVAILABLE", "The database does not answer.", retry_after=1.0)
    return Refusal("RUN_LEASE_LOST", "Another process owns the run now.", retry_after=1.0)


def _cut(text: str, limit: int) -> str:
    """`text`, without halves of surrogate pairs and not longer than `limit` bytes."""
    raw = text.encode("utf-8", "replace")
    return raw.decode() if len(raw) <= limit else raw[: limit - 3].decode("utf-8", "ignore") + "..."


def _text(text: str) -> str:
    """The text of a status, short enough when it is percent-encoded."""
    text = _cut(text, MAX_TEXT)
    room = MAX_ENCODED_TEXT - 3
    for position, character in enumerate(text):
        room -= 1 if " " <= character <= "~" and character != "%" else 3 * len(character.encode())
        if room < 0:
            return text[:position] + "..."
    return text


def _any(message: Message) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(message)
    return packed


def status(refusal: Refusal) -> status_pb2.Status:
    """The rich status of a refusal: ErrorInfo, and BadRequest or RetryInfo where they apply."""
    info = error_details_pb2.ErrorInfo(
        reason=refusal.reason,
        domain=DOMAIN,
        metadata={key: _cut(value, MAX_VALUE) for key, value in refusal.metadata.items()},
    )
    made = status_pb2.Status(
        code=CODES[refusal.reason].value[0], message=_text(refusal.message), details=[_any(info)]
    )
    if refusal.retry_after is not None:
        nanos = round(refusal.retry_after * 1e9)
        delay = duration_pb2.Duration(seconds=nanos // 10**9, nanos=nanos % 10**9)
        made.details.append(_any(error_details_pb2.RetryInfo(retry_delay=delay)))
    if refusal.violations:
        made.details.append(_any(_bad_request(refusal, MAX_STATUS - made.ByteSize())))
    return made


def _bad_request(refusal: Refusal, room: int) -> error_details_pb2.BadRequest:
    bad = error_details_pb2.BadRequest()
    for violation in refusal.violations:
        item = error_details_pb2.BadRequest.FieldViolation(
            field=_cut(violation.field, MAX_FIELD),
            description=_cut(violation.description, MAX_DESCRIPTION),
        )
        room -= item.ByteSize() + 4
        if room < 0 and bad.field_violations:
            break
        bad.field_violations.append(item)
    return bad


async def abort(context: Context, refusal: Refusal) -> NoReturn:
    """End the RPC with a refusal."""
    rich = rpc_status.to_status(status(refusal))
    await context.abort(rich.code, rich.details, rich.trailing_metadata)
