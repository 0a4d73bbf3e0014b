package entracte

import (
	pb "entracte.dev/go/entracte/v1"
)

func pathOf(elements []*pb.PathElement) []PathElement {
	return mapped(elements, func(element *pb.PathElement) PathElement {
		return PathElement{element.AgentId, element.ToolCallId}
	})
}

func headerOf(m *pb.Chunk, of ChunkType) ChunkHeader {
	return ChunkHeader{
		Type:      of,
		RunID:     m.RunId,
		Sequence:  m.Sequence,
		EmitTime:  timeOf(m.EmitTime),
		Source:    sourceOf(m.Source),
		Step:      int(m.Step),
		Attempt:   int(m.Attempt),
		AgentPath: pathOf(m.AgentPath),
		Ignorable: m.Ignorable,
	}
}

func sourceOf(source pb.ChunkSource) ChunkSource {
	switch source { // of every chunk: the names of the most frequent ones are not looked up
	case pb.ChunkSource_CHUNK_SOURCE_AGENT:
		return SourceAgent
	case pb.ChunkSource_CHUNK_SOURCE_USER:
		return SourceUser
	}
	return nameOf[ChunkSource](source, "CHUNK_SOURCE_")
}

func kindOf(kind pb.PendingCallKind) PendingCallKind {
	return nameOf[PendingCallKind](kind, "PENDING_CALL_KIND_")
}

func finishReasonOf(reason pb.FinishReason) FinishReason {
	return nameOf[FinishReason](reason, "FINISH_REASON_")
}

func stopCauseOf(cause pb.StopCause) StopCause {
	return nameOf[StopCause](cause, "STOP_CAUSE_")
}

func verbOf(verb pb.DecisionVerb) DecisionVerb {
	return nameOf[DecisionVerb](verb, "DECISION_VERB_")
}

// chunkOf reads a chunk; nil when this version does not know its payload.
func chunkOf(m *pb.Chunk) Chunk {
	switch p := m.Payload.(type) {
	case *pb.Chunk_Start:
		return &StartChunk{headerOf(m, TypeStart), p.Start.AgentId, p.Start.MessageId}
	case *pb.Chunk_StepStart:
		return &StepStartChunk{headerOf(m, TypeStepStart), p.StepStart.MessageId, p.StepStart.Model, p.StepStart.Warnings}
	case *pb.Chunk_TextStart:
		return &TextStartChunk{headerOf(m, TypeTextStart), p.TextStart.Id, jsonOf(p.TextStart.ProviderMetadata)}
	case *pb.Chunk_TextDelta:
		return &TextDeltaChunk{headerOf(m, TypeTextDelta), p.TextDelta.Id, p.TextDelta.Text}
	case *pb.Chunk_TextEnd:
		return &TextEndChunk{headerOf(m, TypeTextEnd), p.TextEnd.Id, jsonOf(p.TextEnd.ProviderMetadata)}
	case *pb.Chunk_ReasoningStart:
		return &ReasoningStartChunk{
			headerOf(m, TypeReasoningStart), p.ReasoningStart.Id, jsonOf(p.ReasoningStart.ProviderMetadata),
		}
	case *pb.Chunk_ReasoningDelta:
		return &ReasoningDeltaChunk{headerOf(m, TypeReasoningDelta), p.ReasoningDelta.Id, p.ReasoningDelta.Text}
	case *pb.Chunk_ReasoningEnd:
		return &ReasoningEndChunk{
			headerOf(m, TypeReasoningEnd), p.ReasoningEnd.Id, jsonOf(p.ReasoningEnd.ProviderMetadata),
		}
	case *pb.Chunk_ReasoningSignature:
		return &ReasoningSignatureChunk{
			headerOf(m, TypeReasoningSignature), p.ReasoningSignature.Id, p.ReasoningSignature.Signature,
		}
	case *pb.Chunk_RedactedReasoning:
		return &RedactedReasoningChunk{
			headerOf(m, TypeRedactedReasoning), p.RedactedReasoning.Id, p.RedactedReasoning.Data,
		}
	case *pb.Chunk_SourceReference:
		s := p.SourceReference
		return &SourceChunk{headerOf(m, TypeSource), s.Id, s.Url, s.Title, jsonOf(s.ProviderMetadata)}
	case *pb.Chunk_File:
		return &FileChunk{headerOf(m, TypeFile), p.File.MediaType, p.File.Data, p.File.Url}
	case *pb.Chunk_Object:
		return &ObjectChunk{headerOf(m, TypeObject), jsonOf(p.Object.Object), p.Object.StructuringModel}
	case *pb.Chunk_ObjectResult:
		o := p.ObjectResult
		return &ObjectResultChunk{headerOf(m, TypeObjectResult), jsonOf(o.Object), o.StructuringModel, o.IsFallback}
	case *pb.Chunk_IsTaskComplete:
		return taskCompleteOf(m, p.IsTaskComplete)
	case *pb.Chunk_Tripwire:
		chunk := &TripwireChunk{ChunkHeader: headerOf(m, TypeTripwire)}
		if tripwire := tripwireOf(p.Tripwire.Tripwire); tripwire != nil {
			chunk.Tripwire = *tripwire
		}
		return chunk
	case *pb.Chunk_StepFinish:
		return stepFinishOf(m, p.StepFinish)
	case *pb.Chunk_Finish:
		return finishOf(m, p.Finish)
	case *pb.Chunk_Error:
		chunk := &ErrorChunk{ChunkHeader: headerOf(m, TypeError)}
		if failure := runErrorOf(p.Error.Error); failure != nil {
			chunk.Failure = *failure
		}
		return chunk
	case *pb.Chunk_Abort:
		return &AbortChunk{headerOf(m, TypeAbort), p.Abort.Reason}
	case *pb.Chunk_Raw:
		return &RawChunk{headerOf(m, TypeRaw), jsonOf(p.Raw.Value)}
	case *pb.Chunk_Custom:
		c := p.Custom
		return &CustomChunk{headerOf(m, TypeCustom), c.Name, jsonOf(c.Data), c.Id, c.Transient}
	}
	return toolChunkOf(m)
}

// toolChunkOf reads the chunks around tool calls.
func toolChunkOf(m *pb.Chunk) Chunk {
	switch p := m.Payload.(type) {
	case *pb.Chunk_ToolCallInputStreamingStart:
		c := p.ToolCallInputStreamingStart
		return &ToolCallInputStreamingStartChunk{headerOf(m, TypeToolCallInputStreamingStart), c.ToolCallId, c.ToolName}
	case *pb.Chunk_ToolCallDelta:
		c := p.ToolCallDelta
		return &ToolCallDeltaChunk{headerOf(m, TypeToolCallDelta), c.ToolCallId, c.ToolName, c.ArgsTextDelta}
	case *pb.Chunk_ToolCallInputStreamingEnd:
		return &ToolCallInputStreamingEndChunk{
			headerOf(m, TypeToolCallInputStreamingEnd), p.ToolCallInputStreamingEnd.ToolCallId,
		}
	case *pb.Chunk_ToolCall:
		c := p.ToolCall
		return &ToolCallChunk{
			headerOf(m, TypeToolCall), c.ToolCallId, c.ToolName, jsonOf(c.Args), c.InvalidArgs, c.ProviderExecuted,
			jsonOf(c.ProviderMetadata),
		}
	case *pb.Chunk_ToolResult:
		c := p.ToolResult
		chunk := &ToolResultChunk{
			headerOf(m, TypeToolResult), c.ToolCallId, c.ToolName, jsonOf(c.Args), jsonOf(c.Result), c.ProviderExecuted,
		}
		if chunk.Result == "" {
			chunk.Result = "null"
		}
		return chunk
	case *pb.Chunk_ToolError:
		c := p.ToolError
		return &ToolErrorChunk{headerOf(m, TypeToolError), c.ToolCallId, c.ToolName, jsonOf(c.Args), c.Message, c.Code}
	case *pb.Chunk_ToolOutput:
		c := p.ToolOutput
		return &ToolOutputChunk{headerOf(m, TypeToolOutput), c.ToolCallId, c.ToolName, jsonOf(c.Output)}
	case *pb.Chunk_ToolOutputDenied:
		c := p.ToolOutputDenied
		return &ToolOutputDeniedChunk{
			headerOf(m, TypeToolOutputDenied), c.ToolCallId, c.ToolName, jsonOf(c.Args), c.Reason, jsonOf(c.ReasonJson),
		}
	case *pb.Chunk_ToolCallApproval:
		c := p.ToolCallApproval
		return &ToolCallApprovalChunk{
			headerOf(m, TypeToolCallApproval), c.PendingCallId, c.ToolCallId, c.ToolName, jsonOf(c.Args), c.ArgsDigest,
			jsonOf(c.ResumeSchema), timeOf(c.ExpireTime),
		}
	case *pb.Chunk_ToolCallSuspended:
		c := p.ToolCallSuspended
		return &ToolCallSuspendedChunk{
			headerOf(m, TypeToolCallSuspended), c.PendingCallId, c.ToolCallId, c.ToolName, jsonOf(c.Args), c.ArgsDigest,
			jsonOf(c.ResumeSchema), timeOf(c.ExpireTime), kindOf(c.Kind), jsonOf(c.SuspendPayload),
		}
	case *pb.Chunk_ToolCallResolved:
		c := p.ToolCallResolved
		return &ToolCallResolvedChunk{
			headerOf(m, TypeToolCallResolved), c.PendingCallId, c.ToolCallId, c.ToolName, verbOf(c.Verb), c.Principal,
			c.DecisionId, jsonOf(c.EditedArgs),
		}
	}
	return nil
}

func taskCompleteOf(m *pb.Chunk, p *pb.IsTaskCompleteChunk) Chunk {
	return &IsTaskCompleteChunk{
		ChunkHeader: headerOf(m, TypeIsTaskComplete),
		Iteration:   int(p.Iteration),
		Passed:      p.Passed,
		Results: mapped(p.Results, func(r *pb.IsTaskCompleteChunk_CheckResult) CheckResult {
			return CheckResult{r.Scorer, r.Score, r.Passed, r.Reason}
		}),
		TimedOut:            p.TimedOut,
		Reason:              p.Reason,
		MaxIterationReached: p.MaxIterationReached,
		SuppressFeedback:    p.SuppressFeedback,
		EndsRun:             p.EndsRun,
	}
}

func stepFinishOf(m *pb.Chunk, p *pb.StepFinishChunk) Chunk {
	return &StepFinishChunk{
		ChunkHeader:   headerOf(m, TypeStepFinish),
		MessageID:     p.MessageId,
		Reason:        finishReasonOf(p.Reason),
		IsContinued:   p.IsContinued,
		Usage:         usageOf(p.Usage),
		TotalUsage:    usageOf(p.TotalUsage),
		RawReason:     p.RawReason,
		ResponseID:    p.ResponseId,
		ResponseModel: p.ResponseModel,
		Warnings:      p.Warnings,
	}
}

func finishOf(m *pb.Chunk, p *pb.FinishChunk) Chunk {
	return &FinishChunk{
		ChunkHeader: headerOf(m, TypeFinish),
		Reason:      finishReasonOf(p.Reason),
		StopCause:   stopCauseOf(p.StopCause),
		Usage:       usageOf(p.Usage),
		OpenCalls: mapped(p.OpenCalls, func(o *pb.OpenCall) OpenCall {
			return OpenCall{o.PendingCallId, o.ToolCallId, o.ToolName, kindOf(o.Kind), pathOf(o.AgentPath)}
		}),
	}
}
