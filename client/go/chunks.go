package entracte

import "time"

// Chunk is one event of a run: a pointer to one of the types that end in Chunk. A type switch tells which:
//
//	switch chunk := chunk.(type) {
//	case *entracte.TextDeltaChunk:
//		fmt.Print(chunk.Text)
//	case *entracte.ToolCallChunk:
//		fmt.Println(chunk.ToolName, chunk.Args)
//	}
type Chunk interface {
	// Header is what every chunk has.
	Header() *ChunkHeader
}

// ChunkType is the name of a chunk's type, as the contract has it.
type ChunkType string

// The types of chunks.
const (
	TypeStart                       ChunkType = "start"
	TypeStepStart                   ChunkType = "step-start"
	TypeTextStart                   ChunkType = "text-start"
	TypeTextDelta                   ChunkType = "text-delta"
	TypeTextEnd                     ChunkType = "text-end"
	TypeReasoningStart              ChunkType = "reasoning-start"
	TypeReasoningDelta              ChunkType = "reasoning-delta"
	TypeReasoningEnd                ChunkType = "reasoning-end"
	TypeReasoningSignature          ChunkType = "reasoning-signature"
	TypeRedactedReasoning           ChunkType = "redacted-reasoning"
	TypeToolCallInputStreamingStart ChunkType = "tool-call-input-streaming-start"
	TypeToolCallDelta               ChunkType = "tool-call-delta"
	TypeToolCallInputStreamingEnd   ChunkType = "tool-call-input-streaming-end"
	TypeToolCall                    ChunkType = "tool-call"
	TypeToolResult                  ChunkType = "tool-result"
	TypeToolError                   ChunkType = "tool-error"
	TypeToolOutput                  ChunkType = "tool-output"
	TypeToolOutputDenied            ChunkType = "tool-output-denied"
	TypeToolCallApproval            ChunkType = "tool-call-approval"
	TypeToolCallSuspended           ChunkType = "tool-call-suspended"
	TypeToolCallResolved            ChunkType = "tool-call-resolved"
	TypeSource                      ChunkType = "source"
	TypeFile                        ChunkType = "file"
	TypeObject                      ChunkType = "object"
	TypeObjectResult                ChunkType = "object-result"
	TypeIsTaskComplete              ChunkType = "is-task-complete"
	TypeTripwire                    ChunkType = "tripwire"
	TypeStepFinish                  ChunkType = "step-finish"
	TypeFinish                      ChunkType = "finish"
	TypeError                       ChunkType = "error"
	TypeAbort                       ChunkType = "abort"
	TypeRaw                         ChunkType = "raw"
	// TypeCustom is a tool's own event, `data-NAME` in the reference; [CustomChunk.Name] has the name.
	TypeCustom ChunkType = "custom"
)

// PathElement is one delegation on the way to a sub-agent.
type PathElement struct {
	AgentID    string `json:"agent_id"`
	ToolCallID string `json:"tool_call_id"`
}

// ChunkHeader is what every chunk has.
type ChunkHeader struct {
	Type ChunkType `json:"type"`
	// RunID is always the root run of a tree of agents.
	RunID string `json:"run_id"`
	// Sequence counts from 1 without gaps, over all suspensions.
	Sequence uint64    `json:"sequence"`
	EmitTime time.Time `json:"emit_time,omitzero"`
	// Source is who made it.
	Source ChunkSource `json:"source"`
	// Step counts from 1; 0 before the first step.
	Step int `json:"step"`
	// Attempt is the attempt of the step, from 1.
	Attempt int `json:"attempt"`
	// AgentPath is empty for the run's own agent.
	AgentPath []PathElement `json:"agent_path"`
	// Ignorable tells that a client that does not know the chunk's type may skip it.
	Ignorable bool `json:"ignorable"`
}

// Header is what every chunk has.
func (h *ChunkHeader) Header() *ChunkHeader { return h }

// StartChunk: the run began. First chunk of a run, never repeated on a resume.
type StartChunk struct {
	ChunkHeader
	AgentID   string `json:"agent_id"`
	MessageID string `json:"message_id"`
}

// StepStartChunk: a model call begins. With a higher Attempt, all earlier chunks of the step are void.
type StepStartChunk struct {
	ChunkHeader
	MessageID string `json:"message_id"`
	// Model is the model that is asked, provider/model.
	Model    string   `json:"model"`
	Warnings []string `json:"warnings"`
}

// TextStartChunk: a text begins.
type TextStartChunk struct {
	ChunkHeader
	ID               string `json:"id"`
	ProviderMetadata JSON   `json:"provider_metadata"`
}

// TextDeltaChunk: a piece of a text.
type TextDeltaChunk struct {
	ChunkHeader
	ID   string `json:"id"`
	Text string `json:"text"`
}

// TextEndChunk: a text is complete.
type TextEndChunk struct {
	ChunkHeader
	ID               string `json:"id"`
	ProviderMetadata JSON   `json:"provider_metadata"`
}

// ReasoningStartChunk: thinking begins.
type ReasoningStartChunk struct {
	ChunkHeader
	ID               string `json:"id"`
	ProviderMetadata JSON   `json:"provider_metadata"`
}

// ReasoningDeltaChunk: a piece of thinking.
type ReasoningDeltaChunk struct {
	ChunkHeader
	ID   string `json:"id"`
	Text string `json:"text"`
}

// ReasoningEndChunk: thinking is complete.
type ReasoningEndChunk struct {
	ChunkHeader
	ID               string `json:"id"`
	ProviderMetadata JSON   `json:"provider_metadata"`
}

// ReasoningSignatureChunk: the provider's signature over the thinking.
type ReasoningSignatureChunk struct {
	ChunkHeader
	ID        string `json:"id"`
	Signature string `json:"signature"`
}

// RedactedReasoningChunk: thinking that the provider encrypted.
type RedactedReasoningChunk struct {
	ChunkHeader
	ID   string `json:"id"`
	Data string `json:"data"`
}

// SourceChunk: something the model cites.
type SourceChunk struct {
	ChunkHeader
	ID               string `json:"id"`
	URL              string `json:"url"`
	Title            string `json:"title"`
	ProviderMetadata JSON   `json:"provider_metadata"`
}

// FileChunk: a file the model made, as its Data, or its URL when the provider gave only that.
type FileChunk struct {
	ChunkHeader
	MediaType string `json:"media_type"`
	Data      []byte `json:"data"`
	URL       string `json:"url"`
}

// ObjectChunk: a partial structured output, not validated. It replaces the one before it.
type ObjectChunk struct {
	ChunkHeader
	Object JSON `json:"object"`
	// StructuringModel is the second model that makes it; empty where the agent's own model does.
	StructuringModel string `json:"structuring_model"`
}

// ObjectResultChunk: the validated structured output.
type ObjectResultChunk struct {
	ChunkHeader
	Object           JSON   `json:"object"`
	StructuringModel string `json:"structuring_model"`
	IsFallback       bool   `json:"is_fallback"`
}

// CheckResult is one completion check.
type CheckResult struct {
	Scorer string `json:"scorer"`
	// Score is nil where it could not be made.
	Score  *float64 `json:"score"`
	Passed bool     `json:"passed"`
	Reason string   `json:"reason"`
}

// IsTaskCompleteChunk: the outcome of a completion check.
type IsTaskCompleteChunk struct {
	ChunkHeader
	Iteration           int           `json:"iteration"`
	Passed              bool          `json:"passed"`
	Results             []CheckResult `json:"results"`
	TimedOut            bool          `json:"timed_out"`
	Reason              string        `json:"reason"`
	MaxIterationReached bool          `json:"max_iteration_reached"`
	SuppressFeedback    bool          `json:"suppress_feedback"`
	// EndsRun tells that the run ends with the step, whatever the outcome.
	EndsRun bool `json:"ends_run"`
}

// TripwireChunk: a processor stopped the run or a step.
type TripwireChunk struct {
	ChunkHeader
	Tripwire Tripwire `json:"tripwire"`
}

// StepFinishChunk: a step ended. Usage is the step's, TotalUsage the run's so far.
type StepFinishChunk struct {
	ChunkHeader
	MessageID     string       `json:"message_id"`
	Reason        FinishReason `json:"reason"`
	IsContinued   bool         `json:"is_continued"`
	Usage         Usage        `json:"usage"`
	TotalUsage    Usage        `json:"total_usage"`
	RawReason     string       `json:"raw_reason"`
	ResponseID    string       `json:"response_id"`
	ResponseModel string       `json:"response_model"`
	Warnings      []string     `json:"warnings"`
}

// OpenCall is one waiting call of a parked run, in short. Each was announced in full by its own chunk.
type OpenCall struct {
	PendingCallID string          `json:"pending_call_id"`
	ToolCallID    string          `json:"tool_call_id"`
	ToolName      string          `json:"tool_name"`
	Kind          PendingCallKind `json:"kind"`
	AgentPath     []PathElement   `json:"agent_path"`
}

// FinishChunk: the run parked (Reason is "suspended") or ended. The last chunk before a stream ends.
type FinishChunk struct {
	ChunkHeader
	Reason    FinishReason `json:"reason"`
	StopCause StopCause    `json:"stop_cause"`
	Usage     Usage        `json:"usage"`
	OpenCalls []OpenCall   `json:"open_calls"`
}

// ErrorChunk: the run failed; a FinishChunk follows.
type ErrorChunk struct {
	ChunkHeader
	Failure RunError `json:"error"`
}

// AbortChunk: the run was cancelled; a FinishChunk follows.
type AbortChunk struct {
	ChunkHeader
	Reason string `json:"reason"`
}

// RawChunk: what the provider sent, with [WithRawChunks].
type RawChunk struct {
	ChunkHeader
	Value JSON `json:"value"`
}

// CustomChunk: a tool's own event, of the type data-NAME in the reference. Events with the same ID replace
// one another in a display; a Transient one need not be kept.
type CustomChunk struct {
	ChunkHeader
	Name      string `json:"name"`
	Data      JSON   `json:"data"`
	ID        string `json:"id"`
	Transient bool   `json:"transient"`
}
