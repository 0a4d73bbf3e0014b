package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"entracte.dev/go"
)

// asked is a command as it comes.
type asked struct {
	ID     string          `json:"id"`
	Op     string          `json:"op"`
	Client string          `json:"client"`
	Agent  string          `json:"agent"`
	Input  string          `json:"input"`
	Call   *callName       `json:"call"`
	Raw    json.RawMessage `json:"options"`

	Address         string   `json:"address"`
	APIKey          string   `json:"api_key"`
	CACertificates  string   `json:"ca_certificates"`
	Timeout         *float64 `json:"timeout"`
	ReattachTimeout *float64 `json:"reattach_timeout"`
	Target          string   `json:"target"`
	Pull            *int     `json:"pull"`
	Count           *int     `json:"count"`
	LeaveAfter      *int     `json:"leave_after"`
	Observe         []string `json:"observe"`
	ObserverRaises  bool     `json:"observer_raises"`
	ClientTools     []tool   `json:"client_tools"`
	Stream          bool     `json:"stream"`
	EditedArgs      *string  `json:"edited_args"`
	Reason          string   `json:"reason"`
	ReasonData      *string  `json:"reason_data"`
	Answer          *string  `json:"answer"`
	Result          *string  `json:"result"`
	Error           *string  `json:"error"`
	RunID           string   `json:"run_id"`
	OmitResult      bool     `json:"omit_result"`
	After           uint64   `json:"after"`
	UntilFinished   bool     `json:"until_finished"`
	Wait            bool     `json:"wait"`
	Force           bool     `json:"force"`
	States          []string `json:"states"`
	AgentID         string   `json:"agent_id"`
	ThreadID        string   `json:"thread_id"`
	ResourceID      string   `json:"resource_id"`
	IncludeDecided  bool     `json:"include_decided"`
	PageSize        int      `json:"page_size"`
	IncludeChildren bool     `json:"include_children"`
	PageToken       *string  `json:"page_token"`
	PendingCallID   string   `json:"pending_call_id"`
	Principal       string   `json:"principal"`
	TTL             float64  `json:"ttl"`
	Title           *string  `json:"title"`
	Metadata        *string  `json:"metadata"`
	RequestID       string   `json:"request_id"`
	Roles           []string `json:"roles"`
	NewestFirst     bool     `json:"newest_first"`
	Content         string   `json:"content"`
	ExpectedVersion *uint64  `json:"expected_version"`
}

type callName struct {
	Shown         string `json:"shown"`
	PendingCallID string `json:"pending_call_id"`
	RunID         string `json:"run_id"`
	ToolCallID    string `json:"tool_call_id"`
}

type tool struct {
	Name        string    `json:"name"`
	Description string    `json:"description"`
	InputSchema *string   `json:"input_schema"`
	Function    *function `json:"function"`
}

type function struct {
	Returns *string `json:"returns"`
	Echo    bool    `json:"echo"`
	Raises  *string `json:"raises"`
}

// options are those of generate and stream, and of decisions.
type options struct {
	RunID               *string  `json:"run_id"`
	RequestID           *string  `json:"request_id"`
	Timeout             *float64 `json:"timeout"`
	MaxSteps            *int     `json:"max_steps"`
	ActiveTools         []string `json:"active_tools"`
	RequireToolApproval any      `json:"require_tool_approval"`
	ToolCallConcurrency *int     `json:"tool_call_concurrency"`
	StructuredOutput    *struct {
		Schema        *string `json:"schema"`
		ErrorStrategy string  `json:"error_strategy"`
		FallbackValue *string `json:"fallback_value"`
	} `json:"structured_output"`
	Instructions *string `json:"instructions"`
	System       *string `json:"system"`
	Memory       *struct {
		Thread         string   `json:"thread"`
		Resource       string   `json:"resource"`
		LastMessages   *int     `json:"last_messages"`
		OnBusyThread   string   `json:"on_busy_thread"`
		OnParkedThread string   `json:"on_parked_thread"`
		QueueTimeout   *float64 `json:"queue_timeout"`
	} `json:"memory"`
	ModelSettings *struct {
		Temperature     *float64 `json:"temperature"`
		MaxOutputTokens *int     `json:"max_output_tokens"`
		Seed            *int64   `json:"seed"`
	} `json:"model_settings"`
	ToolChoice *string  `json:"tool_choice"`
	Toolsets   []string `json:"toolsets"`
	StopWhen   *struct {
		StepCount    int    `json:"step_count"`
		ToolCalled   string `json:"tool_called"`
		TextContains string `json:"text_contains"`
	} `json:"stop_when"`
	ProviderOptions    *string  `json:"provider_options"`
	RequestContext     *string  `json:"request_context"`
	Scorers            []string `json:"scorers"`
	ExecutionTimeout   *float64 `json:"execution_timeout"`
	CancelOnDisconnect *bool    `json:"cancel_on_disconnect"`
	IncludeRawChunks   *bool    `json:"include_raw_chunks"`
	PendingCallExpiry  *struct {
		After          float64           `json:"after"`
		Action         string            `json:"action"`
		DefaultAnswers map[string]string `json:"default_answers"`
	} `json:"pending_call_expiry"`
	OnBehalfOf *string `json:"on_behalf_of"`
	Comment    *string `json:"comment"`
}

// read reads the options. One that is not known is an error.
func (a *asked) read() (*options, error) {
	found := &options{}
	if len(a.Raw) == 0 {
		return found, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(a.Raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(found); err != nil {
		return nil, usage(fmt.Sprintf("the options: %v", err))
	}
	return found, nil
}

// add appends an option of a key that is there.
func add[T any](list []entracte.GenerateOption, given *T, option func(T) entracte.GenerateOption) []entracte.GenerateOption {
	if given == nil {
		return list
	}
	return append(list, option(*given))
}

// exact is a value by its exact text.
func exact(option func(any) entracte.GenerateOption) func(string) entracte.GenerateOption {
	return func(text string) entracte.GenerateOption { return option(entracte.JSON(text)) }
}

// generate are the options as the SDK takes them.
func (o *options) generate() ([]entracte.GenerateOption, error) {
	var list []entracte.GenerateOption
	list = add(list, o.RunID, entracte.WithRunID)
	list = add(list, o.RequestID, func(id string) entracte.GenerateOption { return entracte.WithRequestID(id) })
	list = add(list, o.MaxSteps, entracte.WithMaxSteps)
	list = add(list, o.ToolCallConcurrency, entracte.WithToolCallConcurrency)
	list = add(list, o.Instructions, func(text string) entracte.GenerateOption {
		return entracte.WithInstructions(entracte.Text(text))
	})
	list = add(list, o.System, func(text string) entracte.GenerateOption { return entracte.WithSystem(entracte.Text(text)) })
	list = add(list, o.ProviderOptions, exact(entracte.WithProviderOptions))
	list = add(list, o.RequestContext, exact(entracte.WithRequestContext))
	list = add(list, o.CancelOnDisconnect, entracte.WithCancelOnDisconnect)
	list = add(list, o.IncludeRawChunks, entracte.WithRawChunks)
	list = add(list, o.ExecutionTimeout, func(seconds float64) entracte.GenerateOption {
		return entracte.WithExecutionTimeout(duration(seconds))
	})
	list = add(list, o.ToolChoice, func(mode string) entracte.GenerateOption {
		return entracte.WithToolChoice(entracte.ToolChoice{Mode: mode})
	})
	if o.ActiveTools != nil {
		list = append(list, entracte.WithActiveTools(o.ActiveTools...))
	}
	if o.Toolsets != nil {
		list = append(list, entracte.WithToolsets(o.Toolsets...))
	}
	if o.Scorers != nil {
		scorers := map[string]entracte.Scorer{}
		for _, name := range o.Scorers {
			scorers[name] = entracte.Scorer{}
		}
		list = append(list, entracte.WithScorers(scorers))
	}
	if output := o.StructuredOutput; output != nil {
		list = append(list, entracte.WithStructuredOutput(entracte.StructuredOutput{
			Schema: optional(output.Schema), ErrorStrategy: output.ErrorStrategy, FallbackValue: optional(output.FallbackValue),
		}))
	}
	if condition := o.StopWhen; condition != nil {
		list = append(list, entracte.WithStopWhen(entracte.StopWhen{
			StepCount: condition.StepCount, ToolCalled: condition.ToolCalled, TextContains: condition.TextContains,
		}))
	}
	if settings := o.ModelSettings; settings != nil {
		list = append(list, entracte.WithModelSettings(entracte.ModelSettings{
			Temperature: settings.Temperature, MaxOutputTokens: settings.MaxOutputTokens, Seed: settings.Seed,
		}))
	}
	if memory := o.Memory; memory != nil {
		given := entracte.Memory{
			Thread: memory.Thread, Resource: memory.Resource, LastMessages: memory.LastMessages,
			OnBusyThread: memory.OnBusyThread, OnParkedThread: memory.OnParkedThread,
		}
		if memory.QueueTimeout != nil {
			given.QueueTimeout = duration(*memory.QueueTimeout)
		}
		list = append(list, entracte.WithMemory(given))
	}
	if expiry := o.PendingCallExpiry; expiry != nil {
		answers := map[string]any{}
		for tool, text := range expiry.DefaultAnswers {
			answers[tool] = entracte.JSON(text)
		}
		list = append(list, entracte.WithPendingCallExpiry(entracte.PendingCallExpiry{
			After: duration(expiry.After), Action: entracte.ExpiryAction(expiry.Action), DefaultAnswers: answers,
		}))
	}
	switch approval := o.RequireToolApproval.(type) {
	case nil:
	case bool:
		list = append(list, entracte.WithAllToolsApproved(approval))
	case []any:
		var names []string
		for _, name := range approval {
			names = append(names, fmt.Sprint(name))
		}
		list = append(list, entracte.WithToolApproval(names...))
	default:
		return nil, usage("require_tool_approval is true or a list of names")
	}
	return list, nil
}

// decide are the options as the SDK takes them with a decision.
func (o *options) decide() []entracte.DecisionOption {
	var list []entracte.DecisionOption
	if o.RequestID != nil {
		list = append(list, entracte.WithRequestID(*o.RequestID))
	}
	if o.OnBehalfOf != nil {
		list = append(list, entracte.WithOnBehalfOf(*o.OnBehalfOf))
	}
	if o.Comment != nil {
		list = append(list, entracte.WithComment(*o.Comment))
	}
	return list
}

// optional is a value by its exact text; nil where there is none.
func optional(text *string) any {
	if text == nil {
		return nil
	}
	return entracte.JSON(*text)
}

var errNoAnswer = errors.New("a resume without an answer")
