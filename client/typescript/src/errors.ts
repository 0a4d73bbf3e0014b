/**
 * What the SDK throws.
 *
 * Every refusal of the server is an error named after its reason in the contract (`ErrorReason`), below the class of
 * its status code: `RUN_NOT_FOUND` is a {@link RunNotFound}, which is a {@link NotFound}, which is an
 * {@link EntracteError}. A reason or code newer than this SDK throws the closest class above it. A run that failed is
 * not an error: it is a result whose `finishReason` is `"error"`.
 */

/** The name of a gRPC status code. */
export type StatusCode =
  | "CANCELLED"
  | "UNKNOWN"
  | "INVALID_ARGUMENT"
  | "DEADLINE_EXCEEDED"
  | "NOT_FOUND"
  | "ALREADY_EXISTS"
  | "PERMISSION_DENIED"
  | "RESOURCE_EXHAUSTED"
  | "FAILED_PRECONDITION"
  | "ABORTED"
  | "OUT_OF_RANGE"
  | "UNIMPLEMENTED"
  | "INTERNAL"
  | "UNAVAILABLE"
  | "DATA_LOSS"
  | "UNAUTHENTICATED";

/** One fault of a request: the path of the field, and what is wrong with it. */
export interface FieldViolation {
  readonly field: string;
  readonly description: string;
}

/** What an error carries beside its message. */
export interface ErrorDetails {
  readonly reason?: string;
  readonly code?: StatusCode;
  readonly metadata?: Readonly<Record<string, string>>;
  readonly violations?: readonly FieldViolation[];
  readonly retryAfterMs?: number | undefined;
  readonly cause?: unknown;
}

/** The root of all errors of this SDK. */
export class EntracteError extends Error {
  /** The status code of this class of errors. */
  static readonly code: StatusCode = "UNKNOWN";

  /** The name of the gRPC status code, for example `"NOT_FOUND"`. */
  readonly code: StatusCode;
  /** The name in the contract's `ErrorReason`, for example `"RUN_NOT_FOUND"`; empty where the server gave none. */
  readonly reason: string;
  /** What the server added to the reason. */
  readonly metadata: Readonly<Record<string, string>>;
  /** The faulty fields. */
  readonly violations: readonly FieldViolation[];
  /** How many milliseconds the server asks to wait before trying again. */
  readonly retryAfterMs: number | undefined;

  constructor(message = "", details: ErrorDetails = {}) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
    this.name = new.target.name;
    this.code = details.code ?? new.target.code;
    this.reason = details.reason ?? "";
    this.metadata = details.metadata ?? {};
    this.violations = details.violations ?? [];
    this.retryAfterMs = details.retryAfterMs;
  }

  /** Whether the same request may well succeed later. */
  get retryable(): boolean {
    return this.code === "UNAVAILABLE" || this.retryAfterMs !== undefined;
  }

  /** Reason and message on a line, then a line for each faulty field. */
  override toString(): string {
    const title = this.reason || this.code;
    const faults = this.violations.map(({ field, description }) => `\n  ${field}: ${description}`);
    return (this.message ? `${title}: ${this.message}` : title) + faults.join("");
  }
}

/** The request is wrong; `violations` says where. */
export class InvalidArgument extends EntracteError {
  static override readonly code: StatusCode = "INVALID_ARGUMENT";
}

/** A field is missing or wrong; see `violations`. */
export class RequestInvalid extends InvalidArgument {}

/** A JSON value is refused: not JSON, too large or too deep. */
export class JsonInvalid extends InvalidArgument {}

/** A JSON Schema is not one, or refers to something remote. */
export class SchemaInvalid extends InvalidArgument {}

/** The answer does not fit the call's resume schema; the call still waits. */
export class ResumeDataInvalid extends InvalidArgument {}

/** The edited arguments do not fit the tool's schema; the call still waits. */
export class EditedArgsInvalid extends InvalidArgument {}

/** The `requestId` was used with another request. Metadata: `request_id`. */
export class RequestIdReused extends InvalidArgument {}

/** The page token is not one of this list. */
export class PageTokenInvalid extends InvalidArgument {}

/** There is no such thing, or it belongs to another tenant. */
export class NotFound extends EntracteError {
  static override readonly code: StatusCode = "NOT_FOUND";
}

/** No such agent. Metadata: `agent_id`. */
export class AgentNotFound extends NotFound {}

/** The agent has no such version. Metadata: `agent_id`, `version_id`. */
export class AgentVersionNotFound extends NotFound {}

/** No such run. Metadata: `run_id`. */
export class RunNotFound extends NotFound {}

/** No such pending call. Metadata: what was given. */
export class PendingCallNotFound extends NotFound {}

/** No such thread. Metadata: `thread_id`. */
export class ThreadNotFound extends NotFound {}

/** There is no such work, or it is another principal's. Metadata: `work_id`. */
export class WorkNotFound extends NotFound {}

/** There is one already. */
export class AlreadyExists extends EntracteError {
  static override readonly code: StatusCode = "ALREADY_EXISTS";
}

/** The run id is taken. Metadata: `run_id`. */
export class RunAlreadyExists extends AlreadyExists {}

/** An agent of this id is written in Python. Metadata: `agent_id`. */
export class AgentDefinedInCode extends AlreadyExists {}

/** The thread id is taken. Metadata: `thread_id`. */
export class ThreadExists extends AlreadyExists {}

/** Another definition has the worker's tool's name and version, or its toolset is one of the server's. Metadata: `tool`, `version`. */
export class WorkerToolExists extends AlreadyExists {}

/** The request does not fit the state of things; `metadata` says what that is. */
export class FailedPrecondition extends EntracteError {
  static override readonly code: StatusCode = "FAILED_PRECONDITION";
}

/** The agent has no version of the status that the run was to use. Metadata: `agent_id`, `status`. */
export class AgentNotPublished extends FailedPrecondition {}

/** The version was archived: no new run can use it. Metadata: `agent_id`, `version_id`. */
export class AgentVersionArchived extends FailedPrecondition {}

/** The version names something that this server does not have. Metadata: `agent_id`, `version_id`. */
export class AgentVersionUnusable extends FailedPrecondition {}

/** The call was decided before. Metadata: `pending_call_id`, `decision_id`, `verb`, `principal`, `decide_time`. */
export class PendingCallAlreadyDecided extends FailedPrecondition {}

/**
 * More than one call could be meant; nothing was decided. Metadata: `run_id`, `pending_call_ids` (comma
 * separated).
 */
export class PendingCallAmbiguous extends FailedPrecondition {}

/** The call expired. Metadata: `pending_call_id`, `expire_time`. */
export class PendingCallExpired extends FailedPrecondition {}

/** Another principal has claimed the call. Metadata: `pending_call_id`, `principal`, `expire_time`. */
export class PendingCallClaimed extends FailedPrecondition {}

/** The verb does not fit the kind of call. Metadata: `pending_call_id`, `kind`, `verbs` (those that fit). */
export class VerbMismatch extends FailedPrecondition {}

/** The arguments are not those that were shown. Metadata: `pending_call_id`. */
export class ArgsDigestMismatch extends FailedPrecondition {}

/** The run has ended. Metadata: `run_id`, `state`. */
export class RunFinished extends FailedPrecondition {}

/** The run still executes or waits. Metadata: `run_id`, `state`. */
export class RunNotFinished extends FailedPrecondition {}

/** The run is a sub-agent's: it is cancelled and deleted with its root. Metadata: `run_id`, `root_run_id`. */
export class RunOfSubAgent extends FailedPrecondition {}

/** The agent is not registered on this server; the run stays parked. Metadata: `run_id`, `agent_id`. */
export class AgentUnavailable extends FailedPrecondition {}

/** The tool is not registered on this server; the run stays parked. Metadata: `run_id`, `agent_id`, `tool_name`. */
export class ToolUnavailable extends FailedPrecondition {}

/** The run was to have a toolset whose server does not list its tools. Metadata: `toolset`. */
export class ToolsetUnavailable extends FailedPrecondition {}

/** The run that has the thread is parked. Metadata: `thread_id`, `run_id`, `pending_call_ids`. */
export class ThreadParked extends FailedPrecondition {}

/** The thread belongs to another resource. Metadata: `thread_id`. */
export class ThreadOfOtherResource extends FailedPrecondition {}

/** The agent has a tool of workers that none has registered yet; no run was started. Metadata: `tool`, `version`. */
export class WorkerToolUnknown extends FailedPrecondition {}

/** The work was given out anew since then. Metadata: `work_id`. */
export class WorkReassigned extends FailedPrecondition {}

/** Another outcome was handed in before. Metadata: `work_id`. */
export class WorkCompleted extends FailedPrecondition {}

/** Nobody wants the work any more. Metadata: `work_id`. */
export class WorkCancelled extends FailedPrecondition {}

/** A position or size is beyond what there is. */
export class OutOfRange extends EntracteError {
  static override readonly code: StatusCode = "OUT_OF_RANGE";
}

/** The chunks after that position are no longer stored. Metadata: `run_id`, `first_sequence`. */
export class SequenceTrimmed extends OutOfRange {}

/** The position lies beyond the run's last chunk. Metadata: `run_id`, `last_sequence`. */
export class SequenceAhead extends OutOfRange {}

/**
 * The result is larger than a message may be; follow the run's chunks instead. Metadata: `run_id`, `rpc`,
 * `bytes`.
 */
export class ResultTooLarge extends OutOfRange {}

/** No valid credential was sent. */
export class Unauthenticated extends EntracteError {
  static override readonly code: StatusCode = "UNAUTHENTICATED";
}

/** The principal may not do this. */
export class PermissionDenied extends EntracteError {
  static override readonly code: StatusCode = "PERMISSION_DENIED";
}

/** The principal lacks a role. Metadata: `role`. */
export class RoleRequired extends PermissionDenied {}

/** There is too much of something; `retryAfterMs` says when to try again. */
export class ResourceExhausted extends EntracteError {
  static override readonly code: StatusCode = "RESOURCE_EXHAUSTED";
}

/** The principal has too many streams open. Metadata: `limit`. */
export class TooManyStreams extends ResourceExhausted {}

/** The server executes as many runs as it may. Metadata: `limit`, `scope`. */
export class TooManyRuns extends ResourceExhausted {}

/** As many runs wait for the thread as may. Metadata: `thread_id`, `limit`. */
export class ThreadQueueFull extends ResourceExhausted {}

/** The tenant has as many sessions of workers, or versions of their tools, as it may. Metadata: `limit`, `scope`. */
export class TooManyWorkers extends ResourceExhausted {}

/** What the tool wrote is not written to its run yet. Metadata: `work_id`. */
export class WorkOutputFull extends ResourceExhausted {}

/** The server cannot answer now. The SDK has tried again before it throws this. */
export class Unavailable extends EntracteError {
  static override readonly code: StatusCode = "UNAVAILABLE";
}

/** The stream was not read fast enough. Metadata: `run_id`. */
export class ReaderTooSlow extends Unavailable {}

/** The server is stopping. */
export class ServerDraining extends Unavailable {}

/** The server's database does not answer. */
export class StoreUnavailable extends Unavailable {}

/** No server answered at the address, or the connection broke. */
export class ServerUnreachable extends Unavailable {}

/** Something else got in the way. */
export class Aborted extends EntracteError {
  static override readonly code: StatusCode = "ABORTED";
}

/** The run is owned by a process that cannot be reached. */
export class RunLeaseLost extends Aborted {}

/** Another version is published than the one that was to be replaced. Metadata: `agent_id`, `published_version_id`. */
export class PublishedVersionChanged extends Aborted {}

/** Another run has the thread, or others wait for it. Metadata: `thread_id`, `run_id`, `state`. */
export class ThreadBusy extends Aborted {}

/** The working memory has another version than the one that was to be changed. Metadata: `version`. */
export class WorkingMemoryChanged extends Aborted {}

/** A newer stream of the same session took this one's place. Metadata: `session_id`. */
export class WorkerSessionReplaced extends Aborted {}

/** This server does not support that. */
export class Unimplemented extends EntracteError {
  static override readonly code: StatusCode = "UNIMPLEMENTED";
}

/** An option is not supported by this server. Metadata: `field`. */
export class OptionUnsupported extends Unimplemented {}

/** The `timeoutMs` passed. It bounds the wait, not the run, which goes on. */
export class DeadlineExceeded extends EntracteError {
  static override readonly code: StatusCode = "DEADLINE_EXCEEDED";
}

/** The server's own limit on the wait passed; the run goes on, and the same call joins it. */
export class WaitTooLong extends DeadlineExceeded {}

/** A fault of the server; its log has the details. Metadata: `request_id`. */
export class Internal extends EntracteError {
  static override readonly code: StatusCode = "INTERNAL";
}

/** The stream is not what the contract says. */
export class StreamError extends EntracteError {
  static override readonly code: StatusCode = "DATA_LOSS";
}

/** A chunk is missing. Metadata: `run_id`, `expected`, `sequence` (the one that came). */
export class SequenceGap extends StreamError {}

/**
 * A chunk came that this SDK does not know and that must not be skipped: a newer SDK is needed. Metadata:
 * `run_id`, `sequence`.
 */
export class UnknownChunk extends StreamError {}

/**
 * The stream ended before its `finish` chunk, over and over. Metadata: `run_id`, `sequence` (the last that
 * came).
 */
export class StreamBroken extends StreamError {}
