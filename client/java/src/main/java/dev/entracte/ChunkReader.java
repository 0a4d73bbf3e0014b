package dev.entracte;

import java.util.List;

/** Chunks from the wire. */
final class ChunkReader {
  private ChunkReader() {}

  /** Reads a chunk; null when this version does not know its payload. */
  static Chunk read(dev.entracte.v1.Chunk m) {
    ChunkHeader h = header(m);
    return switch (m.getPayloadCase()) {
      case START -> Chunk.Start.of(h, m.getStart());
      case STEP_START -> Chunk.StepStart.of(h, m.getStepStart());
      case TEXT_START -> Chunk.TextStart.of(h, m.getTextStart());
      case TEXT_DELTA -> Chunk.TextDelta.of(h, m.getTextDelta());
      case TEXT_END -> Chunk.TextEnd.of(h, m.getTextEnd());
      case REASONING_START -> Chunk.ReasoningStart.of(h, m.getReasoningStart());
      case REASONING_DELTA -> Chunk.ReasoningDelta.of(h, m.getReasoningDelta());
      case REASONING_END -> Chunk.ReasoningEnd.of(h, m.getReasoningEnd());
      case REASONING_SIGNATURE -> Chunk.ReasoningSignature.of(h, m.getReasoningSignature());
      case REDACTED_REASONING -> Chunk.RedactedReasoning.of(h, m.getRedactedReasoning());
      case SOURCE_REFERENCE -> Chunk.SourceCited.of(h, m.getSourceReference());
      case FILE -> Chunk.FileMade.of(h, m.getFile());
      case OBJECT -> Chunk.PartialObject.of(h, m.getObject());
      case OBJECT_RESULT -> Chunk.ObjectResult.of(h, m.getObjectResult());
      case IS_TASK_COMPLETE -> Chunk.IsTaskComplete.of(h, m.getIsTaskComplete());
      case TRIPWIRE -> Chunk.TripwireHit.of(h, m.getTripwire());
      case STEP_FINISH -> Chunk.StepFinish.of(h, m.getStepFinish());
      case FINISH -> Chunk.Finish.of(h, m.getFinish());
      case ERROR -> Chunk.Failure.of(h, m.getError());
      case ABORT -> Chunk.Abort.of(h, m.getAbort());
      case RAW -> Chunk.Raw.of(h, m.getRaw());
      case CUSTOM -> Chunk.Custom.of(h, m.getCustom());
      case TOOL_CALL_INPUT_STREAMING_START ->
          ToolChunk.InputStart.of(h, m.getToolCallInputStreamingStart());
      case TOOL_CALL_DELTA -> ToolChunk.InputDelta.of(h, m.getToolCallDelta());
      case TOOL_CALL_INPUT_STREAMING_END ->
          ToolChunk.InputEnd.of(h, m.getToolCallInputStreamingEnd());
      case TOOL_CALL -> ToolChunk.Call.of(h, m.getToolCall());
      case TOOL_RESULT -> ToolChunk.Result.of(h, m.getToolResult());
      case TOOL_ERROR -> ToolChunk.Failed.of(h, m.getToolError());
      case TOOL_OUTPUT -> ToolChunk.Output.of(h, m.getToolOutput());
      case TOOL_OUTPUT_DENIED -> ToolChunk.Denied.of(h, m.getToolOutputDenied());
      case TOOL_CALL_APPROVAL -> ToolChunk.Approval.of(h, m.getToolCallApproval());
      case TOOL_CALL_SUSPENDED -> ToolChunk.Suspended.of(h, m.getToolCallSuspended());
      case TOOL_CALL_RESOLVED -> ToolChunk.Resolved.of(h, m.getToolCallResolved());
      case PAYLOAD_NOT_SET -> null;
    };
  }

  private static ChunkHeader header(dev.entracte.v1.Chunk m) {
    List<PathElement> path =
        m.getAgentPathCount() == 0
            ? List.of()
            : m.getAgentPathList().stream().map(PathElement::of).toList();
    return new ChunkHeader(
        m.getRunId(),
        m.getSequence(),
        Wire.time(m.hasEmitTime(), m.getEmitTime()),
        ChunkSource.of(m.getSource()),
        m.getStep(),
        m.getAttempt(),
        path,
        m.getIgnorable());
  }
}
