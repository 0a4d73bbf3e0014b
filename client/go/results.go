package entracte

import "time"

// GenerateResult is what a run has come to: its final result, or what there is so far when it is parked
// (FinishReason "suspended") or was cancelled ("aborted"). [Agent.Generate], [RunStream.Result], a decision and
// [RunsClient.Get] give the same.
//
// A run that failed is a result, too: FinishReason is "error" and Error says why.
type GenerateResult struct {
	RunID string `json:"run_id"`
	// Text is that of all steps, one after the other.
	Text string `json:"text"`
	// Object is the structured output, validated.
	Object      JSON               `json:"object"`
	ToolCalls   []*ToolCallChunk   `json:"tool_calls"`
	ToolResults []*ToolResultChunk `json:"tool_results"`
	// Usage is of the whole run.
	Usage        Usage        `json:"usage"`
	Steps        []StepResult `json:"steps"`
	FinishReason FinishReason `json:"finish_reason"`
	StopCause    StopCause    `json:"stop_cause"`
	// Response is the last answer of the model, Request the last request to it.
	Response         ResponseInfo    `json:"response"`
	Request          RequestInfo     `json:"request"`
	Warnings         []string        `json:"warnings"`
	ProviderMetadata JSON            `json:"provider_metadata"`
	Reasoning        []ReasoningPart `json:"reasoning"`
	ReasoningText    string          `json:"reasoning_text"`
	Sources          []Source        `json:"sources"`
	Files            []File          `json:"files"`
	// SuspendPayload is the first waiting call of a parked run; nil otherwise.
	SuspendPayload *SuspendPayload `json:"suspend_payload"`
	// PendingCalls are all waiting calls of a parked run.
	PendingCalls []*PendingCall `json:"pending_calls"`
	TraceID      string         `json:"trace_id"`
	SpanID       string         `json:"span_id"`
	// Messages are the input and all that came of it, RememberedMessages those loaded from the thread.
	Messages           []Message `json:"messages"`
	RememberedMessages []Message `json:"remembered_messages"`
	// Error is why the run failed; nil otherwise.
	Error *RunError `json:"error"`
	// Tripwire is what a processor said when it stopped the run; nil otherwise.
	Tripwire *Tripwire `json:"tripwire"`
	// ScoringData is what scorers see, with [WithScorerData]; nil otherwise.
	ScoringData *ScoringData `json:"scoring_data"`
	// UsedFallbackValue tells that Object is the fallback value.
	UsedFallbackValue bool `json:"used_fallback_value"`
	// AutoResumeError is why a message did not answer a waiting call, with [WithAutoResume].
	AutoResumeError string `json:"auto_resume_error"`
}

// StepResult is one step of a run.
type StepResult struct {
	Step          int                `json:"step"`
	Text          string             `json:"text"`
	ToolCalls     []*ToolCallChunk   `json:"tool_calls"`
	ToolResults   []*ToolResultChunk `json:"tool_results"`
	FinishReason  FinishReason       `json:"finish_reason"`
	Usage         Usage              `json:"usage"`
	Request       *RequestInfo       `json:"request"`
	Response      *ResponseInfo      `json:"response"`
	ReasoningText string             `json:"reasoning_text"`
	Tripwire      *Tripwire          `json:"tripwire"`
	// IsDraft tells that a completion check failed: the text is not part of the result's.
	IsDraft bool `json:"is_draft"`
}

// RequestInfo is a request to a model: what was sent, with [WithRequestBody].
type RequestInfo struct {
	Body JSON `json:"body"`
}

// ResponseInfo is an answer of a model.
type ResponseInfo struct {
	ID        string            `json:"id"`
	Timestamp time.Time         `json:"timestamp,omitzero"`
	ModelID   string            `json:"model_id"`
	Headers   map[string]string `json:"headers"`
	// Messages are those the run added to the conversation, UIMessages the same with what processors attached.
	Messages   []Message `json:"messages"`
	UIMessages []Message `json:"ui_messages"`
	// RequestLimit and TokenLimit are the provider's limits, nil where it did not tell them.
	RequestLimit *RateLimit `json:"request_limit"`
	TokenLimit   *RateLimit `json:"token_limit"`
}

// RateLimit is a limit of the provider, as it was when an answer began: how much it allows, how much of that is
// left, and how long until all of it is there again. Nil where the provider does not say.
type RateLimit struct {
	Limit     *int64         `json:"limit"`
	Remaining *int64         `json:"remaining"`
	Reset     *time.Duration `json:"reset"`
}

// Source is something the model cited.
type Source struct {
	ID               string `json:"id"`
	URL              string `json:"url"`
	Title            string `json:"title"`
	ProviderMetadata JSON   `json:"provider_metadata"`
}

// File is a file the model made: its Data, or its URL when the provider gave only that.
type File struct {
	MediaType string `json:"media_type"`
	Data      []byte `json:"data"`
	URL       string `json:"url"`
}

// SuspendPayload is the first waiting call of a parked run; [GenerateResult.PendingCalls] has all of them.
type SuspendPayload struct {
	ToolCallID     string `json:"tool_call_id"`
	ToolName       string `json:"tool_name"`
	Args           JSON   `json:"args"`
	SuspendPayload JSON   `json:"suspend_payload"`
	ResumeSchema   JSON   `json:"resume_schema"`
}

// ScoringData is what scorers see of a run.
type ScoringData struct {
	Input  JSON `json:"input"`
	Output JSON `json:"output"`
}

// PendingCall is a tool call that waits. Its id belongs to this round of waiting and is never used again, so
// that a decision can only hit the call that was shown. Kind tells which verbs fit.
type PendingCall struct {
	PendingCallID   string          `json:"pending_call_id"`
	RunID           string          `json:"run_id"`
	ToolCallID      string          `json:"tool_call_id"`
	AgentID         string          `json:"agent_id"`
	AgentPath       []PathElement   `json:"agent_path"`
	Kind            PendingCallKind `json:"kind"`
	ToolName        string          `json:"tool_name"`
	ToolDescription string          `json:"tool_description"`
	// Args are the validated arguments: exactly this text is digested and executed.
	Args       JSON   `json:"args"`
	ArgsDigest []byte `json:"args_digest"`
	// SuspendPayload is what the tool asked.
	SuspendPayload JSON `json:"suspend_payload"`
	// ResumeSchema is what the answer must fit; any answer will do where there is none.
	ResumeSchema JSON      `json:"resume_schema"`
	CreateTime   time.Time `json:"create_time,omitzero"`
	// ExpireTime is the last moment at which it can be decided; zero: it waits for ever. After it the server
	// does what OnExpiry says: decline it, fail the run, or give the DefaultAnswer.
	ExpireTime time.Time        `json:"expire_time,omitzero"`
	State      PendingCallState `json:"state"`
	// Claim is who has claimed it, nil for nobody.
	Claim      *Claim `json:"claim"`
	ThreadID   string `json:"thread_id"`
	ResourceID string `json:"resource_id"`
	// Round is the round of waiting of this call, from 1.
	Round int `json:"round"`
	// Decision is what decided it, nil while it waits.
	Decision      *Decision    `json:"decision"`
	OnExpiry      ExpiryAction `json:"on_expiry"`
	DefaultAnswer JSON         `json:"default_answer"`
}

// Claim is a person's hold on a pending call: until ExpireTime others cannot decide.
type Claim struct {
	Principal  string    `json:"principal"`
	ExpireTime time.Time `json:"expire_time,omitzero"`
}

// Decision is what decided a pending call: how, by whom ("system" for an expiry), when, and on what.
type Decision struct {
	DecisionID    string       `json:"decision_id"`
	PendingCallID string       `json:"pending_call_id"`
	RunID         string       `json:"run_id"`
	ToolCallID    string       `json:"tool_call_id"`
	ToolName      string       `json:"tool_name"`
	Verb          DecisionVerb `json:"verb"`
	Principal     string       `json:"principal"`
	OnBehalfOf    string       `json:"on_behalf_of"`
	DecideTime    time.Time    `json:"decide_time,omitzero"`
	// Args are the arguments that were shown.
	Args JSON `json:"args"`
	// EditedArgs are the arguments as edited by the approver.
	EditedArgs JSON `json:"edited_args"`
	// Data is the answer, or the client's result; an error's text where IsError.
	Data       JSON   `json:"data"`
	IsError    bool   `json:"is_error"`
	Reason     string `json:"reason"`
	ReasonData JSON   `json:"reason_data"`
	Comment    string `json:"comment"`
	RequestID  string `json:"request_id"`
	ArgsDigest []byte `json:"args_digest"`
}

// Run is one execution of an agent, over any number of suspensions.
type Run struct {
	RunID   string   `json:"run_id"`
	AgentID string   `json:"agent_id"`
	State   RunState `json:"state"`
	// LastSequence is where to follow it from with [RunsClient.Watch].
	LastSequence uint64       `json:"last_sequence"`
	Step         int          `json:"step"`
	CreateTime   time.Time    `json:"create_time,omitzero"`
	UpdateTime   time.Time    `json:"update_time,omitzero"`
	FinishTime   time.Time    `json:"finish_time,omitzero"`
	FinishReason FinishReason `json:"finish_reason"`
	StopCause    StopCause    `json:"stop_cause"`
	Usage        Usage        `json:"usage"`
	// Error is why it failed; nil otherwise.
	Error          *RunError      `json:"error"`
	Principal      string         `json:"principal"`
	ThreadID       string         `json:"thread_id"`
	ResourceID     string         `json:"resource_id"`
	RootRunID      string         `json:"root_run_id"`
	ParentRunID    string         `json:"parent_run_id"`
	PendingCalls   []*PendingCall `json:"pending_calls"`
	RequestContext JSON           `json:"request_context"`
	// Result is there in what [RunsClient.Get] reads, not in lists.
	Result *GenerateResult `json:"result"`
	// FollowUps are what is done about it after its end.
	FollowUps []FollowUp `json:"follow_ups"`
}

// FollowUp is something that is done about a run after its end.
//
// A score is the judgement of Scorer: Score from 0 to 1 and Reason when it succeeded; Error when it failed, or
// why the last attempt did while it is waiting. It is skipped where the run was not among the share
// SamplingRatio that is scored. A title is what the run's thread was given; it is skipped where the thread had
// one by then.
type FollowUp struct {
	Kind          FollowUpKind  `json:"kind"`
	Name          string        `json:"name"`
	State         FollowUpState `json:"state"`
	Scorer        string        `json:"scorer"`
	Score         *float64      `json:"score"`
	Reason        string        `json:"reason"`
	Title         *string       `json:"title"`
	Error         string        `json:"error"`
	Attempts      int           `json:"attempts"`
	SamplingRatio *float64      `json:"sampling_ratio"`
	// Usage is what models used for it, Duration how long the last attempt took.
	Usage      Usage         `json:"usage"`
	Duration   time.Duration `json:"duration"`
	CreateTime time.Time     `json:"create_time,omitzero"`
	FinishTime time.Time     `json:"finish_time,omitzero"`
}

// Page is a page of a list. NextPageToken is empty on the last one.
type Page[T any] struct {
	Items         []T
	NextPageToken string
}
