"""What the SDK raises.

Every refusal of the server is an error named after its reason in the contract (`ErrorReason`),
below the class of its status code. A reason or code newer than this SDK raises the closest class
above it. A run that failed is not an error: it is a result with `finish_reason == "error"`.

    EntracteError
     ├─ InvalidArgument            the request is wrong; `violations` says where
     │   ├─ RequestInvalid
     │   ├─ JsonInvalid
     │   ├─ SchemaInvalid
     │   ├─ ResumeDataInvalid      the answer does not fit; the call still waits
     │   ├─ EditedArgsInvalid      the edited arguments do not fit; the call still waits
     │   ├─ RequestIdReused
     │   └─ PageTokenInvalid
     ├─ NotFound
     │   ├─ AgentNotFound
     │   ├─ AgentVersionNotFound
     │   ├─ RunNotFound
     │   ├─ PendingCallNotFound
     │   ├─ ThreadNotFound
     │   └─ WorkNotFound
     ├─ AlreadyExists
     │   ├─ AgentDefinedInCode
     │   ├─ RunAlreadyExists
     │   ├─ ThreadExists
     │   └─ WorkerToolExists       another definition has that name and version
     ├─ FailedPrecondition         not in this state; `metadata` says in which
     │   ├─ AgentNotPublished
     │   ├─ AgentVersionArchived
     │   ├─ AgentVersionUnusable   it names something that the server does not have
     │   ├─ PendingCallAlreadyDecided
     │   ├─ PendingCallAmbiguous
     │   ├─ PendingCallExpired
     │   ├─ PendingCallClaimed
     │   ├─ VerbMismatch
     │   ├─ ArgsDigestMismatch
     │   ├─ RunFinished
     │   ├─ RunNotFinished
     │   ├─ RunOfSubAgent
     │   ├─ AgentUnavailable
     │   ├─ ToolUnavailable
     │   ├─ ToolsetUnavailable
     │   ├─ ThreadParked           decide the calls it names first
     │   ├─ ThreadOfOtherResource
     │   ├─ WorkerToolUnknown      start a worker that registers it
     │   ├─ WorkReassigned         another worker has it now
     │   ├─ WorkCompleted
     │   └─ WorkCancelled
     ├─ OutOfRange
     │   ├─ SequenceTrimmed        those chunks are no longer stored
     │   ├─ SequenceAhead
     │   └─ ResultTooLarge
     ├─ Unauthenticated
     ├─ PermissionDenied
     │   └─ RoleRequired
     ├─ ResourceExhausted          `retry_after` says when to try again
     │   ├─ TooManyStreams
     │   ├─ TooManyRuns
     │   ├─ ThreadQueueFull
     │   ├─ TooManyWorkers
     │   └─ WorkOutputFull
     ├─ Unavailable                tried again by the SDK first
     │   ├─ ReaderTooSlow
     │   ├─ ServerDraining
     │   ├─ StoreUnavailable
     │   └─ ServerUnreachable      no server answered
     ├─ Aborted
     │   ├─ RunLeaseLost
     │   ├─ PublishedVersionChanged  somebody was first: read it again
     │   ├─ ThreadBusy             another run has it; `memory.on_busy_thread` waits for it
     │   ├─ WorkingMemoryChanged   somebody was first: read it again
     │   └─ WorkerSessionReplaced
     ├─ Unimplemented
     │   └─ OptionUnsupported
     ├─ DeadlineExceeded           the `timeout` passed; the run goes on
     │   └─ WaitTooLong            not yours, the server's own limit on the wait
     ├─ Internal                   a fault of the server
     └─ StreamError                the stream is not what the contract says
         ├─ SequenceGap            a chunk is missing
         ├─ UnknownChunk           a chunk this SDK does not know and may not skip
         └─ StreamBroken           the stream kept ending before its `finish`
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """One fault of a request: the path of the field, and what is wrong with it."""

    field: str
    description: str


class EntracteError(Exception):
    """The root of all errors of this SDK.

    `code` is the name of the gRPC status code (`"NOT_FOUND"`), `reason` the name in the contract's
    `ErrorReason` (`"RUN_NOT_FOUND"`, empty where the server gave none), `metadata` what the server
    added to it, `violations` the faulty fields, `retry_after` how long to wait before trying again.
    """

    code: str = "UNKNOWN"

    def __init__(
        self,
        message: str = "",
        *,
        reason: str = "",
        code: str | None = None,
        metadata: Mapping[str, str] | None = None,
        violations: tuple[FieldViolation, ...] = (),
        retry_after: timedelta | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason
        self.metadata: Mapping[str, str] = dict(metadata or {})
        self.violations = violations
        self.retry_after = retry_after
        if code is not None:
            self.code = code

    def __str__(self) -> str:
        lines = [f"{self.reason or self.code}: {self.message}" if self.message else self.reason or self.code]
        lines += [f"  {violation.field}: {violation.description}" for violation in self.violations]
        return "\n".join(lines)


class InvalidArgument(EntracteError):
    """The request is wrong."""

    code = "INVALID_ARGUMENT"


class RequestInvalid(InvalidArgument):
    """A field is missing or wrong; see `violations`."""


class JsonInvalid(InvalidArgument):
    """A JSON value is refused: not JSON, too large or too deep."""


class SchemaInvalid(InvalidArgument):
    """A JSON Schema is not one, or refers to something remote."""


class ResumeDataInvalid(InvalidArgument):
    """The answer does not fit the call's resume schema; the call still waits."""


class EditedArgsInvalid(InvalidArgument):
    """The edited arguments do not fit the tool's schema; the call still waits."""


class RequestIdReused(InvalidArgument):
    """The `request_id` was used with another request."""


class PageTokenInvalid(InvalidArgument):
    """The page token is not one of this list."""


class NotFound(EntracteError):
    """There is no such thing, or it belongs to another tenant."""

    code = "NOT_FOUND"


class AgentNotFound(NotFound):
    """No such agent. Metadata: `agent_id`."""


class AgentVersionNotFound(NotFound):
    """The agent has no such version. Metadata: `agent_id`, `version_id`."""


class RunNotFound(NotFound):
    """No such run. Metadata: `run_id`."""


class PendingCallNotFound(NotFound):
    """No such pending call. Metadata: what was given."""


class ThreadNotFound(NotFound):
    """No such thread. Metadata: `thread_id`."""


class WorkNotFound(NotFound):
    """There is no such work, or it is another principal's. Metadata: `work_id`."""


class AlreadyExists(EntracteError):
    """There is one already."""

    code = "ALREADY_EXISTS"


class RunAlreadyExists(AlreadyExists):
    """The run id is taken. Metadata: `run_id`."""


class AgentDefinedInCode(AlreadyExists):
    """An agent of this id is written in Python. Metadata: `agent_id`."""


class ThreadExists(AlreadyExists):
    """The thread id is taken. Metadata: `thread_id`."""


class WorkerToolExists(AlreadyExists):
    """Another definition has the tool's name and version, or the toolset is one of the server's. Metadata:
    `tool`, `version`."""


class FailedPrecondition(EntracteError):
    """The request does not fit the state of things."""

    code = "FAILED_PRECONDITION"


class AgentNotPublished(FailedPrecondition):
    """The agent has no version of the status that the run was to use. Metadata: `agent_id`, `status`."""


class AgentVersionArchived(FailedPrecondition):
    """The version was archived: no new run can use it. Metadata: `agent_id`, `version_id`."""


class AgentVersionUnusable(FailedPrecondition):
    """The version names something that this server does not have. Metadata: `agent_id`, `version_id`."""


class PendingCallAlreadyDecided(FailedPrecondition):
    """The call was decided before. Metadata: `pending_call_id`, `decision_id`, `verb`, `principal`,
    `decide_time`."""


class PendingCallAmbiguous(FailedPrecondition):
    """More than one call could be meant; nothing was decided. Metadata: `run_id`,
    `pending_call_ids` (comma separated)."""


class PendingCallExpired(FailedPrecondition):
    """The call expired. Metadata: `pending_call_id`, `expire_time`."""


class PendingCallClaimed(FailedPrecondition):
    """Another principal has claimed the call. Metadata: `pending_call_id`, `principal`,
    `expire_time`."""


class VerbMismatch(FailedPrecondition):
    """The verb does not fit the kind of call. Metadata: `pending_call_id`, `kind`, `verbs` (those
    that fit, comma separated)."""


class ArgsDigestMismatch(FailedPrecondition):
    """The arguments are not those that were shown. Metadata: `pending_call_id`."""


class RunFinished(FailedPrecondition):
    """The run has ended. Metadata: `run_id`, `state`."""


class RunNotFinished(FailedPrecondition):
    """The run still executes or waits. Metadata: `run_id`, `state`."""


class AgentUnavailable(FailedPrecondition):
    """The agent is not registered on this server; the run stays parked. Metadata: `run_id`,
    `agent_id`."""


class ToolUnavailable(FailedPrecondition):
    """The tool is not registered on this server; the run stays parked. Metadata: `run_id`,
    `agent_id`, `tool_name`."""


class RunOfSubAgent(FailedPrecondition):
    """The run is a sub-agent's: it is cancelled and deleted with its root. Metadata: `run_id`,
    `root_run_id`."""


class ToolsetUnavailable(FailedPrecondition):
    """The run was to have a toolset whose server does not list its tools. Metadata: `toolset`."""


class ThreadParked(FailedPrecondition):
    """The run that has the thread is parked. Metadata: `thread_id`, `run_id`, `pending_call_ids` (comma
    separated)."""


class ThreadOfOtherResource(FailedPrecondition):
    """The thread belongs to another resource. Metadata: `thread_id`."""


class WorkerToolUnknown(FailedPrecondition):
    """The agent has a tool that no worker has registered yet; no run was started. Metadata: `tool`,
    `version`."""


class WorkReassigned(FailedPrecondition):
    """The work was given out anew since then. Metadata: `work_id`."""


class WorkCompleted(FailedPrecondition):
    """Another outcome was handed in before. Metadata: `work_id`."""


class WorkCancelled(FailedPrecondition):
    """Nobody wants the work any more. Metadata: `work_id`."""


class OutOfRange(EntracteError):
    """A position or size is beyond what there is."""

    code = "OUT_OF_RANGE"


class SequenceTrimmed(OutOfRange):
    """The chunks after that position are no longer stored. Metadata: `run_id`, `first_sequence`."""


class SequenceAhead(OutOfRange):
    """The position lies beyond the run's last chunk. Metadata: `run_id`, `last_sequence`."""


class ResultTooLarge(OutOfRange):
    """The result is larger than a message may be; follow the run's chunks instead. Metadata:
    `run_id`, `rpc`, `bytes`."""


class Unauthenticated(EntracteError):
    """No valid credential was sent."""

    code = "UNAUTHENTICATED"


class PermissionDenied(EntracteError):
    """The principal may not do this."""

    code = "PERMISSION_DENIED"


class RoleRequired(PermissionDenied):
    """The principal lacks a role. Metadata: `role`."""


class ResourceExhausted(EntracteError):
    """There is too much of something."""

    code = "RESOURCE_EXHAUSTED"


class TooManyStreams(ResourceExhausted):
    """The principal has too many streams open. Metadata: `limit`."""


class TooManyRuns(ResourceExhausted):
    """The server executes as many runs as it may. Metadata: `limit`."""


class ThreadQueueFull(ResourceExhausted):
    """As many runs wait for the thread as may. Metadata: `thread_id`, `limit`."""


class TooManyWorkers(ResourceExhausted):
    """The tenant has as many sessions of workers, or versions of their tools, as it may. Metadata: `limit`,
    `scope`."""


class WorkOutputFull(ResourceExhausted):
    """What the tool wrote is not written to its run yet. Metadata: `work_id`."""


class Unavailable(EntracteError):
    """The server cannot answer now. The SDK has tried again before it raises this."""

    code = "UNAVAILABLE"


class ReaderTooSlow(Unavailable):
    """The stream was not read fast enough. Metadata: `run_id`."""


class ServerDraining(Unavailable):
    """The server is stopping."""


class StoreUnavailable(Unavailable):
    """The server's database does not answer."""


class ServerUnreachable(Unavailable):
    """No server answered at the address, or the connection broke."""


class Aborted(EntracteError):
    """Something else got in the way."""

    code = "ABORTED"


class RunLeaseLost(Aborted):
    """The run is owned by a process that cannot be reached."""


class PublishedVersionChanged(Aborted):
    """Another version is published than the one that was to be replaced. Metadata: `agent_id`,
    `published_version_id`."""


class ThreadBusy(Aborted):
    """Another run has the thread, or others wait for it. Metadata: `thread_id`, `run_id`, `state`."""


class WorkingMemoryChanged(Aborted):
    """The working memory has another version than the one that was to be changed: read it again.
    Metadata: `version`."""


class WorkerSessionReplaced(Aborted):
    """A newer stream of the same session took this one's place. Metadata: `session_id`."""


class Unimplemented(EntracteError):
    """This server does not support that."""

    code = "UNIMPLEMENTED"


class OptionUnsupported(Unimplemented):
    """An option is not supported by this server. Metadata: `field`."""


class DeadlineExceeded(EntracteError):
    """The `timeout` passed. It bounds the wait, not the run, which goes on."""

    code = "DEADLINE_EXCEEDED"


class WaitTooLong(DeadlineExceeded):
    """The server's own limit on the wait passed; the run goes on, and the same call joins it."""


class Internal(EntracteError):
    """A fault of the server; its log has the details. Metadata: `request_id`."""

    code = "INTERNAL"


class StreamError(EntracteError):
    """The stream is not what the contract says."""

    code = "DATA_LOSS"


class SequenceGap(StreamError):
    """A chunk is missing. Metadata: `run_id`, `expected`, `sequence` (the one that came)."""


class UnknownChunk(StreamError):
    """A chunk came that this SDK does not know and that must not be skipped: a newer SDK is needed.
    Metadata: `run_id`, `sequence`."""


class StreamBroken(StreamError):
    """The stream ended before its `finish` chunk, over and over. Metadata: `run_id`, `sequence`
    (the last that came)."""
