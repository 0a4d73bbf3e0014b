package entracte

import (
	"time"

	pb "entracte.dev/go/entracte/v1"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Usage is tokens. Input and output include the cached and the reasoning ones.
type Usage struct {
	InputTokens       int64 `json:"input_tokens"`
	OutputTokens      int64 `json:"output_tokens"`
	TotalTokens       int64 `json:"total_tokens"`
	ReasoningTokens   int64 `json:"reasoning_tokens"`
	CachedInputTokens int64 `json:"cached_input_tokens"`
}

// RunError is why a run failed.
type RunError struct {
	// Kind is one of provider_error, cut (the model's stream broke off), stall, content_filter, empty_stream,
	// connection, timeout, tool_limit, expired (nobody decided a call in time), structured_output_invalid (Raw
	// lists the violations), structured_output_truncated, internal.
	Kind    string `json:"kind"`
	Message string `json:"message"`
	// ProviderStatus is the provider's HTTP status, 0 where there was none.
	ProviderStatus int `json:"provider_status"`
	// Retryable tells whether the same request may well succeed later.
	Retryable bool `json:"retryable"`
	// RetryAfter is how long the provider asked to wait, 0 where it did not.
	RetryAfter   time.Duration `json:"retry_after"`
	ProviderCode string        `json:"provider_code"`
	// Raw is what the provider sent.
	Raw JSON `json:"raw"`
}

// Error describes it in a line: a run's error can be returned as an error.
func (e *RunError) Error() string { return "the run failed: " + e.Kind + ": " + e.Message }

// Tripwire is what a processor said when it stopped something.
type Tripwire struct {
	Reason      string `json:"reason"`
	Retry       bool   `json:"retry"`
	ProcessorID string `json:"processor_id"`
	// Metadata is what the processor attached, an object.
	Metadata JSON `json:"metadata"`
}

func usageOf(message *pb.Usage) Usage {
	return Usage{
		InputTokens:       message.GetInputTokens(),
		OutputTokens:      message.GetOutputTokens(),
		TotalTokens:       message.GetTotalTokens(),
		ReasoningTokens:   message.GetReasoningTokens(),
		CachedInputTokens: message.GetCachedInputTokens(),
	}
}

func runErrorOf(message *pb.RunError) *RunError {
	if message == nil {
		return nil
	}
	return &RunError{
		Kind:           message.Kind,
		Message:        message.Message,
		ProviderStatus: int(message.ProviderStatus),
		Retryable:      message.Retryable,
		RetryAfter:     message.RetryAfter.AsDuration(),
		ProviderCode:   message.ProviderCode,
		Raw:            jsonOf(message.Raw),
	}
}

func tripwireOf(message *pb.Tripwire) *Tripwire {
	if message == nil {
		return nil
	}
	return &Tripwire{
		Reason:      message.Reason,
		Retry:       message.Retry,
		ProcessorID: message.ProcessorId,
		Metadata:    jsonOf(message.Metadata),
	}
}

// timeOf is a time of the wire; the zero time where there is none.
func timeOf(message *timestamppb.Timestamp) time.Time {
	if message == nil {
		return time.Time{}
	}
	return message.AsTime()
}

// durationOf is a duration for the wire; none for 0.
func durationOf(given time.Duration) *durationpb.Duration {
	if given == 0 {
		return nil
	}
	return durationpb.New(given)
}

func mapped[From, To any](items []From, convert func(From) To) []To {
	if len(items) == 0 {
		return nil
	}
	converted := make([]To, len(items))
	for i, item := range items {
		converted[i] = convert(item)
	}
	return converted
}
