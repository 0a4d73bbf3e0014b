package dev.entracte;

import com.google.protobuf.ByteString;

/**
 * A call that waits and can be decided: a {@link PendingCall} of a result or of the inbox, the
 * chunk that announced it, or its name alone.
 */
public sealed interface WaitingCall
    permits PendingCall, OpenCall, ToolChunk.Approval, ToolChunk.Suspended, WaitingCall.Named {

  /**
   * The id of the round of waiting.
   *
   * @return the pending call id; empty where the call is named by its run
   */
  String pendingCallId();

  /**
   * The call.
   *
   * @return the tool call id; empty where it is not known
   */
  String toolCallId();

  /**
   * The run.
   *
   * @return the run id; empty where it is not known
   */
  default String runId() {
    return "";
  }

  /**
   * The digest of what was shown, which proves what an approver saw.
   *
   * @return the digest; empty where nothing was shown
   */
  default ByteString argsDigest() {
    return ByteString.EMPTY;
  }

  /**
   * Names a call by its pending call id alone, without proof of what was seen.
   *
   * @param pendingCallId the id
   * @return the call
   */
  static WaitingCall byId(String pendingCallId) {
    return new Named(pendingCallId, "", "");
  }

  /**
   * Names a call of a run.
   *
   * @param runId the run
   * @param toolCallId the call
   * @return the call
   */
  static WaitingCall of(String runId, String toolCallId) {
    return new Named("", runId, toolCallId);
  }

  /**
   * Names the only call of a run. The server refuses it unless exactly one waits and none of the
   * run was ever decided.
   *
   * @param runId the run
   * @return the call
   */
  static WaitingCall onlyOneOf(String runId) {
    return new Named("", runId, "");
  }

  /**
   * A call by name.
   *
   * @param pendingCallId its id, or empty
   * @param runId its run, or empty
   * @param toolCallId its tool call id, or empty
   */
  record Named(String pendingCallId, String runId, String toolCallId) implements WaitingCall {}
}
