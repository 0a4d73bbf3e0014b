package entracte

import (
	"time"

	pb "entracte.dev/go/entracte/v1"
)

func decisionOf(m *pb.Decision) *Decision {
	if m == nil {
		return nil
	}
	return &Decision{
		DecisionID:    m.DecisionId,
		PendingCallID: m.PendingCallId,
		RunID:         m.RunId,
		ToolCallID:    m.ToolCallId,
		ToolName:      m.ToolName,
		Verb:          verbOf(m.Verb),
		Principal:     m.Principal,
		OnBehalfOf:    m.OnBehalfOf,
		DecideTime:    timeOf(m.DecideTime),
		Args:          jsonOf(m.Args),
		EditedArgs:    jsonOf(m.EditedArgs),
		Data:          jsonOf(m.Data),
		IsError:       m.IsError,
		Reason:        m.Reason,
		ReasonData:    jsonOf(m.ReasonJson),
		Comment:       m.Comment,
		RequestID:     m.RequestId,
		ArgsDigest:    m.ArgsDigest,
	}
}

func pendingCallOf(m *pb.PendingCall) *PendingCall {
	var claim *Claim
	if m.GetClaim() != nil {
		claim = &Claim{m.Claim.Principal, timeOf(m.Claim.ExpireTime)}
	}
	return &PendingCall{
		PendingCallID:   m.GetPendingCallId(),
		RunID:           m.GetRunId(),
		ToolCallID:      m.GetToolCallId(),
		AgentID:         m.GetAgentId(),
		AgentPath:       pathOf(m.GetAgentPath()),
		Kind:            kindOf(m.GetKind()),
		ToolName:        m.GetToolName(),
		ToolDescription: m.GetToolDescription(),
		Args:            jsonOf(m.GetArgs()),
		ArgsDigest:      m.GetArgsDigest(),
		SuspendPayload:  jsonOf(m.GetSuspendPayload()),
		ResumeSchema:    jsonOf(m.GetResumeSchema()),
		CreateTime:      timeOf(m.GetCreateTime()),
		ExpireTime:      timeOf(m.GetExpireTime()),
		State:           nameOf[PendingCallState](m.GetState(), "PENDING_CALL_STATE_"),
		Claim:           claim,
		ThreadID:        m.GetThreadId(),
		ResourceID:      m.GetResourceId(),
		Round:           int(m.GetRound()),
		Decision:        decisionOf(m.GetDecision()),
		OnExpiry:        nameOf[ExpiryAction](m.GetOnExpiry(), "EXPIRY_ACTION_"),
		DefaultAnswer:   jsonOf(m.GetDefaultAnswer()),
	}
}

func resultOf(m *pb.GenerateResult) *GenerateResult {
	if m == nil {
		return nil
	}
	return &GenerateResult{
		RunID:            m.RunId,
		Text:             m.Text,
		Object:           jsonOf(m.Object),
		ToolCalls:        chunksOf[*ToolCallChunk](m.ToolCalls),
		ToolResults:      chunksOf[*ToolResultChunk](m.ToolResults),
		Usage:            usageOf(m.Usage),
		Steps:            mapped(m.Steps, stepOf),
		FinishReason:     finishReasonOf(m.FinishReason),
		StopCause:        stopCauseOf(m.StopCause),
		Response:         responseOf(m.Response),
		Request:          RequestInfo{jsonOf(m.Request.GetBody())},
		Warnings:         m.Warnings,
		ProviderMetadata: jsonOf(m.ProviderMetadata),
		Reasoning:        mapped(m.Reasoning, func(part *pb.ReasoningPart) ReasoningPart { return *reasoningOf(part) }),
		ReasoningText:    m.ReasoningText,
		Sources: mapped(m.Sources, func(s *pb.SourceChunk) Source {
			return Source{s.Id, s.Url, s.Title, jsonOf(s.ProviderMetadata)}
		}),
		Files:              mapped(m.Files, func(f *pb.FileChunk) File { return File{f.MediaType, f.Data, f.Url} }),
		SuspendPayload:     suspendPayloadOf(m.SuspendPayload),
		PendingCalls:       mapped(m.PendingCalls, pendingCallOf),
		TraceID:            m.TraceId,
		SpanID:             m.SpanId,
		Messages:           mapped(m.Messages, messageOf),
		RememberedMessages: mapped(m.RememberedMessages, messageOf),
		Error:              runErrorOf(m.Error),
		Tripwire:           tripwireOf(m.Tripwire),
		ScoringData:        scoringDataOf(m.ScoringData),
		UsedFallbackValue:  m.UsedFallbackValue,
		AutoResumeError:    m.AutoResumeError,
	}
}

func stepOf(m *pb.StepResult) StepResult {
	step := StepResult{
		Step:          int(m.Step),
		Text:          m.Text,
		ToolCalls:     chunksOf[*ToolCallChunk](m.ToolCalls),
		ToolResults:   chunksOf[*ToolResultChunk](m.ToolResults),
		FinishReason:  finishReasonOf(m.FinishReason),
		Usage:         usageOf(m.Usage),
		ReasoningText: m.ReasoningText,
		Tripwire:      tripwireOf(m.Tripwire),
		IsDraft:       m.IsDraft,
	}
	if m.Request != nil {
		step.Request = &RequestInfo{jsonOf(m.Request.Body)}
	}
	if m.Response != nil {
		response := responseOf(m.Response)
		step.Response = &response
	}
	return step
}

func responseOf(m *pb.ResponseInfo) ResponseInfo {
	return ResponseInfo{
		ID:           m.GetId(),
		Timestamp:    timeOf(m.GetTimestamp()),
		ModelID:      m.GetModelId(),
		Headers:      m.GetHeaders(),
		Messages:     mapped(m.GetMessages(), messageOf),
		UIMessages:   mapped(m.GetUiMessages(), messageOf),
		RequestLimit: limitOf(m.GetRequestLimit()),
		TokenLimit:   limitOf(m.GetTokenLimit()),
	}
}

func limitOf(m *pb.RateLimit) *RateLimit {
	if m == nil {
		return nil
	}
	var reset *time.Duration
	if m.Reset_ != nil {
		after := m.Reset_.AsDuration()
		reset = &after
	}
	return &RateLimit{m.Limit, m.Remaining, reset}
}

func suspendPayloadOf(m *pb.SuspendPayload) *SuspendPayload {
	if m == nil {
		return nil
	}
	return &SuspendPayload{
		ToolCallID:     m.ToolCallId,
		ToolName:       m.ToolName,
		Args:           jsonOf(m.Args),
		SuspendPayload: jsonOf(m.SuspendPayload),
		ResumeSchema:   jsonOf(m.ResumeSchema),
	}
}

func scoringDataOf(m *pb.ScoringData) *ScoringData {
	if m == nil {
		return nil
	}
	return &ScoringData{jsonOf(m.Input), jsonOf(m.Output)}
}

// runOf reads a run; result is nil where it was not asked for.
func runOf(m *pb.Run, result *pb.GenerateResult) *Run {
	return &Run{
		RunID:          m.GetRunId(),
		AgentID:        m.GetAgentId(),
		State:          runStateOf(m.GetState()),
		LastSequence:   m.GetLastSequence(),
		Step:           int(m.GetStep()),
		CreateTime:     timeOf(m.GetCreateTime()),
		UpdateTime:     timeOf(m.GetUpdateTime()),
		FinishTime:     timeOf(m.GetFinishTime()),
		FinishReason:   finishReasonOf(m.GetFinishReason()),
		StopCause:      stopCauseOf(m.GetStopCause()),
		Usage:          usageOf(m.GetUsage()),
		Error:          runErrorOf(m.GetError()),
		Principal:      m.GetPrincipal(),
		ThreadID:       m.GetThreadId(),
		ResourceID:     m.GetResourceId(),
		RootRunID:      m.GetRootRunId(),
		ParentRunID:    m.GetParentRunId(),
		PendingCalls:   mapped(m.GetPendingCalls(), pendingCallOf),
		RequestContext: jsonOf(m.GetRequestContext()),
		Result:         resultOf(result),
		FollowUps:      mapped(m.GetFollowUps(), followUpOf),
	}
}

func runStateOf(state pb.RunState) RunState { return nameOf[RunState](state, "RUN_STATE_") }

func followUpOf(m *pb.FollowUp) FollowUp {
	job := FollowUp{
		Kind:          nameOf[FollowUpKind](m.Kind, "FOLLOW_UP_KIND_"),
		Name:          m.Name,
		State:         nameOf[FollowUpState](m.State, "FOLLOW_UP_STATE_"),
		Scorer:        m.Scorer,
		Error:         m.Error,
		Attempts:      int(m.Attempts),
		SamplingRatio: m.SamplingRatio,
		Usage:         usageOf(m.Usage),
		Duration:      m.Duration.AsDuration(),
		CreateTime:    timeOf(m.CreateTime),
		FinishTime:    timeOf(m.FinishTime),
	}
	switch outcome := m.Outcome.(type) {
	case *pb.FollowUp_Score:
		job.Score, job.Reason = &outcome.Score.Score, outcome.Score.Reason
	case *pb.FollowUp_Title:
		job.Title = &outcome.Title
	}
	return job
}

// chunksOf reads those of the chunks that are of a type.
func chunksOf[T Chunk](messages []*pb.Chunk) []T {
	var found []T
	for _, message := range messages {
		if chunk, is := chunkOf(message).(T); is {
			found = append(found, chunk)
		}
	}
	return found
}
