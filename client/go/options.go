package entracte

import (
	"strings"
	"time"

	pb "entracte.dev/go/entracte/v1"
	"google.golang.org/protobuf/types/known/durationpb"
)

// WithRunID chooses the run's id: letters, digits, -, _, ., :, up to 128. The SDK makes one where this is not
// given (the server does, if there is a [WithRequestID]).
func WithRunID(id string) GenerateOption {
	return generateOption(func(g *generation) { g.options.RunId = id })
}

// WithMaxSteps bounds the model calls of the whole run. Default 5.
func WithMaxSteps(n int) GenerateOption {
	return generateOption(func(g *generation) { g.options.MaxSteps = new(g.int32("max_steps", n)) })
}

// WithStopWhen ends the run after a step where one of the conditions holds.
func WithStopWhen(conditions ...StopWhen) GenerateOption {
	return generateOption(func(g *generation) {
		for _, condition := range conditions {
			written, err := condition.toWire()
			g.check("stop_when", err)
			g.options.StopWhen = append(g.options.StopWhen, written)
		}
	})
}

// WithActiveTools names the tools the model may use; no name: none.
func WithActiveTools(names ...string) GenerateOption {
	return generateOption(func(g *generation) { g.options.ActiveTools = &pb.ToolNames{Names: names} })
}

// WithAllToolsApproved makes a person approve every call first, or, with false, none beyond what the tools
// themselves ask for.
func WithAllToolsApproved(all bool) GenerateOption {
	return generateOption(func(g *generation) {
		g.options.RequireToolApproval = &pb.ToolApproval{Policy: &pb.ToolApproval_All{All: all}}
	})
}

// WithToolApproval makes a person approve calls of these tools first, by name or by pattern ("pay_*").
func WithToolApproval(tools ...string) GenerateOption {
	var rules ToolApproval
	for _, tool := range tools {
		if strings.ContainsAny(tool, "*?[") {
			rules.Patterns = append(rules.Patterns, tool)
		} else {
			rules.Names = append(rules.Names, tool)
		}
	}
	return WithToolApprovalRules(rules)
}

// WithToolApprovalRules makes a person approve first the calls that one of the rules names.
func WithToolApprovalRules(rules ToolApproval) GenerateOption {
	return generateOption(func(g *generation) {
		g.options.RequireToolApproval = &pb.ToolApproval{Policy: &pb.ToolApproval_Rules{Rules: rules.toWire()}}
	})
}

// WithAutoResume says whether a new message on a thread whose run waits for an answer is taken as that answer.
func WithAutoResume(on bool) GenerateOption {
	return generateOption(func(g *generation) { g.options.AutoResumeSuspendedTools = &on })
}

// WithToolCallConcurrency bounds the tools of one step that run at the same time. Default 10.
func WithToolCallConcurrency(n int) GenerateOption {
	return generateOption(func(g *generation) {
		g.options.ToolCallConcurrency = new(g.int32("tool_call_concurrency", n))
	})
}

// WithContext adds messages after the system messages and before the input.
func WithContext(messages Input) GenerateOption {
	return generateOption(func(g *generation) { g.options.Context = g.messages("context", messages, RoleUser) })
}

// WithStructuredOutput asks for an answer that fits a schema; it is in [GenerateResult.Object].
func WithStructuredOutput(output StructuredOutput) GenerateOption {
	return generateOption(func(g *generation) { g.options.StructuredOutput = output.toWire(g) })
}

// WithOutput is the deprecated form of [WithStructuredOutput], with nothing but the schema.
//
// Deprecated: use WithStructuredOutput.
func WithOutput(schema any) GenerateOption {
	return generateOption(func(g *generation) { g.options.Output = g.json("output", schema) })
}

// WithInputProcessors names processors of what goes to the model, replacing the agent's; none: none.
func WithInputProcessors(processors ...Processor) GenerateOption {
	return generateOption(func(g *generation) {
		g.options.InputProcessors = processorsToWire(g, "input_processors", processors)
	})
}

// WithOutputProcessors names processors of what the model says, replacing the agent's; none: none.
func WithOutputProcessors(processors ...Processor) GenerateOption {
	return generateOption(func(g *generation) {
		g.options.OutputProcessors = processorsToWire(g, "output_processors", processors)
	})
}

// WithMaxProcessorRetries bounds how often processors may send a step back for another try.
func WithMaxProcessorRetries(n int) GenerateOption {
	return generateOption(func(g *generation) {
		g.options.MaxProcessorRetries = new(g.int32("max_processor_retries", n))
	})
}

// WithInstructions gives system messages that replace the agent's instructions.
func WithInstructions(messages Input) GenerateOption {
	return generateOption(func(g *generation) {
		g.options.Instructions = g.messages("instructions", messages, RoleSystem)
	})
}

// WithSystem adds system messages after the instructions.
func WithSystem(messages Input) GenerateOption {
	return generateOption(func(g *generation) { g.options.System = g.messages("system", messages, RoleSystem) })
}

// WithMemory says which conversation the run belongs to.
func WithMemory(memory Memory) GenerateOption {
	return generateOption(func(g *generation) { g.options.Memory = memory.toWire(g) })
}

// WithTelemetry says what telemetry may record.
func WithTelemetry(telemetry Telemetry) GenerateOption {
	return generateOption(func(g *generation) {
		g.options.Telemetry = &pb.TelemetryOptions{
			IsEnabled:     telemetry.IsEnabled,
			RecordInputs:  telemetry.RecordInputs,
			RecordOutputs: telemetry.RecordOutputs,
			FunctionId:    telemetry.FunctionID,
		}
	})
}

// WithModelSettings says how the model is sampled and limited.
func WithModelSettings(settings ModelSettings) GenerateOption {
	return generateOption(func(g *generation) { g.options.ModelSettings = settings.toWire(g) })
}

// WithToolChoice says whether and which tool the model must call.
func WithToolChoice(choice ToolChoice) GenerateOption {
	return generateOption(func(g *generation) {
		written, err := choice.toWire()
		g.check("tool_choice", err)
		g.options.ToolChoice = written
	})
}

// WithToolsets names toolsets registered on the server, which are added to the agent's tools.
func WithToolsets(names ...string) GenerateOption {
	return generateOption(func(g *generation) { g.options.Toolsets = append(g.options.Toolsets, names...) })
}

// WithSavePerStep says whether messages are saved to the thread after each step rather than at the end.
func WithSavePerStep(on bool) GenerateOption {
	return generateOption(func(g *generation) { g.options.SavePerStep = &on })
}

// WithProviderOptions gives options by provider, an object: {"openai": {"reasoningEffort": "low"}}.
func WithProviderOptions(options any) GenerateOption {
	return generateOption(func(g *generation) { g.options.ProviderOptions = g.json("provider_options", options) })
}

// WithRequestContext gives values for tools and hooks, an object; they are never part of a prompt.
func WithRequestContext(values any) GenerateOption {
	return generateOption(func(g *generation) { g.options.RequestContext = g.json("request_context", values) })
}

// WithTracing says how the run appears in traces.
func WithTracing(tracing TracingOptions) GenerateOption {
	return generateOption(func(g *generation) {
		g.options.TracingOptions = &pb.TracingOptions{
			Metadata:           g.json("tracing_options.metadata", tracing.Metadata),
			RequestContextKeys: tracing.RequestContextKeys,
			TraceId:            tracing.TraceID,
			ParentSpanId:       tracing.ParentSpanID,
			Tags:               tracing.Tags,
		}
	})
}

// WithVersions says which versions of data-defined agents to use, by agent id.
func WithVersions(versions map[string]AgentVersion) GenerateOption {
	return generateOption(func(g *generation) {
		g.options.Versions = map[string]*pb.VersionSelector{}
		for agent, version := range versions {
			written, err := version.toWire()
			g.check("versions["+agent+"]", err)
			g.options.Versions[agent] = written
		}
	})
}

// WithRawChunks says whether the provider's own events are streamed as [RawChunk].
func WithRawChunks(on bool) GenerateOption {
	return generateOption(func(g *generation) { g.options.IncludeRawChunks = &on })
}

// WithTaskCompletion has checks made when the model wants to stop.
func WithTaskCompletion(checks TaskCompletion) GenerateOption {
	return generateOption(func(g *generation) { g.options.IsTaskComplete = checks.toWire(g) })
}

// WithScorers names scorers that judge the result after the reply, replacing the agent's, by what they are
// called in the run. What they say is in [RunsClient.FollowUps].
func WithScorers(scorers map[string]Scorer) GenerateOption {
	return generateOption(func(g *generation) {
		g.options.Scorers = map[string]*pb.ScorerOptions{}
		for name, scorer := range scorers {
			g.options.Scorers[name] = &pb.ScorerOptions{
				Scorer:        scorer.Scorer,
				SamplingRatio: scorer.SamplingRatio,
				Sampling: enumFor[pb.ScorerOptions_Sampling](
					g, "scorers["+name+"].sampling", pb.ScorerOptions_Sampling_value, "SAMPLING_", scorer.Sampling,
				),
			}
		}
	})
}

// WithScorerData says whether the result carries what scorers see, in [GenerateResult.ScoringData].
func WithScorerData(on bool) GenerateOption {
	return generateOption(func(g *generation) { g.options.ReturnScorerData = &on })
}

// WithExecutionTimeout bounds how long the run may execute, time spent waiting for people excluded.
func WithExecutionTimeout(timeout time.Duration) GenerateOption {
	return generateOption(func(g *generation) { g.options.ExecutionTimeout = durationpb.New(timeout) })
}

// WithCancelOnDisconnect says whether the run is cancelled when nobody has followed it for 10 seconds.
func WithCancelOnDisconnect(on bool) GenerateOption {
	return generateOption(func(g *generation) { g.options.CancelOnDisconnect = &on })
}

// WithRequestBody says whether [GenerateResult.Request] carries the body of the last model call.
func WithRequestBody(on bool) GenerateOption {
	return generateOption(func(g *generation) { g.options.IncludeRequestBody = &on })
}

// WithPendingCallExpiry bounds how long the run's pending calls may wait for people.
func WithPendingCallExpiry(expiry PendingCallExpiry) GenerateOption {
	return generateOption(func(g *generation) { g.options.PendingCallExpiry = expiry.toWire(g) })
}

// WithRateLimitWait bounds how long a model call may wait in all for its provider's rate limit before its
// answer begins, up to a day. A [CustomChunk] named rate-limit-wait shows each wait.
func WithRateLimitWait(wait time.Duration) GenerateOption {
	return generateOption(func(g *generation) { g.options.RateLimitWait = durationpb.New(wait) })
}

// WithIterationHook names a hook on the server that is called after each step: it may end the run, or tell the
// model something.
func WithIterationHook(name string) GenerateOption {
	return generateOption(func(g *generation) { g.options.OnIterationComplete = name })
}

// WithPrepareStepHook names a hook on the server that is called before each step and may change what it is made
// with.
func WithPrepareStepHook(name string) GenerateOption {
	return generateOption(func(g *generation) { g.options.PrepareStep = name })
}

// WithToolHooks names hooks around tool calls.
func WithToolHooks(hooks ToolHooks) GenerateOption {
	return generateOption(func(g *generation) {
		g.options.Hooks = &pb.ToolHooks{BeforeToolCall: hooks.BeforeToolCall, AfterToolCall: hooks.AfterToolCall}
	})
}

// WithDelegation names hooks around delegations to sub-agents.
func WithDelegation(hooks Delegation) GenerateOption {
	return generateOption(func(g *generation) {
		g.options.Delegation = &pb.DelegationOptions{
			OnDelegationStart:    hooks.OnDelegationStart,
			OnDelegationComplete: hooks.OnDelegationComplete,
			MessageFilter:        hooks.MessageFilter,
			HookErrorStrategy: enumFor[pb.DelegationOptions_HookErrorStrategy](
				g, "delegation.hook_error_strategy", pb.DelegationOptions_HookErrorStrategy_value,
				"HOOK_ERROR_STRATEGY_", hooks.HookErrorStrategy,
			),
		}
	})
}

func processorsToWire(g *generation, field string, processors []Processor) *pb.ProcessorRefs {
	refs := &pb.ProcessorRefs{}
	for _, processor := range processors {
		refs.Processors = append(refs.Processors, &pb.ProcessorRef{
			Name: processor.Name, Parameters: g.json(field+".parameters", processor.Parameters),
		})
	}
	return refs
}
