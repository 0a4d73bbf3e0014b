package dev.entracte;

import com.google.protobuf.ByteString;
import java.time.Instant;
import java.util.List;

/**
 * A tool call that waits. Its id belongs to this round of waiting and is never used again, so that
 * a decision can only hit the call that was shown.
 *
 * @param pendingCallId the id to decide by
 * @param runId the run, always the root of a tree of agents
 * @param toolCallId the call
 * @param agentId the agent whose call it is
 * @param agentPath the delegations on the way to that agent
 * @param kind what it waits for, and so which decisions fit
 * @param toolName the tool
 * @param toolDescription what the tool does
 * @param args the validated arguments; exactly their text is digested and executed
 * @param argsDigest the digest of tool name and arguments, sent with an approval
 * @param suspendPayload what the tool asked; null where it asked nothing
 * @param resumeSchema the JSON Schema the answer must fit; null where any answer will do
 * @param createTime when it began to wait
 * @param expireTime the last moment at which it can be decided; null where it waits for ever
 * @param state whether it still waits
 * @param claim who has claimed it; null where nobody has
 * @param threadId the conversation; empty where there is none
 * @param resourceId whose memory the run uses
 * @param round the round of waiting of this call, from 1
 * @param decision what decided it; null while it waits
 * @param onExpiry what happens when it expires; null where it does not
 * @param defaultAnswer the answer that is then given; null where there is none
 */
public record PendingCall(
    String pendingCallId,
    String runId,
    String toolCallId,
    String agentId,
    List<PathElement> agentPath,
    PendingCallKind kind,
    String toolName,
    String toolDescription,
    Json args,
    ByteString argsDigest,
    Json suspendPayload,
    Json resumeSchema,
    Instant createTime,
    Instant expireTime,
    PendingCallState state,
    Claim claim,
    String threadId,
    String resourceId,
    int round,
    Decision decision,
    ExpiryAction onExpiry,
    Json defaultAnswer)
    implements WaitingCall {
  static PendingCall of(dev.entracte.v1.PendingCall m) {
    return new PendingCall(
        m.getPendingCallId(),
        m.getRunId(),
        m.getToolCallId(),
        m.getAgentId(),
        m.getAgentPathList().stream().map(PathElement::of).toList(),
        PendingCallKind.of(m.getKind()),
        m.getToolName(),
        m.getToolDescription(),
        Wire.json(m.hasArgs(), m.getArgs()),
        m.getArgsDigest(),
        Wire.json(m.hasSuspendPayload(), m.getSuspendPayload()),
        Wire.json(m.hasResumeSchema(), m.getResumeSchema()),
        Wire.time(m.hasCreateTime(), m.getCreateTime()),
        Wire.time(m.hasExpireTime(), m.getExpireTime()),
        PendingCallState.of(m.getState()),
        m.hasClaim() ? Claim.of(m.getClaim()) : null,
        m.getThreadId(),
        m.getResourceId(),
        m.getRound(),
        m.hasDecision() ? Decision.of(m.getDecision()) : null,
        ExpiryAction.of(m.getOnExpiry()),
        Wire.json(m.hasDefaultAnswer(), m.getDefaultAnswer()));
  }
}
