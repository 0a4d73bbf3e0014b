package dev.entracte;

import com.google.protobuf.ByteString;
import java.time.Instant;

/**
 * What decided a pending call.
 *
 * @param decisionId the id
 * @param pendingCallId what was decided
 * @param runId the run
 * @param toolCallId the call
 * @param toolName the tool
 * @param verb how
 * @param principal who, as authenticated; {@code system} for an expiry
 * @param onBehalfOf for whom, as the caller said; not verified
 * @param decideTime when
 * @param args the arguments that were shown
 * @param editedArgs the arguments as edited by the approver; null where they were not edited
 * @param data the answer, or the client's result; null where there is none
 * @param isError whether the data is an error rather than a result
 * @param reason why it was declined, in words
 * @param reasonJson why it was declined, as data; null where there is none
 * @param comment the approver's own note, which the model does not see
 * @param requestId the request that decided
 * @param argsDigest the digest that the request carried
 */
public record Decision(
    String decisionId,
    String pendingCallId,
    String runId,
    String toolCallId,
    String toolName,
    DecisionVerb verb,
    String principal,
    String onBehalfOf,
    Instant decideTime,
    Json args,
    Json editedArgs,
    Json data,
    boolean isError,
    String reason,
    Json reasonJson,
    String comment,
    String requestId,
    ByteString argsDigest) {
  static Decision of(dev.entracte.v1.Decision m) {
    return new Decision(
        m.getDecisionId(),
        m.getPendingCallId(),
        m.getRunId(),
        m.getToolCallId(),
        m.getToolName(),
        DecisionVerb.of(m.getVerb()),
        m.getPrincipal(),
        m.getOnBehalfOf(),
        Wire.time(m.hasDecideTime(), m.getDecideTime()),
        Wire.json(m.hasArgs(), m.getArgs()),
        Wire.json(m.hasEditedArgs(), m.getEditedArgs()),
        Wire.json(m.hasData(), m.getData()),
        m.getIsError(),
        m.getReason(),
        Wire.json(m.hasReasonJson(), m.getReasonJson()),
        m.getComment(),
        m.getRequestId(),
        m.getArgsDigest());
  }
}
