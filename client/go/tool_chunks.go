package entracte

import "time"

// ToolCallInputStreamingStartChunk: the arguments of a tool call begin to arrive.
type ToolCallInputStreamingStartChunk struct {
	ChunkHeader
	ToolCallID string `json:"tool_call_id"`
	ToolName   string `json:"tool_name"`
}

// ToolCallDeltaChunk: a piece of the arguments' text, not JSON by itself.
type ToolCallDeltaChunk struct {
	ChunkHeader
	ToolCallID    string `json:"tool_call_id"`
	ToolName      string `json:"tool_name"`
	ArgsTextDelta string `json:"args_text_delta"`
}

// ToolCallInputStreamingEndChunk: the arguments are complete.
type ToolCallInputStreamingEndChunk struct {
	ChunkHeader
	ToolCallID string `json:"tool_call_id"`
}

// ToolCallChunk: a complete tool call.
type ToolCallChunk struct {
	ChunkHeader
	ToolCallID string `json:"tool_call_id"`
	ToolName   string `json:"tool_name"`
	// Args are the arguments, an object; none where the model sent something else.
	Args JSON `json:"args"`
	// InvalidArgs is what the model sent when that was not a JSON object, nil otherwise. Such a call is not
	// executed.
	InvalidArgs      *string `json:"invalid_args"`
	ProviderExecuted bool    `json:"provider_executed"`
	ProviderMetadata JSON    `json:"provider_metadata"`
}

// ToolResultChunk: a tool returned.
type ToolResultChunk struct {
	ChunkHeader
	ToolCallID       string `json:"tool_call_id"`
	ToolName         string `json:"tool_name"`
	Args             JSON   `json:"args"`
	Result           JSON   `json:"result"`
	ProviderExecuted bool   `json:"provider_executed"`
}

// ToolErrorChunk: a tool call failed; the model is told Message and goes on. Code is the kind of failure, for
// example invalid-args, unknown-tool, exception, timeout, not-executed, invalid-result, recovery, cancelled,
// expired.
type ToolErrorChunk struct {
	ChunkHeader
	ToolCallID string `json:"tool_call_id"`
	ToolName   string `json:"tool_name"`
	Args       JSON   `json:"args"`
	Message    string `json:"message"`
	Code       string `json:"code"`
}

// ToolOutputChunk: a running tool reports.
type ToolOutputChunk struct {
	ChunkHeader
	ToolCallID string `json:"tool_call_id"`
	ToolName   string `json:"tool_name"`
	Output     JSON   `json:"output"`
}

// ToolOutputDeniedChunk: a call was declined; its tool was not entered. Reason is what the model is told.
type ToolOutputDeniedChunk struct {
	ChunkHeader
	ToolCallID string `json:"tool_call_id"`
	ToolName   string `json:"tool_name"`
	Args       JSON   `json:"args"`
	Reason     string `json:"reason"`
	ReasonData JSON   `json:"reason_data"`
}

// ToolCallApprovalChunk: a call waits for approval. [Agent.Approve] and [Agent.Decline] take this chunk, until
// ExpireTime where there is one.
type ToolCallApprovalChunk struct {
	ChunkHeader
	PendingCallID string `json:"pending_call_id"`
	ToolCallID    string `json:"tool_call_id"`
	ToolName      string `json:"tool_name"`
	Args          JSON   `json:"args"`
	ArgsDigest    []byte `json:"args_digest"`
	// ResumeSchema is of what an approval may carry beside edited arguments; nothing where there is none.
	ResumeSchema JSON      `json:"resume_schema"`
	ExpireTime   time.Time `json:"expire_time,omitzero"`
}

// ToolCallSuspendedChunk: a call waits for something other than approval. [Agent.Resume],
// [Agent.SubmitToolResult] and [Agent.Decline] take this chunk, until ExpireTime where there is one.
type ToolCallSuspendedChunk struct {
	ChunkHeader
	PendingCallID string `json:"pending_call_id"`
	ToolCallID    string `json:"tool_call_id"`
	ToolName      string `json:"tool_name"`
	Args          JSON   `json:"args"`
	ArgsDigest    []byte `json:"args_digest"`
	// ResumeSchema is of the answer; any answer will do where there is none.
	ResumeSchema JSON            `json:"resume_schema"`
	ExpireTime   time.Time       `json:"expire_time,omitzero"`
	Kind         PendingCallKind `json:"kind"`
	// SuspendPayload is what the tool asks.
	SuspendPayload JSON `json:"suspend_payload"`
}

// ToolCallResolvedChunk: a waiting call was decided, by whom and how.
type ToolCallResolvedChunk struct {
	ChunkHeader
	PendingCallID string       `json:"pending_call_id"`
	ToolCallID    string       `json:"tool_call_id"`
	ToolName      string       `json:"tool_name"`
	Verb          DecisionVerb `json:"verb"`
	Principal     string       `json:"principal"`
	DecisionID    string       `json:"decision_id"`
	// EditedArgs are the arguments as the reviewer edited them; none where they were not edited.
	EditedArgs JSON `json:"edited_args"`
}
