package entracte

import (
	"fmt"
	"sort"
	"strings"
)

// The enumerations of the contract are strings here, named as in the chunks. A value that this version does
// not know reads as "unknown", one that is not set as "".

// FinishReason tells how a step or a run ended.
type FinishReason string

// The finish reasons.
const (
	FinishReasonStop          FinishReason = "stop"
	FinishReasonToolCalls     FinishReason = "tool-calls"
	FinishReasonSuspended     FinishReason = "suspended"
	FinishReasonError         FinishReason = "error"
	FinishReasonLength        FinishReason = "length"
	FinishReasonContentFilter FinishReason = "content-filter"
	FinishReasonAborted       FinishReason = "aborted"
	FinishReasonTripwire      FinishReason = "tripwire"
	FinishReasonOther         FinishReason = "other"
)

// StopCause tells what ended a run or made it pause.
type StopCause string

// The stop causes.
const (
	StopCauseModelFinished    StopCause = "model-finished"
	StopCauseMaxSteps         StopCause = "max-steps"
	StopCauseStopWhen         StopCause = "stop-when"
	StopCauseHook             StopCause = "hook"
	StopCauseBail             StopCause = "bail"
	StopCauseTaskIncomplete   StopCause = "task-incomplete"
	StopCauseCheckUnavailable StopCause = "check-unavailable"
	StopCauseClientTool       StopCause = "client-tool"
	StopCauseSuspended        StopCause = "suspended"
	StopCauseTimeout          StopCause = "timeout"
	StopCauseBudget           StopCause = "budget"
	StopCauseCancelled        StopCause = "cancelled"
	StopCauseTripwire         StopCause = "tripwire"
	StopCauseError            StopCause = "error"
)

// PendingCallKind tells what a call waits for, and so which verbs fit.
type PendingCallKind string

// The kinds of pending calls.
const (
	// KindApproval waits for Approve or Decline.
	KindApproval PendingCallKind = "approval"
	// KindSuspension waits for Resume or Decline.
	KindSuspension PendingCallKind = "suspension"
	// KindClientTool waits for SubmitToolResult or Decline.
	KindClientTool PendingCallKind = "client-tool"
	// KindRecovery waits for a word about what happened while the server stopped: SubmitToolResult, Approve
	// to run it again, or Decline.
	KindRecovery PendingCallKind = "recovery"
)

// PendingCallState tells whether a call still waits.
type PendingCallState string

// The states of pending calls.
const (
	PendingCallOpen    PendingCallState = "open"
	PendingCallDecided PendingCallState = "decided"
)

// ExpiryAction tells what happens to a pending call that nobody decides in time.
type ExpiryAction string

// The expiry actions.
const (
	ExpiryDecline ExpiryAction = "decline"
	ExpiryFail    ExpiryAction = "fail"
	ExpiryAnswer  ExpiryAction = "answer"
)

// DecisionVerb tells how a waiting call was decided.
type DecisionVerb string

// The verbs.
const (
	VerbApprove DecisionVerb = "approve"
	VerbDecline DecisionVerb = "decline"
	VerbResume  DecisionVerb = "resume"
	VerbSubmit  DecisionVerb = "submit"
	VerbCancel  DecisionVerb = "cancel"
	VerbExpire  DecisionVerb = "expire"
)

// RunState tells where a run stands.
type RunState string

// The states of runs.
const (
	RunQueued    RunState = "queued"
	RunRunning   RunState = "running"
	RunSuspended RunState = "suspended"
	RunSucceeded RunState = "succeeded"
	RunFailed    RunState = "failed"
	RunCancelled RunState = "cancelled"
)

// FollowUpKind tells what is done after the end of a run.
type FollowUpKind string

// The kinds of follow-ups.
const (
	FollowUpScore FollowUpKind = "score"
	FollowUpTitle FollowUpKind = "title"
)

// FollowUpState tells where a follow-up stands.
type FollowUpState string

// The states of follow-ups.
const (
	FollowUpWaiting   FollowUpState = "waiting"
	FollowUpSucceeded FollowUpState = "succeeded"
	FollowUpFailed    FollowUpState = "failed"
	FollowUpSkipped   FollowUpState = "skipped"
)

// ChunkSource tells who made a chunk.
type ChunkSource string

// The sources of chunks.
const (
	// SourceAgent is the agent: its model and the loop around it.
	SourceAgent ChunkSource = "agent"
	// SourceUser is a tool that writes while it runs.
	SourceUser ChunkSource = "user"
	// SourceSystem is the server.
	SourceSystem ChunkSource = "system"
)

// Role tells who speaks in a message.
type Role string

// The roles.
const (
	RoleSystem    Role = "system"
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleTool      Role = "tool"
)

// ToolInvocationState tells what came of a tool call in a thread.
type ToolInvocationState string

// The states of tool invocations.
const (
	InvocationPending   ToolInvocationState = "pending"
	InvocationResult    ToolInvocationState = "result"
	InvocationError     ToolInvocationState = "error"
	InvocationDenied    ToolInvocationState = "denied"
	InvocationCancelled ToolInvocationState = "cancelled"
)

type protoEnum interface {
	~int32
	String() string
}

// nameOf is the name of a value of the contract; prefix is what all its names begin with.
func nameOf[Name ~string, Value protoEnum](value Value, prefix string) Name {
	if value == 0 {
		return ""
	}
	name, known := strings.CutPrefix(value.String(), prefix) // a number that has no name is written in digits
	if !known {
		return "unknown"
	}
	return Name(strings.ReplaceAll(strings.ToLower(name), "_", "-"))
}

// numberOf is the value of the contract with a name; the zero value for an empty one. It fails with the names
// that there are.
func numberOf[Value ~int32, Name ~string](values map[string]int32, prefix string, name Name, what string) (Value, error) {
	if name == "" {
		return 0, nil
	}
	if number := values[prefix+strings.ToUpper(strings.ReplaceAll(string(name), "-", "_"))]; number != 0 {
		return Value(number), nil
	}
	var known []string
	for key, number := range values {
		if number != 0 {
			known = append(known, strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(key, prefix)), "_", "-"))
		}
	}
	sort.Strings(known)
	return 0, fmt.Errorf("%s is one of %s, not %q", what, strings.Join(known, ", "), string(name))
}
