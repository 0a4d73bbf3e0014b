package dev.entracte;

import com.google.protobuf.ByteString;
import dev.entracte.v1.AgentServiceGrpc;
import dev.entracte.v1.ApproveRequest;
import dev.entracte.v1.ApproveResponse;
import dev.entracte.v1.CallRef;
import dev.entracte.v1.DeclineRequest;
import dev.entracte.v1.DeclineResponse;
import dev.entracte.v1.ResumeRequest;
import dev.entracte.v1.ResumeResponse;
import dev.entracte.v1.SubmitToolResultRequest;
import dev.entracte.v1.SubmitToolResultResponse;
import java.time.Duration;

/** A decision that is to be made: the request of one of the four verbs. */
interface Verb {
  /**
   * What became of the run.
   *
   * @param run the run
   * @param decision the decision
   * @param result what the run has come to, where that was waited for
   * @param replayed whether an earlier request had decided it
   */
  record Outcome(
      dev.entracte.v1.Run run,
      dev.entracte.v1.Decision decision,
      dev.entracte.v1.GenerateResult result,
      boolean replayed) {}

  /** Makes the decision, and waits for what comes of it or not. */
  Outcome decide(Connection connection, boolean wait, Duration within, String traceparent);

  /** The call as the server is told it. Throws IllegalArgumentException when nothing names it. */
  private static CallRef ref(WaitingCall call) {
    if (!call.pendingCallId().isEmpty()) {
      return CallRef.newBuilder().setPendingCallId(call.pendingCallId()).build();
    }
    if (call.runId().isEmpty()) {
      throw new IllegalArgumentException(
          "name the call: give a pending call, its id, or its run and tool call id");
    }
    return CallRef.newBuilder().setRunId(call.runId()).setToolCallId(call.toolCallId()).build();
  }

  static Verb resume(WaitingCall call, Json answer, DecisionOptions options) {
    ResumeRequest request =
        ResumeRequest.newBuilder()
            .setCall(ref(call))
            .setResumeData(answer.wire())
            .setRequestId(options.settings().anyRequestId())
            .setOnBehalfOf(options.onBehalfOf())
            .setComment(options.comment())
            .build();
    return (connection, wait, within, traceparent) -> {
      ResumeResponse r =
          connection.call(
              AgentServiceGrpc.getResumeMethod(),
              request.toBuilder().setWait(wait).build(),
              within,
              traceparent);
      return new Outcome(r.getRun(), r.getDecision(), r.getResult(), r.getReplayed());
    };
  }

  static Verb approve(WaitingCall call, Json editedArgs, DecisionOptions options) {
    ByteString digest = call.argsDigest();
    ApproveRequest.Builder draft =
        ApproveRequest.newBuilder()
            .setCall(ref(call))
            .setArgsDigest(digest)
            .setRequestId(options.settings().anyRequestId())
            .setOnBehalfOf(options.onBehalfOf())
            .setComment(options.comment());
    if (editedArgs != null) {
      draft.setEditedArgs(editedArgs.wire());
    }
    ApproveRequest request = draft.build();
    return (connection, wait, within, traceparent) -> {
      ApproveResponse r =
          connection.call(
              AgentServiceGrpc.getApproveMethod(),
              request.toBuilder().setWait(wait).build(),
              within,
              traceparent);
      return new Outcome(r.getRun(), r.getDecision(), r.getResult(), r.getReplayed());
    };
  }

  static Verb decline(WaitingCall call, String reason, Json data, DecisionOptions options) {
    DeclineRequest.Builder draft =
        DeclineRequest.newBuilder()
            .setCall(ref(call))
            .setReason(reason)
            .setRequestId(options.settings().anyRequestId())
            .setOnBehalfOf(options.onBehalfOf())
            .setComment(options.comment());
    if (data != null) {
      draft.setReasonJson(data.wire());
    }
    DeclineRequest request = draft.build();
    return (connection, wait, within, traceparent) -> {
      DeclineResponse r =
          connection.call(
              AgentServiceGrpc.getDeclineMethod(),
              request.toBuilder().setWait(wait).build(),
              within,
              traceparent);
      return new Outcome(r.getRun(), r.getDecision(), r.getResult(), r.getReplayed());
    };
  }

  /** Hands in a result, or an error where the result is null. */
  static Verb submit(WaitingCall call, Json result, String error, DecisionOptions options) {
    SubmitToolResultRequest.Builder draft =
        SubmitToolResultRequest.newBuilder()
            .setCall(ref(call))
            .setRequestId(options.settings().anyRequestId())
            .setOnBehalfOf(options.onBehalfOf())
            .setComment(options.comment());
    SubmitToolResultRequest request =
        (result == null ? draft.setError(error) : draft.setResult(result.wire())).build();
    return (connection, wait, within, traceparent) -> {
      SubmitToolResultResponse r =
          connection.call(
              AgentServiceGrpc.getSubmitToolResultMethod(),
              request.toBuilder().setWait(wait).build(),
              within,
              traceparent);
      return new Outcome(r.getRun(), r.getDecision(), r.getResult(), r.getReplayed());
    };
  }
}
