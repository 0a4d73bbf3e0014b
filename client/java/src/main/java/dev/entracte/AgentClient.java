package dev.entracte;

import dev.entracte.errors.EntracteException;
import dev.entracte.v1.AgentServiceGrpc;
import dev.entracte.v1.GenerateRequest;
import dev.entracte.v1.StreamRequest;
import java.time.Duration;
import java.util.List;

/**
 * One agent of a server; {@link EntracteClient#agent} makes it, without asking whether it exists.
 *
 * <p>A run that failed is a result, not an exception. What the server refuses is an {@link
 * EntracteException}: {@code AgentNotFoundException}, {@code OptionUnsupportedException}, and of
 * decisions {@code PendingCallAlreadyDecidedException}, {@code PendingCallExpiredException}, {@code
 * PendingCallClaimedException}, {@code VerbMismatchException} and so on. Decisions wait until the
 * run next parks or ends; those named {@code ...Stream} give what comes of it as a stream, and
 * {@link RunStream#commit()} of one does not wait. Safe for use by several threads.
 */
public final class AgentClient {
  private final Connection connection;
  private final String id;

  AgentClient(Connection connection, String id) {
    this.connection = connection;
    this.id = id;
  }

  /**
   * The id of the agent.
   *
   * @return the id
   */
  public String id() {
    return id;
  }

  /**
   * Starts a run with a user's message and waits until it parks or ends.
   *
   * @param message what the user says
   * @return what it has come to
   */
  public GenerateResult generate(String message) {
    return generate(message, GenerateOptions.defaults());
  }

  /**
   * Starts a run with a user's message and waits until it parks or ends.
   *
   * @param message what the user says
   * @param options how it is to be done
   * @return what it has come to
   */
  public GenerateResult generate(String message, GenerateOptions options) {
    return generate(List.of(Message.user(message)), options);
  }

  /**
   * Starts a run and waits until it parks or ends.
   *
   * <p>Client tools that have a function are executed as the run calls for them, so that it parks
   * only for something else. When the connection breaks, the request is made again and joins the
   * run it had started.
   *
   * @param messages the input
   * @param options how it is to be done
   * @return what it has come to
   */
  public GenerateResult generate(List<Message> messages, GenerateOptions options) {
    CallSettings settings = options.settings();
    if (settings.needStream()) {
      try (RunStream stream = stream(messages, options)) {
        return stream.result();
      }
    }
    GenerateRequest request =
        GenerateRequest.newBuilder()
            .setAgentId(id)
            .addAllMessages(Message.wire(messages))
            .setOptions(identified(options))
            .setRequestId(settings.anyRequestId())
            .build();
    return GenerateResult.of(
        connection
            .call(
                AgentServiceGrpc.getGenerateMethod(),
                request,
                settings.timeout(),
                settings.traceparent())
            .getResult());
  }

  /**
   * A run, started with a user's message, as the stream of its chunks.
   *
   * @param message what the user says
   * @return the stream; the run starts when its first chunk is asked for
   */
  public RunStream stream(String message) {
    return stream(message, GenerateOptions.defaults());
  }

  /**
   * A run, started with a user's message, as the stream of its chunks.
   *
   * @param message what the user says
   * @param options how it is to be done
   * @return the stream; the run starts when its first chunk is asked for
   */
  public RunStream stream(String message, GenerateOptions options) {
    return stream(List.of(Message.user(message)), options);
  }

  /**
   * A run as the stream of its chunks. Client tools that have a function are executed as the run
   * calls for them, and the stream goes on.
   *
   * @param messages the input
   * @param options how it is to be done
   * @return the stream; the run starts when its first chunk is asked for
   */
  public RunStream stream(List<Message> messages, GenerateOptions options) {
    CallSettings settings = options.settings();
    StreamRequest request =
        StreamRequest.newBuilder()
            .setAgentId(id)
            .addAllMessages(Message.wire(messages))
            .setOptions(identified(options))
            .setRequestId(settings.anyRequestId())
            .build();
    String runId = request.getOptions().getRunId();
    return new RunStream(
        connection,
        () ->
            new Beginning(
                new Follower(connection, new Deadline(settings.timeout()), runId, 0, false)
                    .startWith(
                        remaining ->
                            connection.open(
                                AgentServiceGrpc.getStreamMethod(),
                                request,
                                remaining,
                                settings.traceparent())),
                null),
        runId,
        settings.callbacks(),
        settings.clientTools());
  }

  /**
   * Answers a tool that asked something, and waits until the run next parks or ends. Refused with
   * ResumeDataInvalidException where the answer does not fit; the call still waits.
   *
   * @param call the call: from a result, from the inbox, the chunk that announced it, or a name of
   *     it
   * @param answer any value that {@link Json#of} takes; it must fit the resume schema of the call
   * @return what the run has come to
   */
  public GenerateResult resume(WaitingCall call, Object answer) {
    return resume(call, answer, DecisionOptions.defaults());
  }

  /**
   * Answers a tool that asked something, and waits until the run next parks or ends. Refused with
   * ResumeDataInvalidException where the answer does not fit; the call still waits.
   *
   * @param call the call: from a result, from the inbox, the chunk that announced it, or a name of
   *     it
   * @param answer any value that {@link Json#of} takes; it must fit the resume schema of the call
   * @param options how it is decided
   * @return what the run has come to
   */
  public GenerateResult resume(WaitingCall call, Object answer, DecisionOptions options) {
    return decided(Verb.resume(call, Json.of(answer), options), call, options);
  }

  /**
   * Answers a tool that asked something, as the stream of what comes of it.
   *
   * @param call the call: from a result, from the inbox, the chunk that announced it, or a name of
   *     it
   * @param answer any value that {@link Json#of} takes; it must fit the resume schema of the call
   * @param options how it is decided
   * @return the stream; the decision is made when its first chunk is asked for
   */
  public RunStream resumeStream(WaitingCall call, Object answer, DecisionOptions options) {
    return following(Verb.resume(call, Json.of(answer), options), call, options);
  }

  /**
   * Approves a call. The digest of what the call showed is sent along: should the call on the
   * server differ from it, it is refused, and waits until the run next parks or ends.
   *
   * @param call the call: from a result, from the inbox, the chunk that announced it, or a name of
   *     it
   * @return what the run has come to
   */
  public GenerateResult approve(WaitingCall call) {
    return approve(call, DecisionOptions.defaults());
  }

  /**
   * Approves a call. The digest of what the call showed is sent along: should the call on the
   * server differ from it, it is refused, and waits until the run next parks or ends.
   *
   * @param call the call: from a result, from the inbox, the chunk that announced it, or a name of
   *     it
   * @param options how it is decided
   * @return what the run has come to
   */
  public GenerateResult approve(WaitingCall call, DecisionOptions options) {
    return decided(Verb.approve(call, null, options), call, options);
  }

  /**
   * Approves a call. The digest of what the call showed is sent along: should the call on the
   * server differ from it, it is refused, as the stream of what comes of it.
   *
   * @param call the call: from a result, from the inbox, the chunk that announced it, or a name of
   *     it
   * @param options how it is decided
   * @return the stream; the decision is made when its first chunk is asked for
   */
  public RunStream approveStream(WaitingCall call, DecisionOptions options) {
    return following(Verb.approve(call, null, options), call, options);
  }

  /**
   * Approves a call with other arguments than those shown, and waits until the run next parks or
   * ends. Refused with EditedArgsInvalidException where they do not fit the schema of the tool; the
   * call still waits.
   *
   * @param call the call: from a result, from the inbox, the chunk that announced it, or a name of
   *     it
   * @param editedArgs the arguments to use, an object
   * @return what the run has come to
   */
  public GenerateResult approveEdited(WaitingCall call, Object editedArgs) {
    return approveEdited(call, editedArgs, DecisionOptions.defaults());
  }

  /**
   * Approves a call with other arguments than those shown, and waits until the run next parks or
   * ends. Refused with EditedArgsInvalidException where they do not fit the schema of the tool; the
   * call still waits.
   *
   * @param call the call: from a result, from the inbox, the chunk that announced it, or a name of
   *     it
   * @param editedArgs the arguments to use, an object
   * @param options how it is decided
   * @return what the run has come to
   */
  public GenerateResult approveEdited(
      WaitingCall call, Object editedArgs, DecisionOptions options) {
    return decided(Verb.approve(call, Json.of(editedArgs), options), call, options);
  }

  /**
   * Approves a call with other arguments than those shown, as the stream of what comes of it.
   *
   * @param call the call: from a result, from the inbox, the chunk that announced it, or a name of
   *     it
   * @param editedArgs the arguments to use, an object
   * @param options how it is decided
   * @return the stream; the decision is made when its first chunk is asked for
   */
  public RunStream approveEditedStream(
      WaitingCall call, Object editedArgs, DecisionOptions options) {
    return following(Verb.approve(call, Json.of(editedArgs), options), call, options);
  }

  /**
   * Declines a call of any kind: its tool is not entered, and the model is told why, and waits
   * until the run next parks or ends.
   *
   * @param call the call: from a result, from the inbox, the chunk that announced it, or a name of
   *     it
   * @param reason why, in words; empty for a standard sentence
   * @return what the run has come to
   */
  public GenerateResult decline(WaitingCall call, String reason) {
    return decline(call, reason, DecisionOptions.defaults());
  }

  /**
   * Declines a call of any kind: its tool is not entered, and the model is told why, and waits
   * until the run next parks or ends.
   *
   * @param call the call: from a result, from the inbox, the chunk that announced it, or a name of
   *     it
   * @param reason why, in words; empty for a standard sentence
   * @param options how it is decided
   * @return what the run has come to
   */
  public GenerateResult decline(WaitingCall call, String reason, DecisionOptions options) {
    return decided(Verb.decline(call, reason, null, options), call, options);
  }

  /**
   * Declines a call of any kind: its tool is not entered, and the model is told why, as the stream
   * of what comes of it.
   *
   * @param call the call: from a result, from the inbox, the chunk that announced it, or a name of
   *     it
   * @param reason why, in words; empty for a standard sentence
   * @param options how it is decided
   * @return the stream; the decision is made when its first chunk is asked for
   */
  public RunStream declineStream(WaitingCall call, String reason, DecisionOptions options) {
    return following(Verb.decline(call, reason, null, options), call, options);
  }

  /**
   * Declines a call with a reason in words and as data, and waits until the run next parks or ends.
   *
   * @param call the call: from a result, from the inbox, the chunk that announced it, or a name of
   *     it
   * @param reason why, in words
   * @param data why, as data
   * @return what the run has come to
   */
  public GenerateResult declineWith(WaitingCall call, String reason, Object data) {
    return declineWith(call, reason, data, DecisionOptions.defaults());
  }

  /**
   * Declines a call with a reason in words and as data, and waits until the run next parks or ends.
   *
   * @param call the call: from a result, from the inbox, the chunk that announced it, or a name of
   *     it
   * @param reason why, in words
   * @param data why, as data
   * @param options how it is decided
   * @return what the run has come to
   */
  public GenerateResult declineWith(
      WaitingCall call, String reason, Object data, DecisionOptions options) {
    return decided(Verb.decline(call, reason, Json.of(data), options), call, options);
  }

  /**
   * Declines a call with a reason in words and as data, as the stream of what comes of it.
   *
   * @param call the call: from a result, from the inbox, the chunk that announced it, or a name of
   *     it
   * @param reason why, in words
   * @param data why, as data
   * @param options how it is decided
   * @return the stream; the decision is made when its first chunk is asked for
   */
  public RunStream declineWithStream(
      WaitingCall call, String reason, Object data, DecisionOptions options) {
    return following(Verb.decline(call, reason, Json.of(data), options), call, options);
  }

  /**
   * Hands in what a client tool returned, or what a call of kind {@code RECOVERY} had come to, and
   * waits until the run next parks or ends.
   *
   * @param call the call: from a result, from the inbox, the chunk that announced it, or a name of
   *     it
   * @param result any value that {@link Json#of} takes
   * @return what the run has come to
   */
  public GenerateResult submitToolResult(WaitingCall call, Object result) {
    return submitToolResult(call, result, DecisionOptions.defaults());
  }

  /**
   * Hands in what a client tool returned, or what a call of kind {@code RECOVERY} had come to, and
   * waits until the run next parks or ends.
   *
   * @param call the call: from a result, from the inbox, the chunk that announced it, or a name of
   *     it
   * @param result any value that {@link Json#of} takes
   * @param options how it is decided
   * @return what the run has come to
   */
  public GenerateResult submitToolResult(WaitingCall call, Object result, DecisionOptions options) {
    return decided(Verb.submit(call, Json.of(result), null, options), call, options);
  }

  /**
   * Hands in what a client tool returned, or what a call of kind {@code RECOVERY} had come to, as
   * the stream of what comes of it.
   *
   * @param call the call: from a result, from the inbox, the chunk that announced it, or a name of
   *     it
   * @param result any value that {@link Json#of} takes
   * @param options how it is decided
   * @return the stream; the decision is made when its first chunk is asked for
   */
  public RunStream submitToolResultStream(
      WaitingCall call, Object result, DecisionOptions options) {
    return following(Verb.submit(call, Json.of(result), null, options), call, options);
  }

  /**
   * Hands in that a client tool failed, and waits until the run next parks or ends.
   *
   * @param call the call: from a result, from the inbox, the chunk that announced it, or a name of
   *     it
   * @param error why, for the model
   * @return what the run has come to
   */
  public GenerateResult submitToolError(WaitingCall call, String error) {
    return submitToolError(call, error, DecisionOptions.defaults());
  }

  /**
   * Hands in that a client tool failed, and waits until the run next parks or ends.
   *
   * @param call the call: from a result, from the inbox, the chunk that announced it, or a name of
   *     it
   * @param error why, for the model
   * @param options how it is decided
   * @return what the run has come to
   */
  public GenerateResult submitToolError(WaitingCall call, String error, DecisionOptions options) {
    return decided(Verb.submit(call, null, error, options), call, options);
  }

  /**
   * Hands in that a client tool failed, as the stream of what comes of it.
   *
   * @param call the call: from a result, from the inbox, the chunk that announced it, or a name of
   *     it
   * @param error why, for the model
   * @param options how it is decided
   * @return the stream; the decision is made when its first chunk is asked for
   */
  public RunStream submitToolErrorStream(WaitingCall call, String error, DecisionOptions options) {
    return following(Verb.submit(call, null, error, options), call, options);
  }

  @Override
  public String toString() {
    return "AgentClient(" + id + ")";
  }

  /** The options with a run id, unless the caller gave one or a request id of his own. */
  private static dev.entracte.v1.GenerateOptions identified(GenerateOptions options) {
    dev.entracte.v1.GenerateOptions wire = options.wire();
    // With a request id of the caller's, the same request must have the same body each time.
    if (wire.getRunId().isEmpty() && options.settings().requestId().isEmpty()) {
      return wire.toBuilder().setRunId(Connection.newId()).build();
    }
    return wire;
  }

  private GenerateResult decided(Verb verb, WaitingCall call, DecisionOptions options) {
    CallSettings settings = options.settings();
    if (settings.needStream()) {
      try (RunStream stream = following(verb, call, options)) {
        return stream.result();
      }
    }
    return GenerateResult.of(
        verb.decide(connection, true, settings.timeout(), settings.traceparent()).result());
  }

  private RunStream following(Verb verb, WaitingCall call, DecisionOptions options) {
    CallSettings settings = options.settings();
    return new RunStream(
        connection,
        () -> begin(verb, settings),
        call.runId(),
        settings.callbacks(),
        settings.clientTools());
  }

  private Beginning begin(Verb verb, CallSettings settings) {
    Deadline deadline = new Deadline(settings.timeout());
    Duration within = deadline.atMost(connection.timeout());
    Verb.Outcome outcome = verb.decide(connection, false, within, settings.traceparent());
    Decision decision = Decision.of(outcome.decision());
    // After a replay the answer to the first request was lost, and the run may have gone on since:
    // what came of the decision begins where the decision stands in the log.
    long position = outcome.replayed() ? 0 : outcome.run().getLastSequence();
    Follower follower =
        new Follower(connection, deadline, outcome.run().getRunId(), position, false);
    if (outcome.replayed()) {
      follower.skipWhile(
          chunk ->
              !(chunk instanceof ToolChunk.Resolved resolved
                  && resolved.decisionId().equals(decision.decisionId())));
    }
    return new Beginning(follower, decision);
  }
}
