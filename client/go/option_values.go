package entracte

import (
	"errors"
	"maps"
	"slices"
	"time"

	pb "entracte.dev/go/entracte/v1"
	"google.golang.org/protobuf/types/known/durationpb"
)

// StopWhen is a condition that ends a run after a step; exactly one of the fields is given.
type StopWhen struct {
	// StepCount steps were made.
	StepCount int
	// ToolCalled was called in the last step.
	ToolCalled string
	// TotalTokens were used.
	TotalTokens int64
	// CostMicros millionths of the account's currency were spent.
	CostMicros int64
	// TextContains is in the last step's text.
	TextContains string
	// Predicate is the name of one registered on the server, and it holds.
	Predicate string
}

func (s StopWhen) toWire() (*pb.StopCondition, error) {
	switch s {
	case StopWhen{}:
		return nil, errors.New("a condition has one of its fields")
	case StopWhen{StepCount: s.StepCount}:
		return &pb.StopCondition{Condition: &pb.StopCondition_StepCount{StepCount: int32(min(s.StepCount, 1<<31-1))}}, nil
	case StopWhen{ToolCalled: s.ToolCalled}:
		return &pb.StopCondition{Condition: &pb.StopCondition_ToolCalled{ToolCalled: s.ToolCalled}}, nil
	case StopWhen{TotalTokens: s.TotalTokens}:
		return &pb.StopCondition{Condition: &pb.StopCondition_TotalTokens{TotalTokens: s.TotalTokens}}, nil
	case StopWhen{CostMicros: s.CostMicros}:
		return &pb.StopCondition{Condition: &pb.StopCondition_CostMicros{CostMicros: s.CostMicros}}, nil
	case StopWhen{TextContains: s.TextContains}:
		return &pb.StopCondition{Condition: &pb.StopCondition_TextContains{TextContains: s.TextContains}}, nil
	case StopWhen{Predicate: s.Predicate}:
		return &pb.StopCondition{Condition: &pb.StopCondition_Predicate{Predicate: s.Predicate}}, nil
	}
	return nil, errors.New("a condition has exactly one of its fields")
}

// ToolApproval is which calls a person must approve.
type ToolApproval struct {
	// Names are tools, Patterns are over their names: * any characters, ? one, [abc] one of these.
	Names    []string
	Patterns []string
	// Predicates and Toolsets are registered on the server.
	Predicates []string
	Toolsets   []string
	// Expressions are conditions in CEL by a pattern over tools: {"refund": "args.amount_cents > 5000"}.
	Expressions map[string]string
}

func (a ToolApproval) toWire() *pb.ToolApprovalRules {
	rules := &pb.ToolApprovalRules{
		Names: a.Names, Patterns: a.Patterns, Predicates: a.Predicates, Toolsets: a.Toolsets,
	}
	// In one order, so that a repeated request has the same body.
	for _, tool := range slices.Sorted(maps.Keys(a.Expressions)) {
		rules.Expressions = append(rules.Expressions, &pb.ToolApprovalExpression{Tool: tool, Expression: a.Expressions[tool]})
	}
	return rules
}

// StructuredOutput is an answer that fits a JSON Schema of any kind of value.
type StructuredOutput struct {
	// Schema is a JSON Schema: a [JSON] text, a map, or anything else that is one as JSON; [SchemaFor] makes it
	// from a Go type. Required.
	Schema any
	// Model turns the first one's prose into the object: provider/model.
	Model string
	// ErrorStrategy is what to do with an answer that does not fit: strict fails the run, warn gives a warning
	// and no object, fallback gives FallbackValue.
	ErrorStrategy string
	// FallbackValue is the object with the fallback strategy; the JSON text null is a value, too.
	FallbackValue any
	// Instructions are said to the model that makes the object.
	Instructions string
	// PromptInjection is where the model is told the schema: auto (natively where it can be), off, system,
	// inline.
	PromptInjection string
	// ProviderOptions are those of the second model, an object.
	ProviderOptions any
}

func (o StructuredOutput) toWire(g *generation) *pb.StructuredOutput {
	return &pb.StructuredOutput{
		Schema: g.json("structured_output.schema", o.Schema),
		Model:  o.Model,
		ErrorStrategy: enumFor[pb.StructuredOutput_ErrorStrategy](
			g, "structured_output.error_strategy", pb.StructuredOutput_ErrorStrategy_value, "ERROR_STRATEGY_",
			o.ErrorStrategy,
		),
		FallbackValue: g.json("structured_output.fallback_value", o.FallbackValue),
		Instructions:  o.Instructions,
		JsonPromptInjection: enumFor[pb.StructuredOutput_PromptInjection](
			g, "structured_output.json_prompt_injection", pb.StructuredOutput_PromptInjection_value,
			"PROMPT_INJECTION_", o.PromptInjection,
		),
		ProviderOptions: g.json("structured_output.provider_options", o.ProviderOptions),
	}
}

// Processor is a processor registered on the server, with its parameters, an object.
type Processor struct {
	Name       string
	Parameters any
}

// Memory is the conversation a run belongs to. What is nil or empty is left to the agent.
type Memory struct {
	// Thread is the conversation's id. It is created, with ThreadTitle and ThreadMetadata, where it does not exist.
	Thread         string
	ThreadTitle    string
	ThreadMetadata any
	// Resource is whose memory it is, for example a user's id. Required.
	Resource string
	// LastMessages are shown to the model (0: none), of about MaxHistoryTokens tokens at most.
	LastMessages     *int
	MaxHistoryTokens *int
	// SaveMessages says whether new messages are saved; with ReadOnly nothing at all is written.
	SaveMessages *bool
	ReadOnly     *bool
	// SemanticRecall is search in older messages.
	SemanticRecall *SemanticRecall
	// WorkingMemory says whether the model has the working memory that the agent is made with.
	WorkingMemory *bool
	// FilterIncompleteToolCalls says whether calls without a result are left out of the history.
	FilterIncompleteToolCalls *bool
	// GenerateTitle says whether a thread without a title is given one after the reply.
	GenerateTitle *bool
	// OnBusyThread is what happens while another run has the thread: refuse (the default), or queue for
	// QueueTimeout at most.
	OnBusyThread string
	// OnParkedThread is what happens while that run is parked: refuse (the default), cancel it, or queue.
	OnParkedThread string
	QueueTimeout   time.Duration
}

func (m Memory) toWire(g *generation) *pb.MemoryOptions {
	written := &pb.MemoryOptions{
		Resource:                  m.Resource,
		LastMessages:              g.optionalInt32("memory.last_messages", m.LastMessages),
		MaxHistoryTokens:          g.optionalInt32("memory.max_history_tokens", m.MaxHistoryTokens),
		SaveMessages:              m.SaveMessages,
		ReadOnly:                  m.ReadOnly,
		WorkingMemory:             m.WorkingMemory,
		FilterIncompleteToolCalls: m.FilterIncompleteToolCalls,
		GenerateTitle:             m.GenerateTitle,
		OnBusyThread: enumFor[pb.OnBusyThread](
			g, "memory.on_busy_thread", pb.OnBusyThread_value, "ON_BUSY_THREAD_", m.OnBusyThread,
		),
		OnParkedThread: enumFor[pb.OnParkedThread](
			g, "memory.on_parked_thread", pb.OnParkedThread_value, "ON_PARKED_THREAD_", m.OnParkedThread,
		),
		QueueTimeout: durationOf(m.QueueTimeout),
	}
	if m.Thread != "" {
		written.Thread = &pb.ThreadRef{
			Id: m.Thread, Title: m.ThreadTitle, Metadata: g.json("memory.thread.metadata", m.ThreadMetadata),
		}
	}
	if recall := m.SemanticRecall; recall != nil {
		written.SemanticRecall = &pb.SemanticRecall{
			TopK:         g.optionalInt32("memory.semantic_recall.top_k", recall.TopK),
			MessageRange: g.optionalInt32("memory.semantic_recall.message_range", recall.MessageRange),
			Scope: enumFor[pb.SemanticRecall_Scope](
				g, "memory.semantic_recall.scope", pb.SemanticRecall_Scope_value, "SCOPE_", recall.Scope,
			),
		}
	}
	return written
}

// SemanticRecall is search in older messages: TopK hits (default 4), each with MessageRange messages around it
// (default 1), in this thread or in all of the resource.
type SemanticRecall struct {
	TopK         *int
	MessageRange *int
	// Scope is thread or resource.
	Scope string
}

// Telemetry is what telemetry may record of a run: whether it is traced at all, whether spans carry what models
// and tools are given and what they answer, and a name to find the spans under. Nil: as the agent says, else as
// the server does.
type Telemetry struct {
	IsEnabled     *bool
	RecordInputs  *bool
	RecordOutputs *bool
	FunctionID    string
}

// ModelSettings are sampling and limits of model calls. What is nil is left to the provider.
type ModelSettings struct {
	// Temperature is 0 to 2, TopP 0 to 1, the penalties -2 to 2.
	Temperature      *float64
	TopP             *float64
	TopK             *int
	PresencePenalty  *float64
	FrequencyPenalty *float64
	// MaxOutputTokens bounds one answer.
	MaxOutputTokens *int
	// MaxRetries is how often a call that failed before its answer began is made again. Default 2.
	MaxRetries    *int
	StopSequences []string
	Seed          *int64
	// Headers are HTTP headers added to the call.
	Headers map[string]string
}

func (s ModelSettings) toWire(g *generation) *pb.ModelSettings {
	return &pb.ModelSettings{
		Temperature:      s.Temperature,
		MaxOutputTokens:  g.optionalInt32("model_settings.max_output_tokens", s.MaxOutputTokens),
		MaxRetries:       g.optionalInt32("model_settings.max_retries", s.MaxRetries),
		TopP:             s.TopP,
		TopK:             g.optionalInt32("model_settings.top_k", s.TopK),
		PresencePenalty:  s.PresencePenalty,
		FrequencyPenalty: s.FrequencyPenalty,
		StopSequences:    s.StopSequences,
		Seed:             s.Seed,
		Headers:          s.Headers,
	}
}

// ToolChoice is whether and which tool the model must call. Mode is auto (as it likes), none, or required (at
// least one); or Tool is the one. What forces a call holds until it was made, with EveryStep for the whole run.
type ToolChoice struct {
	Mode      string
	Tool      string
	EveryStep bool
}

func (c ToolChoice) toWire() (*pb.ToolChoice, error) {
	if c.Tool != "" && c.Mode != "" {
		return nil, errors.New("a tool is chosen with Tool, without a Mode")
	}
	if c.Tool != "" {
		return &pb.ToolChoice{Mode: pb.ToolChoice_MODE_TOOL, ToolName: c.Tool, EveryStep: c.EveryStep}, nil
	}
	if c.Mode == "" || c.Mode == "tool" {
		return nil, errors.New("give a Mode, or the Tool that is chosen")
	}
	mode, err := numberOf[pb.ToolChoice_Mode](pb.ToolChoice_Mode_value, "MODE_", c.Mode, "a tool choice's mode")
	return &pb.ToolChoice{Mode: mode, EveryStep: c.EveryStep}, err
}

// TracingOptions is how a run appears in traces.
type TracingOptions struct {
	// Metadata are attributes of its spans, an object.
	Metadata any
	// RequestContextKeys name values of the request context that are, too; dots reach nested ones.
	RequestContextKeys []string
	// TraceID has 1 to 32 hexadecimal digits, ParentSpanID 1 to 16. [WithTraceparent] comes before them.
	TraceID      string
	ParentSpanID string
	Tags         []string
}

// AgentVersion is which version of a data-defined agent: the one with this ID, or the latest with this Status, draft
// or published.
type AgentVersion struct {
	ID     string
	Status string
}

func (v AgentVersion) toWire() (*pb.VersionSelector, error) {
	switch {
	case v.ID != "" && v.Status == "":
		return &pb.VersionSelector{Selector: &pb.VersionSelector_VersionId{VersionId: v.ID}}, nil
	case v.ID == "" && (v.Status == "draft" || v.Status == "published"):
		return &pb.VersionSelector{Selector: &pb.VersionSelector_Published{Published: v.Status == "published"}}, nil
	}
	return nil, errors.New("a version is chosen by its ID, or by the Status draft or published")
}

// TaskCompletion are checks made when the model wants to stop, by scorers registered on the server; a score of 1
// passes.
type TaskCompletion struct {
	Scorers []string
	// Strategy is all (the default) or any.
	Strategy string
	// Parallel says whether they run at the same time; they do unless told otherwise.
	Parallel *bool
	// Timeout bounds all of them. Default 600 s.
	Timeout time.Duration
	// SuppressFeedback tells the model nothing about a failed check.
	SuppressFeedback bool
	// OnComplete is the name of a hook on the server that is shown every score.
	OnComplete string
}

func (c TaskCompletion) toWire(g *generation) *pb.TaskCompletion {
	return &pb.TaskCompletion{
		Scorers: c.Scorers,
		Strategy: enumFor[pb.TaskCompletion_Strategy](
			g, "is_task_complete.strategy", pb.TaskCompletion_Strategy_value, "STRATEGY_", c.Strategy,
		),
		Parallel:         c.Parallel,
		Timeout:          durationOf(c.Timeout),
		SuppressFeedback: c.SuppressFeedback,
		OnComplete:       c.OnComplete,
	}
}

// Scorer is how a scorer is run on results: its registered name (the key where empty), and the share of runs
// that are scored, 0 to 1 (nil: all). Sampling says it in words: none for all of them, ratio for that share.
type Scorer struct {
	Scorer        string
	SamplingRatio *float64
	Sampling      string
}

// ToolHooks are hooks around tool calls, by their names on the server: one that is asked before a call and may
// give its result, and one that looks on after it.
type ToolHooks struct {
	BeforeToolCall string
	AfterToolCall  string
}

// Delegation are hooks around what the agent delegates to its sub-agents, by their names on the server.
type Delegation struct {
	// OnDelegationStart is asked before a sub-agent begins, OnDelegationComplete shown what it came to,
	// MessageFilter chooses which turns of the conversation it is given.
	OnDelegationStart    string
	OnDelegationComplete string
	MessageFilter        string
	// HookErrorStrategy is what an error of theirs means: warn goes on without, throw fails the call that
	// delegates. Empty: as the hook declares.
	HookErrorStrategy string
}

// PendingCallExpiry is how long the run's pending calls may wait for people, and what happens to one that
// expires: Action is decline (the default), fail (the run), or answer (the default with DefaultAnswers, which
// are by tool name). Nothing is ever approved by an expiry.
type PendingCallExpiry struct {
	After          time.Duration
	Action         ExpiryAction
	DefaultAnswers map[string]any
}

func (e PendingCallExpiry) toWire(g *generation) *pb.PendingCallExpiry {
	action := e.Action
	if action == "" && len(e.DefaultAnswers) > 0 {
		action = ExpiryAnswer
	} else if action == "" {
		action = ExpiryDecline
	}
	written := &pb.PendingCallExpiry{
		After: durationpb.New(e.After),
		Action: enumFor[pb.ExpiryAction](
			g, "pending_call_expiry.action", pb.ExpiryAction_value, "EXPIRY_ACTION_", action,
		),
		DefaultAnswers: map[string]*pb.Json{},
	}
	for tool, answer := range e.DefaultAnswers {
		text, err := toJSON(answer)
		g.check("pending_call_expiry.default_answers["+tool+"]", err)
		written.DefaultAnswers[tool] = text
	}
	return written
}

// optionalInt32 is a number as the contract has it, where it is given.
func (g *generation) optionalInt32(field string, n *int) *int32 {
	if n == nil {
		return nil
	}
	return new(g.int32(field, *n))
}
