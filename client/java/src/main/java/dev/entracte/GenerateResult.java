package dev.entracte;

import java.util.List;

/**
 * What a run has come to: its final result, or what there is so far when it is parked or was
 * cancelled.
 *
 * <p>A run that failed is a result too: the finish reason is {@code ERROR}, and {@code error} says
 * why. {@code generate}, a stream's result, a decision and a run that is read give the same.
 *
 * @param runId the run
 * @param text the text of all steps, one after the other
 * @param object the validated structured output; null where there is none
 * @param toolCalls the tool calls of all steps
 * @param toolResults what the tools returned; failed and declined calls have none
 * @param usage tokens of the whole run
 * @param steps each step
 * @param finishReason how it ended; null while it has not
 * @param stopCause what ended it; null while it has not
 * @param response the last answer of the model
 * @param request the last request to the model
 * @param warnings warnings of all steps
 * @param providerMetadata what the provider attached to the last answer; null where there is
 *     nothing
 * @param reasoning the model's thinking, piece by piece
 * @param reasoningText the model's thinking as one text
 * @param sources what the model cited
 * @param files the files the model made
 * @param suspendPayload the first call that waits; null when none does
 * @param pendingCalls all calls that wait
 * @param traceId the trace; empty where tracing is off
 * @param spanId the root span; empty where tracing is off
 * @param messages the input and all that came of it
 * @param rememberedMessages messages loaded from the thread
 * @param error why the run failed; null when it has not
 * @param tripwire what a processor said when it stopped the run; null when none did
 * @param scoringData what scorers would see, with {@code returnScorerData}; null otherwise
 * @param usedFallbackValue whether the object is the fallback value
 * @param autoResumeError why a message did not answer a waiting call; empty otherwise
 */
public record GenerateResult(
    String runId,
    String text,
    Json object,
    List<ToolChunk.Call> toolCalls,
    List<ToolChunk.Result> toolResults,
    Usage usage,
    List<StepResult> steps,
    FinishReason finishReason,
    StopCause stopCause,
    ResponseInfo response,
    RequestInfo request,
    List<String> warnings,
    Json providerMetadata,
    List<MessagePart.Reasoning> reasoning,
    String reasoningText,
    List<Source> sources,
    List<GeneratedFile> files,
    SuspendPayload suspendPayload,
    List<PendingCall> pendingCalls,
    String traceId,
    String spanId,
    List<Message> messages,
    List<Message> rememberedMessages,
    RunError error,
    Tripwire tripwire,
    ScoringData scoringData,
    boolean usedFallbackValue,
    String autoResumeError) {
  static GenerateResult of(dev.entracte.v1.GenerateResult m) {
    return new GenerateResult(
        m.getRunId(),
        m.getText(),
        Wire.json(m.hasObject(), m.getObject()),
        Wire.toolCalls(m.getToolCallsList()),
        Wire.toolResults(m.getToolResultsList()),
        Usage.of(m.getUsage()),
        m.getStepsList().stream().map(StepResult::of).toList(),
        FinishReason.of(m.getFinishReason()),
        StopCause.of(m.getStopCause()),
        ResponseInfo.of(m.getResponse()),
        RequestInfo.of(m.getRequest()),
        List.copyOf(m.getWarningsList()),
        Wire.json(m.hasProviderMetadata(), m.getProviderMetadata()),
        m.getReasoningList().stream().map(MessagePart.Reasoning::of).toList(),
        m.getReasoningText(),
        m.getSourcesList().stream().map(Source::of).toList(),
        m.getFilesList().stream().map(GeneratedFile::of).toList(),
        m.hasSuspendPayload() ? SuspendPayload.of(m.getSuspendPayload()) : null,
        m.getPendingCallsList().stream().map(PendingCall::of).toList(),
        m.getTraceId(),
        m.getSpanId(),
        m.getMessagesList().stream().map(Message::of).toList(),
        m.getRememberedMessagesList().stream().map(Message::of).toList(),
        m.hasError() ? RunError.of(m.getError()) : null,
        m.hasTripwire() ? Tripwire.of(m.getTripwire()) : null,
        m.hasScoringData() ? ScoringData.of(m.getScoringData()) : null,
        m.getUsedFallbackValue(),
        m.getAutoResumeError());
  }
}
