package dev.entracte;

import java.util.List;

/**
 * One step of a run.
 *
 * @param step the step, from 1
 * @param text its text
 * @param toolCalls its tool calls
 * @param toolResults what the tools returned
 * @param finishReason how the model's answer ended; null while it has not
 * @param usage its tokens
 * @param request the request to the model; null in what a stream was folded to
 * @param response the answer of the model; null in what a stream was folded to
 * @param reasoningText its thinking
 * @param tripwire what a processor said when it vetoed the step; null otherwise
 * @param isDraft whether a completion check failed, so that its text is not the result's
 */
public record StepResult(
    int step,
    String text,
    List<ToolChunk.Call> toolCalls,
    List<ToolChunk.Result> toolResults,
    FinishReason finishReason,
    Usage usage,
    RequestInfo request,
    ResponseInfo response,
    String reasoningText,
    Tripwire tripwire,
    boolean isDraft) {
  static StepResult of(dev.entracte.v1.StepResult m) {
    return new StepResult(
        m.getStep(),
        m.getText(),
        Wire.toolCalls(m.getToolCallsList()),
        Wire.toolResults(m.getToolResultsList()),
        FinishReason.of(m.getFinishReason()),
        Usage.of(m.getUsage()),
        m.hasRequest() ? RequestInfo.of(m.getRequest()) : null,
        m.hasResponse() ? ResponseInfo.of(m.getResponse()) : null,
        m.getReasoningText(),
        m.hasTripwire() ? Tripwire.of(m.getTripwire()) : null,
        m.getIsDraft());
  }
}
