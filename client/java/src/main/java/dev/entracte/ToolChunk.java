package dev.entracte;

import com.google.protobuf.ByteString;
import java.time.Instant;

/** An event around a tool call: a record for each type. */
public sealed interface ToolChunk extends Chunk
    permits ToolChunk.InputStart,
        ToolChunk.InputDelta,
        ToolChunk.InputEnd,
        ToolChunk.Call,
        ToolChunk.Result,
        ToolChunk.Failed,
        ToolChunk.Output,
        ToolChunk.Denied,
        ToolChunk.Approval,
        ToolChunk.Suspended,
        ToolChunk.Resolved {
  /**
   * The call.
   *
   * @return its id, the same in all chunks about it
   */
  String toolCallId();

  /**
   * The arguments of a tool call begin to arrive.
   *
   * @param header what every chunk has
   * @param toolCallId the call
   * @param toolName the tool
   */
  record InputStart(ChunkHeader header, String toolCallId, String toolName) implements ToolChunk {
    static InputStart of(ChunkHeader h, dev.entracte.v1.ToolCallInputStreamingStartChunk m) {
      return new InputStart(h, m.getToolCallId(), m.getToolName());
    }

    @Override
    public String type() {
      return "tool-call-input-streaming-start";
    }
  }

  /**
   * A piece of the arguments' text, not JSON by itself.
   *
   * @param header what every chunk has
   * @param toolCallId the call
   * @param toolName the tool
   * @param argsTextDelta the piece
   */
  record InputDelta(ChunkHeader header, String toolCallId, String toolName, String argsTextDelta)
      implements ToolChunk {
    static InputDelta of(ChunkHeader h, dev.entracte.v1.ToolCallDeltaChunk m) {
      return new InputDelta(h, m.getToolCallId(), m.getToolName(), m.getArgsTextDelta());
    }

    @Override
    public String type() {
      return "tool-call-delta";
    }
  }

  /**
   * The arguments are complete.
   *
   * @param header what every chunk has
   * @param toolCallId the call
   */
  record InputEnd(ChunkHeader header, String toolCallId) implements ToolChunk {
    static InputEnd of(ChunkHeader h, dev.entracte.v1.ToolCallInputStreamingEndChunk m) {
      return new InputEnd(h, m.getToolCallId());
    }

    @Override
    public String type() {
      return "tool-call-input-streaming-end";
    }
  }

  /**
   * A complete tool call.
   *
   * @param header what every chunk has
   * @param toolCallId the call
   * @param toolName the tool
   * @param args the arguments; null where they were no object
   * @param invalidArgs what the model sent when that is no JSON object: such a call is not
   *     executed; null otherwise
   * @param providerExecuted whether the provider executes the tool itself
   * @param providerMetadata what the provider attached; null where it attached nothing
   */
  record Call(
      ChunkHeader header,
      String toolCallId,
      String toolName,
      Json args,
      String invalidArgs,
      boolean providerExecuted,
      Json providerMetadata)
      implements ToolChunk {
    static Call of(ChunkHeader h, dev.entracte.v1.ToolCallChunk m) {
      return new Call(
          h,
          m.getToolCallId(),
          m.getToolName(),
          Wire.json(m.hasArgs(), m.getArgs()),
          m.hasInvalidArgs() ? m.getInvalidArgs() : null,
          m.getProviderExecuted(),
          Wire.json(m.hasProviderMetadata(), m.getProviderMetadata()));
    }

    @Override
    public String type() {
      return "tool-call";
    }
  }

  /**
   * A tool returned.
   *
   * @param header what every chunk has
   * @param toolCallId the call
   * @param toolName the tool
   * @param args the arguments, as the model wrote them or a reviewer edited them
   * @param result what it returned; the value null for a tool that returns nothing
   * @param providerExecuted whether the provider executed the tool itself
   */
  record Result(
      ChunkHeader header,
      String toolCallId,
      String toolName,
      Json args,
      Json result,
      boolean providerExecuted)
      implements ToolChunk {
    static Result of(ChunkHeader h, dev.entracte.v1.ToolResultChunk m) {
      return new Result(
          h,
          m.getToolCallId(),
          m.getToolName(),
          Wire.json(m.hasArgs(), m.getArgs()),
          m.hasResult() ? Json.ofText(m.getResult().getText()) : Json.NULL,
          m.getProviderExecuted());
    }

    @Override
    public String type() {
      return "tool-result";
    }
  }

  /**
   * A tool call failed; the model is told and goes on.
   *
   * @param header what every chunk has
   * @param toolCallId the call
   * @param toolName the tool
   * @param args the arguments; null where they were no object
   * @param message what went wrong, as the model is told
   * @param code the kind of failure, for example {@code invalid-args}, {@code unknown-tool}, {@code
   *     exception} or {@code timeout}
   */
  record Failed(
      ChunkHeader header,
      String toolCallId,
      String toolName,
      Json args,
      String message,
      String code)
      implements ToolChunk {
    static Failed of(ChunkHeader h, dev.entracte.v1.ToolErrorChunk m) {
      return new Failed(
          h,
          m.getToolCallId(),
          m.getToolName(),
          Wire.json(m.hasArgs(), m.getArgs()),
          m.getMessage(),
          m.getCode());
    }

    @Override
    public String type() {
      return "tool-error";
    }
  }

  /**
   * A running tool reports.
   *
   * @param header what every chunk has
   * @param toolCallId the call
   * @param toolName the tool
   * @param output what it reports
   */
  record Output(ChunkHeader header, String toolCallId, String toolName, Json output)
      implements ToolChunk {
    static Output of(ChunkHeader h, dev.entracte.v1.ToolOutputChunk m) {
      return new Output(
          h, m.getToolCallId(), m.getToolName(), Wire.json(m.hasOutput(), m.getOutput()));
    }

    @Override
    public String type() {
      return "tool-output";
    }
  }

  /**
   * A call was declined; its tool was not entered.
   *
   * @param header what every chunk has
   * @param toolCallId the call
   * @param toolName the tool
   * @param args the arguments; null where they were no object
   * @param reason why, in words; what the model is told
   * @param reasonJson why, as data; null where there is none
   */
  record Denied(
      ChunkHeader header,
      String toolCallId,
      String toolName,
      Json args,
      String reason,
      Json reasonJson)
      implements ToolChunk {
    static Denied of(ChunkHeader h, dev.entracte.v1.ToolOutputDeniedChunk m) {
      return new Denied(
          h,
          m.getToolCallId(),
          m.getToolName(),
          Wire.json(m.hasArgs(), m.getArgs()),
          m.getReason(),
          Wire.json(m.hasReasonJson(), m.getReasonJson()));
    }

    @Override
    public String type() {
      return "tool-output-denied";
    }
  }

  /**
   * A call waits for approval: {@code agent.approve} and {@code agent.decline} take this chunk.
   *
   * @param header what every chunk has
   * @param pendingCallId what to decide
   * @param toolCallId the call
   * @param toolName the tool
   * @param args the arguments that will be used, validated
   * @param argsDigest the digest of tool name and arguments, sent with the approval
   * @param resumeSchema the schema of what an approval may carry; null for nothing
   * @param expireTime the last moment at which it can be decided; null where it waits for ever
   */
  record Approval(
      ChunkHeader header,
      String pendingCallId,
      String toolCallId,
      String toolName,
      Json args,
      ByteString argsDigest,
      Json resumeSchema,
      Instant expireTime)
      implements ToolChunk, WaitingCall {
    static Approval of(ChunkHeader h, dev.entracte.v1.ToolCallApprovalChunk m) {
      return new Approval(
          h,
          m.getPendingCallId(),
          m.getToolCallId(),
          m.getToolName(),
          Wire.json(m.hasArgs(), m.getArgs()),
          m.getArgsDigest(),
          Wire.json(m.hasResumeSchema(), m.getResumeSchema()),
          Wire.time(m.hasExpireTime(), m.getExpireTime()));
    }

    @Override
    public String type() {
      return "tool-call-approval";
    }

    @Override
    public String runId() {
      return header.runId();
    }
  }

  /**
   * A call waits for something other than approval: {@code agent.resume}, {@code
   * agent.submitToolResult} and {@code agent.decline} take this chunk.
   *
   * @param header what every chunk has
   * @param pendingCallId what to answer
   * @param toolCallId the call
   * @param toolName the tool
   * @param args the arguments
   * @param kind what it waits for
   * @param suspendPayload what the tool asks; null where it asks nothing
   * @param resumeSchema the JSON Schema of the answer; null where there is none
   * @param argsDigest the digest of tool name and arguments
   * @param expireTime the last moment at which it can be answered; null where it waits for ever
   */
  record Suspended(
      ChunkHeader header,
      String pendingCallId,
      String toolCallId,
      String toolName,
      Json args,
      PendingCallKind kind,
      Json suspendPayload,
      Json resumeSchema,
      ByteString argsDigest,
      Instant expireTime)
      implements ToolChunk, WaitingCall {
    static Suspended of(ChunkHeader h, dev.entracte.v1.ToolCallSuspendedChunk m) {
      return new Suspended(
          h,
          m.getPendingCallId(),
          m.getToolCallId(),
          m.getToolName(),
          Wire.json(m.hasArgs(), m.getArgs()),
          PendingCallKind.of(m.getKind()),
          Wire.json(m.hasSuspendPayload(), m.getSuspendPayload()),
          Wire.json(m.hasResumeSchema(), m.getResumeSchema()),
          m.getArgsDigest(),
          Wire.time(m.hasExpireTime(), m.getExpireTime()));
    }

    @Override
    public String type() {
      return "tool-call-suspended";
    }

    @Override
    public String runId() {
      return header.runId();
    }
  }

  /**
   * A waiting call was decided.
   *
   * @param header what every chunk has
   * @param pendingCallId what was decided
   * @param toolCallId the call
   * @param toolName the tool
   * @param verb how
   * @param principal who decided, as authenticated; {@code system} for an expiry
   * @param decisionId the entry in the audit
   * @param editedArgs the arguments as the reviewer edited them; null where they were not edited
   */
  record Resolved(
      ChunkHeader header,
      String pendingCallId,
      String toolCallId,
      String toolName,
      DecisionVerb verb,
      String principal,
      String decisionId,
      Json editedArgs)
      implements ToolChunk {
    static Resolved of(ChunkHeader h, dev.entracte.v1.ToolCallResolvedChunk m) {
      return new Resolved(
          h,
          m.getPendingCallId(),
          m.getToolCallId(),
          m.getToolName(),
          DecisionVerb.of(m.getVerb()),
          m.getPrincipal(),
          m.getDecisionId(),
          Wire.json(m.hasEditedArgs(), m.getEditedArgs()));
    }

    @Override
    public String type() {
      return "tool-call-resolved";
    }
  }
}
