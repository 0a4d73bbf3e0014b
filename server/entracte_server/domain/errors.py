"""Why a request is refused, as data that `rpc` turns into a status."""

from typing import Literal

from entracte_server.domain.data import Data

Reason = Literal[
    "REQUEST_INVALID",
    "JSON_INVALID",
    "SCHEMA_INVALID",
    "RESUME_DATA_INVALID",
    "EDITED_ARGS_INVALID",
    "REQUEST_ID_REUSED",
    "PAGE_TOKEN_INVALID",
    "OPTION_UNSUPPORTED",
    "AGENT_NOT_FOUND",
    "RUN_NOT_FOUND",
    "PENDING_CALL_NOT_FOUND",
    "RUN_ALREADY_EXISTS",
    "PENDING_CALL_ALREADY_DECIDED",
    "PENDING_CALL_AMBIGUOUS",
    "PENDING_CALL_EXPIRED",
    "PENDING_CALL_CLAIMED",
    "VERB_MISMATCH",
    "ARGS_DIGEST_MISMATCH",
    "RUN_FINISHED",
    "RUN_NOT_FINISHED",
    "AGENT_UNAVAILABLE",
    "TOOL_UNAVAILABLE",
    "SEQUENCE_TRIMMED",
    "SEQUENCE_AHEAD",
    "RESULT_TOO_LARGE",
    "UNAUTHENTICATED",
    "ROLE_REQUIRED",
    "TOO_MANY_STREAMS",
    "TOO_MANY_RUNS",
    "READER_TOO_SLOW",
    "SERVER_DRAINING",
    "STORE_UNAVAILABLE",
    "RUN_LEASE_LOST",
    "INTERNAL",
    "WAIT_TOO_LONG",
    "TOOLSET_UNAVAILABLE",
    "THREAD_NOT_FOUND",
    "THREAD_EXISTS",
    "THREAD_BUSY",
    "THREAD_PARKED",
    "THREAD_QUEUE_FULL",
    "THREAD_OF_OTHER_RESOURCE",
    "RUN_OF_SUB_AGENT",
    "WORKING_MEMORY_CHANGED",
    "WORKER_TOOL_EXISTS",
    "WORKER_TOOL_UNKNOWN",
    "TOO_MANY_WORKERS",
    "WORKER_SESSION_REPLACED",
    "WORK_NOT_FOUND",
    "WORK_REASSIGNED",
    "WORK_COMPLETED",
    "WORK_CANCELLED",
    "WORK_OUTPUT_FULL",
    "AGENT_VERSION_NOT_FOUND",
    "AGENT_NOT_PUBLISHED",
    "AGENT_DEFINED_IN_CODE",
    "AGENT_VERSION_ARCHIVED",
    "AGENT_VERSION_UNUSABLE",
    "PUBLISHED_VERSION_CHANGED",
]


class FieldViolation(Data, frozen=True):
    """What is wrong with one field of a request, and what to do about it."""

    field: str
    description: str


class Refusal(Exception):
    """A request that is refused. Nothing was changed.

    `reason` is a value of the contract's ErrorReason; `metadata`, `violations` and `retry_after`
    (seconds) are its details. The message is for people and has no internals in it.
    """

    def __init__(
        self,
        reason: Reason,
        message: str,
        *,
        violations: tuple[FieldViolation, ...] = (),
        retry_after: float | None = None,
        **metadata: str,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.violations = violations
        self.retry_after = retry_after
        self.metadata = metadata


def invalid(field: str, description: str, reason: Reason = "REQUEST_INVALID") -> Refusal:
    """A refusal for one field."""
    return Refusal(reason, f"{field}: {description}", violations=(FieldViolation(field, description),))
