package entracte

// One type for each reason of the contract (ErrorReason), within the class of its status code. What errors.As
// finds, errors.As finds the class of, too.

// RequestInvalid: a field is missing or wrong; see Violations.
type RequestInvalid struct{ InvalidArgument }

// Unwrap gives the class.
func (e RequestInvalid) Unwrap() error { return e.InvalidArgument }

// JSONInvalid: a JSON value is refused: not JSON, too large or too deep.
type JSONInvalid struct{ InvalidArgument }

// Unwrap gives the class.
func (e JSONInvalid) Unwrap() error { return e.InvalidArgument }

// SchemaInvalid: a JSON Schema is not one, or refers to something remote.
type SchemaInvalid struct{ InvalidArgument }

// Unwrap gives the class.
func (e SchemaInvalid) Unwrap() error { return e.InvalidArgument }

// ResumeDataInvalid: the answer does not fit the call's resume schema; the call still waits.
type ResumeDataInvalid struct{ InvalidArgument }

// Unwrap gives the class.
func (e ResumeDataInvalid) Unwrap() error { return e.InvalidArgument }

// EditedArgsInvalid: the edited arguments do not fit the tool's schema; the call still waits.
type EditedArgsInvalid struct{ InvalidArgument }

// Unwrap gives the class.
func (e EditedArgsInvalid) Unwrap() error { return e.InvalidArgument }

// RequestIDReused: the request id was used with another request. Metadata: request_id.
type RequestIDReused struct{ InvalidArgument }

// Unwrap gives the class.
func (e RequestIDReused) Unwrap() error { return e.InvalidArgument }

// PageTokenInvalid: the page token is not one of this list.
type PageTokenInvalid struct{ InvalidArgument }

// Unwrap gives the class.
func (e PageTokenInvalid) Unwrap() error { return e.InvalidArgument }

// AgentNotFound: no such agent. Metadata: agent_id.
type AgentNotFound struct{ NotFound }

// Unwrap gives the class.
func (e AgentNotFound) Unwrap() error { return e.NotFound }

// AgentVersionNotFound: the agent has no such version. Metadata: agent_id, version_id.
type AgentVersionNotFound struct{ NotFound }

// Unwrap gives the class.
func (e AgentVersionNotFound) Unwrap() error { return e.NotFound }

// RunNotFound: no such run. Metadata: run_id.
type RunNotFound struct{ NotFound }

// Unwrap gives the class.
func (e RunNotFound) Unwrap() error { return e.NotFound }

// PendingCallNotFound: no such pending call. Metadata: what was given.
type PendingCallNotFound struct{ NotFound }

// Unwrap gives the class.
func (e PendingCallNotFound) Unwrap() error { return e.NotFound }

// ThreadNotFound: no such thread. Metadata: thread_id.
type ThreadNotFound struct{ NotFound }

// Unwrap gives the class.
func (e ThreadNotFound) Unwrap() error { return e.NotFound }

// RunAlreadyExists: the run id is taken. Metadata: run_id.
type RunAlreadyExists struct{ AlreadyExists }

// Unwrap gives the class.
func (e RunAlreadyExists) Unwrap() error { return e.AlreadyExists }

// AgentDefinedInCode: an agent of this id is written in Python. Metadata: agent_id.
type AgentDefinedInCode struct{ AlreadyExists }

// Unwrap gives the class.
func (e AgentDefinedInCode) Unwrap() error { return e.AlreadyExists }

// ThreadExists: the thread id is taken. Metadata: thread_id.
type ThreadExists struct{ AlreadyExists }

// Unwrap gives the class.
func (e ThreadExists) Unwrap() error { return e.AlreadyExists }

// AgentNotPublished: the agent has no version of the status that the run was to use. Metadata: agent_id,
// status.
type AgentNotPublished struct{ FailedPrecondition }

// Unwrap gives the class.
func (e AgentNotPublished) Unwrap() error { return e.FailedPrecondition }

// AgentVersionArchived: the version was archived: no new run can use it. Metadata: agent_id, version_id.
type AgentVersionArchived struct{ FailedPrecondition }

// Unwrap gives the class.
func (e AgentVersionArchived) Unwrap() error { return e.FailedPrecondition }

// AgentVersionUnusable: the version names something that this server does not have. Metadata: agent_id,
// version_id.
type AgentVersionUnusable struct{ FailedPrecondition }

// Unwrap gives the class.
func (e AgentVersionUnusable) Unwrap() error { return e.FailedPrecondition }

// PendingCallAlreadyDecided: the call was decided before. Metadata: pending_call_id, decision_id, verb,
// principal, decide_time.
type PendingCallAlreadyDecided struct{ FailedPrecondition }

// Unwrap gives the class.
func (e PendingCallAlreadyDecided) Unwrap() error { return e.FailedPrecondition }

// PendingCallAmbiguous: more than one call could be meant; nothing was decided. Metadata: run_id,
// pending_call_ids (comma separated).
type PendingCallAmbiguous struct{ FailedPrecondition }

// Unwrap gives the class.
func (e PendingCallAmbiguous) Unwrap() error { return e.FailedPrecondition }

// PendingCallExpired: the call expired. Metadata: pending_call_id, expire_time.
type PendingCallExpired struct{ FailedPrecondition }

// Unwrap gives the class.
func (e PendingCallExpired) Unwrap() error { return e.FailedPrecondition }

// PendingCallClaimed: another principal has claimed the call. Metadata: pending_call_id, principal,
// expire_time.
type PendingCallClaimed struct{ FailedPrecondition }

// Unwrap gives the class.
func (e PendingCallClaimed) Unwrap() error { return e.FailedPrecondition }

// VerbMismatch: the verb does not fit the kind of call. Metadata: pending_call_id, kind, verbs (those that
// fit, comma separated).
type VerbMismatch struct{ FailedPrecondition }

// Unwrap gives the class.
func (e VerbMismatch) Unwrap() error { return e.FailedPrecondition }

// ArgsDigestMismatch: the arguments are not those that were shown. Metadata: pending_call_id.
type ArgsDigestMismatch struct{ FailedPrecondition }

// Unwrap gives the class.
func (e ArgsDigestMismatch) Unwrap() error { return e.FailedPrecondition }

// RunFinished: the run has ended. Metadata: run_id, state.
type RunFinished struct{ FailedPrecondition }

// Unwrap gives the class.
func (e RunFinished) Unwrap() error { return e.FailedPrecondition }

// RunNotFinished: the run still executes or waits. Metadata: run_id, state.
type RunNotFinished struct{ FailedPrecondition }

// Unwrap gives the class.
func (e RunNotFinished) Unwrap() error { return e.FailedPrecondition }

// RunOfSubAgent: the run is a sub-agent's: it is cancelled and deleted with its root. Metadata: run_id,
// root_run_id.
type RunOfSubAgent struct{ FailedPrecondition }

// Unwrap gives the class.
func (e RunOfSubAgent) Unwrap() error { return e.FailedPrecondition }

// AgentUnavailable: the agent is not registered on this server; the run stays parked. Metadata: run_id,
// agent_id.
type AgentUnavailable struct{ FailedPrecondition }

// Unwrap gives the class.
func (e AgentUnavailable) Unwrap() error { return e.FailedPrecondition }

// ToolUnavailable: the tool is not registered on this server; the run stays parked. Metadata: run_id,
// agent_id, tool_name.
type ToolUnavailable struct{ FailedPrecondition }

// Unwrap gives the class.
func (e ToolUnavailable) Unwrap() error { return e.FailedPrecondition }

// ToolsetUnavailable: the run was to have a toolset whose server does not list its tools. Metadata: toolset.
type ToolsetUnavailable struct{ FailedPrecondition }

// Unwrap gives the class.
func (e ToolsetUnavailable) Unwrap() error { return e.FailedPrecondition }

// ThreadParked: the run that has the thread is parked: decide its calls first. Metadata: thread_id, run_id,
// pending_call_ids (comma separated).
type ThreadParked struct{ FailedPrecondition }

// Unwrap gives the class.
func (e ThreadParked) Unwrap() error { return e.FailedPrecondition }

// ThreadOfOtherResource: the thread belongs to another resource. Metadata: thread_id.
type ThreadOfOtherResource struct{ FailedPrecondition }

// Unwrap gives the class.
func (e ThreadOfOtherResource) Unwrap() error { return e.FailedPrecondition }

// SequenceTrimmed: the chunks after that position are no longer stored. Metadata: run_id, first_sequence.
type SequenceTrimmed struct{ OutOfRange }

// Unwrap gives the class.
func (e SequenceTrimmed) Unwrap() error { return e.OutOfRange }

// SequenceAhead: the position lies beyond the run's last chunk. Metadata: run_id, last_sequence.
type SequenceAhead struct{ OutOfRange }

// Unwrap gives the class.
func (e SequenceAhead) Unwrap() error { return e.OutOfRange }

// ResultTooLarge: the result is larger than a message may be: follow the run's chunks instead. Metadata:
// run_id, rpc, bytes.
type ResultTooLarge struct{ OutOfRange }

// Unwrap gives the class.
func (e ResultTooLarge) Unwrap() error { return e.OutOfRange }

// RoleRequired: the principal lacks a role. Metadata: role.
type RoleRequired struct{ PermissionDenied }

// Unwrap gives the class.
func (e RoleRequired) Unwrap() error { return e.PermissionDenied }

// TooManyStreams: the principal has too many streams open. Metadata: limit.
type TooManyStreams struct{ ResourceExhausted }

// Unwrap gives the class.
func (e TooManyStreams) Unwrap() error { return e.ResourceExhausted }

// TooManyRuns: the server executes as many runs as it may. Metadata: limit, scope.
type TooManyRuns struct{ ResourceExhausted }

// Unwrap gives the class.
func (e TooManyRuns) Unwrap() error { return e.ResourceExhausted }

// ThreadQueueFull: as many runs wait for the thread as may. Metadata: thread_id, limit.
type ThreadQueueFull struct{ ResourceExhausted }

// Unwrap gives the class.
func (e ThreadQueueFull) Unwrap() error { return e.ResourceExhausted }

// ReaderTooSlow: the stream was not read fast enough. Metadata: run_id.
type ReaderTooSlow struct{ Unavailable }

// Unwrap gives the class.
func (e ReaderTooSlow) Unwrap() error { return e.Unavailable }

// ServerDraining: the server is stopping.
type ServerDraining struct{ Unavailable }

// Unwrap gives the class.
func (e ServerDraining) Unwrap() error { return e.Unavailable }

// StoreUnavailable: the server's database does not answer.
type StoreUnavailable struct{ Unavailable }

// Unwrap gives the class.
func (e StoreUnavailable) Unwrap() error { return e.Unavailable }

// ServerUnreachable: no server answered at the address, or the connection broke.
type ServerUnreachable struct{ Unavailable }

// Unwrap gives the class.
func (e ServerUnreachable) Unwrap() error { return e.Unavailable }

// RunLeaseLost: the run is owned by a process that cannot be reached.
type RunLeaseLost struct{ Aborted }

// Unwrap gives the class.
func (e RunLeaseLost) Unwrap() error { return e.Aborted }

// PublishedVersionChanged: another version is published than the one that was to be replaced. Metadata:
// agent_id, published_version_id.
type PublishedVersionChanged struct{ Aborted }

// Unwrap gives the class.
func (e PublishedVersionChanged) Unwrap() error { return e.Aborted }

// ThreadBusy: another run has the thread, or others wait for it. Metadata: thread_id, run_id, state.
type ThreadBusy struct{ Aborted }

// Unwrap gives the class.
func (e ThreadBusy) Unwrap() error { return e.Aborted }

// WorkingMemoryChanged: the working memory has another version than the one that was to be changed: read it
// again. Metadata: version.
type WorkingMemoryChanged struct{ Aborted }

// Unwrap gives the class.
func (e WorkingMemoryChanged) Unwrap() error { return e.Aborted }

// WorkerToolExists: another definition has the worker's tool's name and version, or its toolset is one of the server's. Metadata: tool, version.
type WorkerToolExists struct{ AlreadyExists }

// Unwrap gives the class.
func (e WorkerToolExists) Unwrap() error { return e.AlreadyExists }

// WorkerToolUnknown: the agent has a tool of workers that none has registered yet; no run was started. Metadata: tool, version.
type WorkerToolUnknown struct{ FailedPrecondition }

// Unwrap gives the class.
func (e WorkerToolUnknown) Unwrap() error { return e.FailedPrecondition }

// TooManyWorkers: the tenant has as many sessions of workers, or versions of their tools, as it may. Metadata: limit, scope.
type TooManyWorkers struct{ ResourceExhausted }

// Unwrap gives the class.
func (e TooManyWorkers) Unwrap() error { return e.ResourceExhausted }

// WorkerSessionReplaced: a newer stream of the same session took this one's place. Metadata: session_id.
type WorkerSessionReplaced struct{ Aborted }

// Unwrap gives the class.
func (e WorkerSessionReplaced) Unwrap() error { return e.Aborted }

// WorkNotFound: there is no such work, or it is another principal's. Metadata: work_id.
type WorkNotFound struct{ NotFound }

// Unwrap gives the class.
func (e WorkNotFound) Unwrap() error { return e.NotFound }

// WorkReassigned: the work was given out anew since then. Metadata: work_id.
type WorkReassigned struct{ FailedPrecondition }

// Unwrap gives the class.
func (e WorkReassigned) Unwrap() error { return e.FailedPrecondition }

// WorkCompleted: another outcome was handed in before. Metadata: work_id.
type WorkCompleted struct{ FailedPrecondition }

// Unwrap gives the class.
func (e WorkCompleted) Unwrap() error { return e.FailedPrecondition }

// WorkCancelled: nobody wants the work any more. Metadata: work_id.
type WorkCancelled struct{ FailedPrecondition }

// Unwrap gives the class.
func (e WorkCancelled) Unwrap() error { return e.FailedPrecondition }

// WorkOutputFull: what the tool wrote is not written to its run yet. Metadata: work_id.
type WorkOutputFull struct{ ResourceExhausted }

// Unwrap gives the class.
func (e WorkOutputFull) Unwrap() error { return e.ResourceExhausted }

// OptionUnsupported: an option is not supported by this server. Metadata: field.
type OptionUnsupported struct{ Unimplemented }

// Unwrap gives the class.
func (e OptionUnsupported) Unwrap() error { return e.Unimplemented }

// WaitTooLong: the server's own limit on the wait passed; the run goes on, and the same call joins it.
type WaitTooLong struct{ DeadlineExceeded }

// Unwrap gives the class.
func (e WaitTooLong) Unwrap() error { return e.DeadlineExceeded }

// SequenceGap: a chunk is missing. Metadata: run_id, expected, sequence (the one that came).
type SequenceGap struct{ StreamError }

// Unwrap gives the class.
func (e SequenceGap) Unwrap() error { return e.StreamError }

// UnknownChunk: a chunk came that this version does not know and must not skip: a newer one is needed.
// Metadata: run_id, sequence.
type UnknownChunk struct{ StreamError }

// Unwrap gives the class.
func (e UnknownChunk) Unwrap() error { return e.StreamError }

// StreamBroken: the stream kept ending before its finish chunk. Metadata: run_id, sequence (the last that
// came).
type StreamBroken struct{ StreamError }

// Unwrap gives the class.
func (e StreamBroken) Unwrap() error { return e.StreamError }

// reasons makes the error of a reason. ServerUnreachable and those of StreamError are not the server's.
var reasons = map[string]func(*Error) error{
	"REQUEST_INVALID":              func(e *Error) error { return RequestInvalid{InvalidArgument{e}} },
	"JSON_INVALID":                 func(e *Error) error { return JSONInvalid{InvalidArgument{e}} },
	"SCHEMA_INVALID":               func(e *Error) error { return SchemaInvalid{InvalidArgument{e}} },
	"RESUME_DATA_INVALID":          func(e *Error) error { return ResumeDataInvalid{InvalidArgument{e}} },
	"EDITED_ARGS_INVALID":          func(e *Error) error { return EditedArgsInvalid{InvalidArgument{e}} },
	"REQUEST_ID_REUSED":            func(e *Error) error { return RequestIDReused{InvalidArgument{e}} },
	"PAGE_TOKEN_INVALID":           func(e *Error) error { return PageTokenInvalid{InvalidArgument{e}} },
	"AGENT_NOT_FOUND":              func(e *Error) error { return AgentNotFound{NotFound{e}} },
	"AGENT_VERSION_NOT_FOUND":      func(e *Error) error { return AgentVersionNotFound{NotFound{e}} },
	"RUN_NOT_FOUND":                func(e *Error) error { return RunNotFound{NotFound{e}} },
	"PENDING_CALL_NOT_FOUND":       func(e *Error) error { return PendingCallNotFound{NotFound{e}} },
	"THREAD_NOT_FOUND":             func(e *Error) error { return ThreadNotFound{NotFound{e}} },
	"RUN_ALREADY_EXISTS":           func(e *Error) error { return RunAlreadyExists{AlreadyExists{e}} },
	"AGENT_DEFINED_IN_CODE":        func(e *Error) error { return AgentDefinedInCode{AlreadyExists{e}} },
	"THREAD_EXISTS":                func(e *Error) error { return ThreadExists{AlreadyExists{e}} },
	"AGENT_NOT_PUBLISHED":          func(e *Error) error { return AgentNotPublished{FailedPrecondition{e}} },
	"AGENT_VERSION_ARCHIVED":       func(e *Error) error { return AgentVersionArchived{FailedPrecondition{e}} },
	"AGENT_VERSION_UNUSABLE":       func(e *Error) error { return AgentVersionUnusable{FailedPrecondition{e}} },
	"PENDING_CALL_ALREADY_DECIDED": func(e *Error) error { return PendingCallAlreadyDecided{FailedPrecondition{e}} },
	"PENDING_CALL_AMBIGUOUS":       func(e *Error) error { return PendingCallAmbiguous{FailedPrecondition{e}} },
	"PENDING_CALL_EXPIRED":         func(e *Error) error { return PendingCallExpired{FailedPrecondition{e}} },
	"PENDING_CALL_CLAIMED":         func(e *Error) error { return PendingCallClaimed{FailedPrecondition{e}} },
	"VERB_MISMATCH":                func(e *Error) error { return VerbMismatch{FailedPrecondition{e}} },
	"ARGS_DIGEST_MISMATCH":         func(e *Error) error { return ArgsDigestMismatch{FailedPrecondition{e}} },
	"RUN_FINISHED":                 func(e *Error) error { return RunFinished{FailedPrecondition{e}} },
	"RUN_NOT_FINISHED":             func(e *Error) error { return RunNotFinished{FailedPrecondition{e}} },
	"RUN_OF_SUB_AGENT":             func(e *Error) error { return RunOfSubAgent{FailedPrecondition{e}} },
	"AGENT_UNAVAILABLE":            func(e *Error) error { return AgentUnavailable{FailedPrecondition{e}} },
	"TOOL_UNAVAILABLE":             func(e *Error) error { return ToolUnavailable{FailedPrecondition{e}} },
	"TOOLSET_UNAVAILABLE":          func(e *Error) error { return ToolsetUnavailable{FailedPrecondition{e}} },
	"THREAD_PARKED":                func(e *Error) error { return ThreadParked{FailedPrecondition{e}} },
	"THREAD_OF_OTHER_RESOURCE":     func(e *Error) error { return ThreadOfOtherResource{FailedPrecondition{e}} },
	"SEQUENCE_TRIMMED":             func(e *Error) error { return SequenceTrimmed{OutOfRange{e}} },
	"SEQUENCE_AHEAD":               func(e *Error) error { return SequenceAhead{OutOfRange{e}} },
	"RESULT_TOO_LARGE":             func(e *Error) error { return ResultTooLarge{OutOfRange{e}} },
	"ROLE_REQUIRED":                func(e *Error) error { return RoleRequired{PermissionDenied{e}} },
	"TOO_MANY_STREAMS":             func(e *Error) error { return TooManyStreams{ResourceExhausted{e}} },
	"TOO_MANY_RUNS":                func(e *Error) error { return TooManyRuns{ResourceExhausted{e}} },
	"THREAD_QUEUE_FULL":            func(e *Error) error { return ThreadQueueFull{ResourceExhausted{e}} },
	"READER_TOO_SLOW":              func(e *Error) error { return ReaderTooSlow{Unavailable{e}} },
	"SERVER_DRAINING":              func(e *Error) error { return ServerDraining{Unavailable{e}} },
	"STORE_UNAVAILABLE":            func(e *Error) error { return StoreUnavailable{Unavailable{e}} },
	"RUN_LEASE_LOST":               func(e *Error) error { return RunLeaseLost{Aborted{e}} },
	"PUBLISHED_VERSION_CHANGED":    func(e *Error) error { return PublishedVersionChanged{Aborted{e}} },
	"THREAD_BUSY":                  func(e *Error) error { return ThreadBusy{Aborted{e}} },
	"WORKING_MEMORY_CHANGED":       func(e *Error) error { return WorkingMemoryChanged{Aborted{e}} },
	"WORKER_TOOL_EXISTS":           func(e *Error) error { return WorkerToolExists{AlreadyExists{e}} },
	"WORKER_TOOL_UNKNOWN":          func(e *Error) error { return WorkerToolUnknown{FailedPrecondition{e}} },
	"TOO_MANY_WORKERS":             func(e *Error) error { return TooManyWorkers{ResourceExhausted{e}} },
	"WORKER_SESSION_REPLACED":      func(e *Error) error { return WorkerSessionReplaced{Aborted{e}} },
	"WORK_NOT_FOUND":               func(e *Error) error { return WorkNotFound{NotFound{e}} },
	"WORK_REASSIGNED":              func(e *Error) error { return WorkReassigned{FailedPrecondition{e}} },
	"WORK_COMPLETED":               func(e *Error) error { return WorkCompleted{FailedPrecondition{e}} },
	"WORK_CANCELLED":               func(e *Error) error { return WorkCancelled{FailedPrecondition{e}} },
	"WORK_OUTPUT_FULL":             func(e *Error) error { return WorkOutputFull{ResourceExhausted{e}} },
	"OPTION_UNSUPPORTED":           func(e *Error) error { return OptionUnsupported{Unimplemented{e}} },
	"WAIT_TOO_LONG":                func(e *Error) error { return WaitTooLong{DeadlineExceeded{e}} },
}
