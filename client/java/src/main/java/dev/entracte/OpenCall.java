package dev.entracte;

import java.util.List;

/**
 * One waiting call of a parked run, in short. Each was announced in full by its own chunk.
 *
 * @param pendingCallId the id to decide by
 * @param toolCallId the call
 * @param toolName the tool
 * @param kind what it waits for
 * @param agentPath the delegations on the way to the sub-agent whose call it is
 */
public record OpenCall(
    String pendingCallId,
    String toolCallId,
    String toolName,
    PendingCallKind kind,
    List<PathElement> agentPath)
    implements WaitingCall {
  static OpenCall of(dev.entracte.v1.OpenCall m) {
    return new OpenCall(
        m.getPendingCallId(),
        m.getToolCallId(),
        m.getToolName(),
        PendingCallKind.of(m.getKind()),
        m.getAgentPathList().stream().map(PathElement::of).toList());
  }
}
