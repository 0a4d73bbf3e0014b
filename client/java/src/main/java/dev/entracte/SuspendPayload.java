package dev.entracte;

/**
 * The first waiting call of a parked run; the pending calls of the result have all of them.
 *
 * @param toolCallId the call
 * @param toolName the tool
 * @param args its arguments
 * @param suspendPayload what the tool asked; null for an approval
 * @param resumeSchema the JSON Schema of the answer; null where there is none
 */
public record SuspendPayload(
    String toolCallId, String toolName, Json args, Json suspendPayload, Json resumeSchema) {
  static SuspendPayload of(dev.entracte.v1.SuspendPayload m) {
    return new SuspendPayload(
        m.getToolCallId(),
        m.getToolName(),
        Wire.json(m.hasArgs(), m.getArgs()),
        Wire.json(m.hasSuspendPayload(), m.getSuspendPayload()),
        Wire.json(m.hasResumeSchema(), m.getResumeSchema()));
  }
}
