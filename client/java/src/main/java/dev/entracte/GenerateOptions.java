package dev.entracte;

import java.time.Duration;
import java.util.List;
import java.util.function.Consumer;
import java.util.stream.Stream;

/**
 * How a run is to be done: the options of {@code generate} and {@code stream}.
 *
 * <pre>{@code
 * GenerateOptions.defaults().maxSteps(8).memory(Memory.of("t1", "u1"));
 * }</pre>
 *
 * <p>What is not set is left to the agent's own setting, then to the server's default. The options
 * are stored with the run and hold over every suspension; only callbacks and client tools with a
 * function live in this process and are given again with a decision. Immutable: each method returns
 * a copy.
 */
public final class GenerateOptions {
  private static final GenerateOptions DEFAULTS =
      new GenerateOptions(
          dev.entracte.v1.GenerateOptions.getDefaultInstance(), CallSettings.DEFAULT);

  private final dev.entracte.v1.GenerateOptions wire;
  private final CallSettings settings;

  private GenerateOptions(dev.entracte.v1.GenerateOptions wire, CallSettings settings) {
    this.wire = wire;
    this.settings = settings;
  }

  /**
   * Nothing set.
   *
   * @return the options to begin with
   */
  public static GenerateOptions defaults() {
    return DEFAULTS;
  }

  /**
   * The id of the run. Made by the SDK where it is not given, or by the server where there is a
   * request id.
   *
   * @param runId letters, digits, {@code -}, {@code _}, {@code .}, {@code :}, up to 128
   * @return a copy with it
   */
  public GenerateOptions runId(String runId) {
    return with(m -> m.setRunId(runId));
  }

  /**
   * The most model calls of the whole run.
   *
   * @param maxSteps 5 where it is not given
   * @return a copy with it
   */
  public GenerateOptions maxSteps(int maxSteps) {
    return with(m -> m.setMaxSteps(maxSteps));
  }

  /**
   * Conditions that end the run after a step; any is enough.
   *
   * @param stopWhen the conditions
   * @return a copy with it
   */
  public GenerateOptions stopWhen(StopWhen... stopWhen) {
    return with(
        m -> m.clearStopWhen().addAllStopWhen(Stream.of(stopWhen).map(StopWhen::wire).toList()));
  }

  /**
   * The tools the model may use, of all of the agent's.
   *
   * @param activeTools their names; none for no tools
   * @return a copy with it
   */
  public GenerateOptions activeTools(String... activeTools) {
    return with(
        m ->
            m.setActiveTools(
                dev.entracte.v1.ToolNames.newBuilder().addAllNames(List.of(activeTools))));
  }

  /**
   * Calls a person must approve first.
   *
   * @param requireToolApproval which
   * @return a copy with it
   */
  public GenerateOptions requireToolApproval(ToolApproval requireToolApproval) {
    return with(m -> m.setRequireToolApproval(requireToolApproval.wire()));
  }

  /**
   * Whether a new message on a thread whose run waits for an answer is taken as that answer.
   *
   * @param autoResumeSuspendedTools false where it is not given
   * @return a copy with it
   */
  public GenerateOptions autoResumeSuspendedTools(boolean autoResumeSuspendedTools) {
    return with(m -> m.setAutoResumeSuspendedTools(autoResumeSuspendedTools));
  }

  /**
   * The most tools of one step that run at the same time.
   *
   * @param toolCallConcurrency 10 where it is not given
   * @return a copy with it
   */
  public GenerateOptions toolCallConcurrency(int toolCallConcurrency) {
    return with(m -> m.setToolCallConcurrency(toolCallConcurrency));
  }

  /**
   * Messages added after the system messages and before the input.
   *
   * @param context the messages
   * @return a copy with it
   */
  public GenerateOptions context(Message... context) {
    return with(m -> m.clearContext().addAllContext(Message.wire(List.of(context))));
  }

  /**
   * An answer that fits a schema, in the result's {@code object}.
   *
   * @param structuredOutput the schema and more
   * @return a copy with it
   */
  public GenerateOptions structuredOutput(StructuredOutput structuredOutput) {
    return with(m -> m.setStructuredOutput(structuredOutput.wire()));
  }

  /**
   * An answer that fits a schema, with nothing else to say about it.
   *
   * @param schema a JSON Schema
   * @return a copy with it
   * @deprecated use {@link #structuredOutput}
   */
  @Deprecated
  public GenerateOptions output(Json schema) {
    return with(m -> m.setOutput(schema.wire()));
  }

  /**
   * Processors of what goes to the model, replacing the agent's.
   *
   * @param inputProcessors the processors
   * @return a copy with it
   */
  public GenerateOptions inputProcessors(Processor... inputProcessors) {
    return with(m -> m.setInputProcessors(refs(inputProcessors)));
  }

  /**
   * Processors of what the model says, replacing the agent's.
   *
   * @param outputProcessors the processors
   * @return a copy with it
   */
  public GenerateOptions outputProcessors(Processor... outputProcessors) {
    return with(m -> m.setOutputProcessors(refs(outputProcessors)));
  }

  /**
   * How often processors may send a step back for another try.
   *
   * @param maxProcessorRetries at least 0
   * @return a copy with it
   */
  public GenerateOptions maxProcessorRetries(int maxProcessorRetries) {
    return with(m -> m.setMaxProcessorRetries(maxProcessorRetries));
  }

  /**
   * System messages that replace the agent's instructions.
   *
   * @param instructions their texts
   * @return a copy with it
   */
  public GenerateOptions instructions(String... instructions) {
    return with(m -> m.clearInstructions().addAllInstructions(systemMessages(instructions)));
  }

  /**
   * System messages added after the instructions.
   *
   * @param system their texts
   * @return a copy with it
   */
  public GenerateOptions system(String... system) {
    return with(m -> m.clearSystem().addAllSystem(systemMessages(system)));
  }

  /**
   * The conversation the run belongs to.
   *
   * @param memory thread and resource
   * @return a copy with it
   */
  public GenerateOptions memory(Memory memory) {
    return with(m -> m.setMemory(memory.wire()));
  }

  /**
   * What telemetry may record.
   *
   * @param telemetry what
   * @return a copy with it
   */
  public GenerateOptions telemetry(Telemetry telemetry) {
    return with(m -> m.setTelemetry(telemetry.wire()));
  }

  /**
   * Sampling and limits of the model calls.
   *
   * @param modelSettings the settings
   * @return a copy with it
   */
  public GenerateOptions modelSettings(ModelSettings modelSettings) {
    return with(m -> m.setModelSettings(modelSettings.wire()));
  }

  /**
   * Whether and which tool the model must call.
   *
   * @param toolChoice the choice
   * @return a copy with it
   */
  public GenerateOptions toolChoice(ToolChoice toolChoice) {
    return with(m -> m.setToolChoice(toolChoice.wire()));
  }

  /**
   * Toolsets registered on the server, added to the agent's tools.
   *
   * @param toolsets their names
   * @return a copy with it
   */
  public GenerateOptions toolsets(String... toolsets) {
    return with(m -> m.clearToolsets().addAllToolsets(List.of(toolsets)));
  }

  /**
   * Whether messages are saved to the thread after each step rather than at the end.
   *
   * @param savePerStep false where it is not given
   * @return a copy with it
   */
  public GenerateOptions savePerStep(boolean savePerStep) {
    return with(m -> m.setSavePerStep(savePerStep));
  }

  /**
   * Options by provider.
   *
   * @param providerOptions an object keyed by the provider's name
   * @return a copy with it
   */
  public GenerateOptions providerOptions(Json providerOptions) {
    return with(m -> m.setProviderOptions(providerOptions.wire()));
  }

  /**
   * Values for tools and hooks; never part of a prompt.
   *
   * @param requestContext an object
   * @return a copy with it
   */
  public GenerateOptions requestContext(Json requestContext) {
    return with(m -> m.setRequestContext(requestContext.wire()));
  }

  /**
   * How the run appears in traces.
   *
   * @param tracingOptions the options
   * @return a copy with it
   */
  public GenerateOptions tracingOptions(TracingOptions tracingOptions) {
    return with(m -> m.setTracingOptions(tracingOptions.wire()));
  }

  /**
   * Whether the provider's own events are streamed as {@code raw} chunks.
   *
   * @param includeRawChunks false where it is not given
   * @return a copy with it
   */
  public GenerateOptions includeRawChunks(boolean includeRawChunks) {
    return with(m -> m.setIncludeRawChunks(includeRawChunks));
  }

  /**
   * Checks made when the model wants to stop.
   *
   * @param isTaskComplete the checks
   * @return a copy with it
   */
  public GenerateOptions isTaskComplete(TaskCompletion isTaskComplete) {
    return with(m -> m.setIsTaskComplete(isTaskComplete.wire()));
  }

  /**
   * Whether the result carries what scorers see.
   *
   * @param returnScorerData false where it is not given
   * @return a copy with it
   */
  public GenerateOptions returnScorerData(boolean returnScorerData) {
    return with(m -> m.setReturnScorerData(returnScorerData));
  }

  /**
   * The longest the run may execute, time spent waiting for people excluded.
   *
   * @param executionTimeout the server's setting where it is not given
   * @return a copy with it
   */
  public GenerateOptions executionTimeout(Duration executionTimeout) {
    return with(m -> m.setExecutionTimeout(Wire.duration(executionTimeout)));
  }

  /**
   * Whether the run is cancelled when nobody has followed it for 10 seconds.
   *
   * @param cancelOnDisconnect false where it is not given
   * @return a copy with it
   */
  public GenerateOptions cancelOnDisconnect(boolean cancelOnDisconnect) {
    return with(m -> m.setCancelOnDisconnect(cancelOnDisconnect));
  }

  /**
   * Whether the result carries the body of the last model call.
   *
   * @param includeRequestBody false where it is not given
   * @return a copy with it
   */
  public GenerateOptions includeRequestBody(boolean includeRequestBody) {
    return with(m -> m.setIncludeRequestBody(includeRequestBody));
  }

  /**
   * How long the run's pending calls may wait, and what happens then.
   *
   * @param pendingCallExpiry for ever where nobody says anything
   * @return a copy with it
   */
  public GenerateOptions pendingCallExpiry(PendingCallExpiry pendingCallExpiry) {
    return with(m -> m.setPendingCallExpiry(pendingCallExpiry.wire()));
  }

  /**
   * The longest a model call may wait for its provider's rate limit; a {@code custom} chunk {@code
   * rate-limit-wait} shows each wait.
   *
   * @param rateLimitWait up to a day
   * @return a copy with it
   */
  public GenerateOptions rateLimitWait(Duration rateLimitWait) {
    return with(m -> m.setRateLimitWait(Wire.duration(rateLimitWait)));
  }

  /**
   * A hook on the server that is called after each step.
   *
   * @param onIterationComplete its name
   * @return a copy with it
   */
  public GenerateOptions onIterationComplete(String onIterationComplete) {
    return with(m -> m.setOnIterationComplete(onIterationComplete));
  }

  /**
   * A hook on the server that is called before each step.
   *
   * @param prepareStep its name
   * @return a copy with it
   */
  public GenerateOptions prepareStep(String prepareStep) {
    return with(m -> m.setPrepareStep(prepareStep));
  }

  /**
   * Hooks around tool calls, on the server.
   *
   * @param hooks their names
   * @return a copy with it
   */
  public GenerateOptions hooks(ToolHooks hooks) {
    return with(m -> m.setHooks(hooks.wire()));
  }

  /**
   * Hooks around delegations to sub-agents, on the server.
   *
   * @param delegation their names
   * @return a copy with it
   */
  public GenerateOptions delegation(DelegationHooks delegation) {
    return with(m -> m.setDelegation(delegation.wire()));
  }

  /**
   * Tools that this process executes.
   *
   * @param clientTools functions, or descriptions whose calls are answered with {@code
   *     submitToolResult}
   * @return a copy with it
   */
  public GenerateOptions clientTools(ClientTool... clientTools) {
    List<ClientTool> tools = List.of(clientTools);
    return new GenerateOptions(
        wire.toBuilder()
            .clearClientTools()
            .addAllClientTools(tools.stream().map(ClientTool::wire).toList())
            .build(),
        settings.clientTools(tools));
  }

  /**
   * A scorer that judges the result after the reply; those that are given replace the agent's.
   *
   * @param name what it is called in the run
   * @param scorer how it is run
   * @return a copy with it
   */
  public GenerateOptions scorer(String name, Scorer scorer) {
    return with(m -> m.putScorers(name, scorer.wire()));
  }

  /**
   * Which version of a data-defined agent to use.
   *
   * @param agentId the agent
   * @param version the version
   * @return a copy with it
   */
  public GenerateOptions version(String agentId, AgentVersion version) {
    return with(m -> m.putVersions(agentId, version.wire()));
  }

  /**
   * Makes the request safe to repeat: given again with the same input and options, it joins the run
   * it started.
   *
   * @param requestId made by the SDK where it is not given
   * @return a copy with it
   */
  public GenerateOptions requestId(String requestId) {
    return new GenerateOptions(wire, settings.requestId(requestId));
  }

  /**
   * The longest to wait. It bounds the wait and never the run.
   *
   * @param timeout for ever where it is not given
   * @return a copy with it
   */
  public GenerateOptions timeout(Duration timeout) {
    return new GenerateOptions(wire, settings.timeout(timeout));
  }

  /**
   * Functions that are told what happens.
   *
   * @param callbacks the functions
   * @return a copy with it
   */
  public GenerateOptions callbacks(Callbacks callbacks) {
    return new GenerateOptions(wire, settings.callbacks(callbacks));
  }

  /**
   * The caller's span, to which the run's trace belongs.
   *
   * @param traceparent a W3C {@code traceparent}
   * @return a copy with it
   */
  public GenerateOptions traceparent(String traceparent) {
    return new GenerateOptions(wire, settings.traceparent(traceparent));
  }

  dev.entracte.v1.GenerateOptions wire() {
    return wire;
  }

  CallSettings settings() {
    return settings;
  }

  private GenerateOptions with(Consumer<dev.entracte.v1.GenerateOptions.Builder> change) {
    dev.entracte.v1.GenerateOptions.Builder copy = wire.toBuilder();
    change.accept(copy);
    return new GenerateOptions(copy.build(), settings);
  }

  private static dev.entracte.v1.ProcessorRefs refs(Processor... processors) {
    return dev.entracte.v1.ProcessorRefs.newBuilder()
        .addAllProcessors(Stream.of(processors).map(Processor::wire).toList())
        .build();
  }

  private static List<dev.entracte.v1.Message> systemMessages(String... texts) {
    return Message.wire(Stream.of(texts).map(Message::system).toList());
  }
}
