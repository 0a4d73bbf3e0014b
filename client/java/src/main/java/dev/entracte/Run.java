package dev.entracte;

import java.time.Instant;
import java.util.List;

/**
 * One execution of an agent, over any number of suspensions.
 *
 * @param runId the id
 * @param agentId the agent
 * @param state where it stands
 * @param lastSequence the sequence of its last chunk, to follow it from
 * @param step the step it is in, from 1
 * @param createTime when it was created
 * @param updateTime when its state last changed
 * @param finishTime when it ended; null while it has not
 * @param finishReason how it ended or paused; null while it executes
 * @param stopCause what ended or paused it; null while it executes
 * @param usage tokens so far
 * @param error why it failed; null when it has not
 * @param principal who started it
 * @param threadId the conversation; empty where there is none
 * @param resourceId whose memory it uses
 * @param rootRunId the root of its tree of agents; the run itself for a root
 * @param parentRunId the run that delegated to it; empty for a root
 * @param pendingCalls the calls that wait now
 * @param requestContext the values given as request context; null where none were
 * @param result what it has come to, where that was asked for; null in lists
 * @param followUps what is done about it after its end
 */
public record Run(
    String runId,
    String agentId,
    RunState state,
    long lastSequence,
    int step,
    Instant createTime,
    Instant updateTime,
    Instant finishTime,
    FinishReason finishReason,
    StopCause stopCause,
    Usage usage,
    RunError error,
    String principal,
    String threadId,
    String resourceId,
    String rootRunId,
    String parentRunId,
    List<PendingCall> pendingCalls,
    Json requestContext,
    GenerateResult result,
    List<FollowUp> followUps) {
  static Run of(dev.entracte.v1.Run m) {
    return new Run(
        m.getRunId(),
        m.getAgentId(),
        RunState.of(m.getState()),
        m.getLastSequence(),
        m.getStep(),
        Wire.time(m.hasCreateTime(), m.getCreateTime()),
        Wire.time(m.hasUpdateTime(), m.getUpdateTime()),
        Wire.time(m.hasFinishTime(), m.getFinishTime()),
        FinishReason.of(m.getFinishReason()),
        StopCause.of(m.getStopCause()),
        Usage.of(m.getUsage()),
        m.hasError() ? RunError.of(m.getError()) : null,
        m.getPrincipal(),
        m.getThreadId(),
        m.getResourceId(),
        m.getRootRunId(),
        m.getParentRunId(),
        m.getPendingCallsList().stream().map(PendingCall::of).toList(),
        Wire.json(m.hasRequestContext(), m.getRequestContext()),
        null,
        m.getFollowUpsList().stream().map(FollowUp::of).toList());
  }

  Run with(GenerateResult result) {
    return new Run(
        runId,
        agentId,
        state,
        lastSequence,
        step,
        createTime,
        updateTime,
        finishTime,
        finishReason,
        stopCause,
        usage,
        error,
        principal,
        threadId,
        resourceId,
        rootRunId,
        parentRunId,
        pendingCalls,
        requestContext,
        result,
        followUps);
  }
}
