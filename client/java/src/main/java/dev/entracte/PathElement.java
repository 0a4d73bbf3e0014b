package dev.entracte;

/**
 * One delegation on the way to a sub-agent.
 *
 * @param agentId the sub-agent
 * @param toolCallId the call that delegated to it
 */
public record PathElement(String agentId, String toolCallId) {
  static PathElement of(dev.entracte.v1.PathElement m) {
    return new PathElement(m.getAgentId(), m.getToolCallId());
  }
}
