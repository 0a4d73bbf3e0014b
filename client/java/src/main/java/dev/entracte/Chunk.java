package dev.entracte;

import com.google.protobuf.ByteString;
import java.util.List;

/**
 * One event of a run: a record for each type.
 *
 * <pre>{@code
 * for (Chunk chunk : stream) {
 *   if (chunk instanceof Chunk.TextDelta delta) {
 *     System.out.print(delta.text());
 *   }
 * }
 * }</pre>
 *
 * <p>A run's chunks are numbered 1, 2, 3... without gaps, over all its suspensions. Those around
 * tool calls are in {@link ToolChunk}.
 */
public sealed interface Chunk
    permits Chunk.Start,
        Chunk.StepStart,
        Chunk.TextStart,
        Chunk.TextDelta,
        Chunk.TextEnd,
        Chunk.ReasoningStart,
        Chunk.ReasoningDelta,
        Chunk.ReasoningEnd,
        Chunk.ReasoningSignature,
        Chunk.RedactedReasoning,
        Chunk.SourceCited,
        Chunk.FileMade,
        Chunk.PartialObject,
        Chunk.ObjectResult,
        Chunk.IsTaskComplete,
        Chunk.TripwireHit,
        Chunk.StepFinish,
        Chunk.Finish,
        Chunk.Failure,
        Chunk.Abort,
        Chunk.Raw,
        Chunk.Custom,
        ToolChunk {
  /**
   * What every chunk has.
   *
   * @return run, sequence, step and so on
   */
  ChunkHeader header();

  /**
   * The name of the type.
   *
   * @return for example {@code text-delta}
   */
  String type();

  /**
   * The run.
   *
   * @return the id, always of the root run of a tree of agents
   */
  default String runId() {
    return header().runId();
  }

  /**
   * The position in the run.
   *
   * @return the number, from 1
   */
  default long sequence() {
    return header().sequence();
  }

  /**
   * Whether the run's own agent made it, not one that it delegated to.
   *
   * @return true where the path is empty
   */
  default boolean isRoot() {
    return header().agentPath().isEmpty();
  }

  /**
   * The run began. First chunk of a run, never repeated on a resume.
   *
   * @param header what every chunk has
   * @param agentId the agent
   * @param messageId the id of the answer's message
   */
  record Start(ChunkHeader header, String agentId, String messageId) implements Chunk {
    static Start of(ChunkHeader h, dev.entracte.v1.StartChunk m) {
      return new Start(h, m.getAgentId(), m.getMessageId());
    }

    @Override
    public String type() {
      return "start";
    }
  }

  /**
   * A model call begins. With a higher attempt, all earlier chunks of the step are void.
   *
   * @param header what every chunk has
   * @param messageId the id of this step's message
   * @param model the model that is asked
   * @param warnings warnings about the request
   */
  record StepStart(ChunkHeader header, String messageId, String model, List<String> warnings)
      implements Chunk {
    static StepStart of(ChunkHeader h, dev.entracte.v1.StepStartChunk m) {
      return new StepStart(h, m.getMessageId(), m.getModel(), List.copyOf(m.getWarningsList()));
    }

    @Override
    public String type() {
      return "step-start";
    }
  }

  /**
   * A text begins.
   *
   * @param header what every chunk has
   * @param id identifies the text within its step
   * @param providerMetadata what the provider attached; null where it attached nothing
   */
  record TextStart(ChunkHeader header, String id, Json providerMetadata) implements Chunk {
    static TextStart of(ChunkHeader h, dev.entracte.v1.TextStartChunk m) {
      return new TextStart(
          h, m.getId(), Wire.json(m.hasProviderMetadata(), m.getProviderMetadata()));
    }

    @Override
    public String type() {
      return "text-start";
    }
  }

  /**
   * A piece of a text.
   *
   * @param header what every chunk has
   * @param id the text it belongs to
   * @param text the piece
   */
  record TextDelta(ChunkHeader header, String id, String text) implements Chunk {
    static TextDelta of(ChunkHeader h, dev.entracte.v1.TextDeltaChunk m) {
      return new TextDelta(h, m.getId(), m.getText());
    }

    @Override
    public String type() {
      return "text-delta";
    }
  }

  /**
   * A text is complete.
   *
   * @param header what every chunk has
   * @param id the text
   * @param providerMetadata what the provider attached; null where it attached nothing
   */
  record TextEnd(ChunkHeader header, String id, Json providerMetadata) implements Chunk {
    static TextEnd of(ChunkHeader h, dev.entracte.v1.TextEndChunk m) {
      return new TextEnd(h, m.getId(), Wire.json(m.hasProviderMetadata(), m.getProviderMetadata()));
    }

    @Override
    public String type() {
      return "text-end";
    }
  }

  /**
   * Thinking begins.
   *
   * @param header what every chunk has
   * @param id identifies the thinking within its step
   * @param providerMetadata what the provider attached; null where it attached nothing
   */
  record ReasoningStart(ChunkHeader header, String id, Json providerMetadata) implements Chunk {
    static ReasoningStart of(ChunkHeader h, dev.entracte.v1.ReasoningStartChunk m) {
      return new ReasoningStart(
          h, m.getId(), Wire.json(m.hasProviderMetadata(), m.getProviderMetadata()));
    }

    @Override
    public String type() {
      return "reasoning-start";
    }
  }

  /**
   * A piece of thinking.
   *
   * @param header what every chunk has
   * @param id the thinking it belongs to
   * @param text the piece
   */
  record ReasoningDelta(ChunkHeader header, String id, String text) implements Chunk {
    static ReasoningDelta of(ChunkHeader h, dev.entracte.v1.ReasoningDeltaChunk m) {
      return new ReasoningDelta(h, m.getId(), m.getText());
    }

    @Override
    public String type() {
      return "reasoning-delta";
    }
  }

  /**
   * Thinking is complete.
   *
   * @param header what every chunk has
   * @param id the thinking
   * @param providerMetadata what the provider attached; null where it attached nothing
   */
  record ReasoningEnd(ChunkHeader header, String id, Json providerMetadata) implements Chunk {
    static ReasoningEnd of(ChunkHeader h, dev.entracte.v1.ReasoningEndChunk m) {
      return new ReasoningEnd(
          h, m.getId(), Wire.json(m.hasProviderMetadata(), m.getProviderMetadata()));
    }

    @Override
    public String type() {
      return "reasoning-end";
    }
  }

  /**
   * The provider's signature over the thinking.
   *
   * @param header what every chunk has
   * @param id the thinking
   * @param signature the signature
   */
  record ReasoningSignature(ChunkHeader header, String id, String signature) implements Chunk {
    static ReasoningSignature of(ChunkHeader h, dev.entracte.v1.ReasoningSignatureChunk m) {
      return new ReasoningSignature(h, m.getId(), m.getSignature());
    }

    @Override
    public String type() {
      return "reasoning-signature";
    }
  }

  /**
   * Thinking that the provider encrypted.
   *
   * @param header what every chunk has
   * @param id the thinking
   * @param data the encrypted thinking
   */
  record RedactedReasoning(ChunkHeader header, String id, String data) implements Chunk {
    static RedactedReasoning of(ChunkHeader h, dev.entracte.v1.RedactedReasoningChunk m) {
      return new RedactedReasoning(h, m.getId(), m.getData());
    }

    @Override
    public String type() {
      return "redacted-reasoning";
    }
  }

  /**
   * Something the model cites.
   *
   * @param header what every chunk has
   * @param id identifies the source within the step
   * @param url where it is
   * @param title its title
   * @param providerMetadata what the provider attached; null where it attached nothing
   */
  record SourceCited(ChunkHeader header, String id, String url, String title, Json providerMetadata)
      implements Chunk {
    static SourceCited of(ChunkHeader h, dev.entracte.v1.SourceChunk m) {
      return new SourceCited(
          h,
          m.getId(),
          m.getUrl(),
          m.getTitle(),
          Wire.json(m.hasProviderMetadata(), m.getProviderMetadata()));
    }

    @Override
    public String type() {
      return "source";
    }
  }

  /**
   * A file the model made.
   *
   * @param header what every chunk has
   * @param mediaType for example {@code image/png}
   * @param data the file itself
   * @param url where it is, when the provider gave only that
   */
  record FileMade(ChunkHeader header, String mediaType, ByteString data, String url)
      implements Chunk {
    static FileMade of(ChunkHeader h, dev.entracte.v1.FileChunk m) {
      return new FileMade(h, m.getMediaType(), m.getData(), m.getUrl());
    }

    @Override
    public String type() {
      return "file";
    }
  }

  /**
   * A partial structured output, not validated. It replaces the one before it.
   *
   * @param header what every chunk has
   * @param object the value so far
   * @param structuringModel the second model that makes it; empty where there is none
   */
  record PartialObject(ChunkHeader header, Json object, String structuringModel) implements Chunk {
    static PartialObject of(ChunkHeader h, dev.entracte.v1.ObjectChunk m) {
      return new PartialObject(h, Wire.json(m.hasObject(), m.getObject()), m.getStructuringModel());
    }

    @Override
    public String type() {
      return "object";
    }
  }

  /**
   * The validated structured output.
   *
   * @param header what every chunk has
   * @param object the value
   * @param isFallback whether it is the fallback value
   * @param structuringModel the second model that made it; empty where there is none
   */
  record ObjectResult(ChunkHeader header, Json object, boolean isFallback, String structuringModel)
      implements Chunk {
    static ObjectResult of(ChunkHeader h, dev.entracte.v1.ObjectResultChunk m) {
      return new ObjectResult(
          h, Wire.json(m.hasObject(), m.getObject()), m.getIsFallback(), m.getStructuringModel());
    }

    @Override
    public String type() {
      return "object-result";
    }
  }

  /**
   * The outcome of a completion check.
   *
   * @param header what every chunk has
   * @param iteration the step that was checked, from 1
   * @param passed whether the task is complete
   * @param results each check
   * @param timedOut whether the time ran out
   * @param reason why
   * @param maxIterationReached whether no further step is allowed
   * @param suppressFeedback whether the model is told nothing about it
   * @param endsRun whether the run ends with this step, whatever the outcome
   */
  record IsTaskComplete(
      ChunkHeader header,
      int iteration,
      boolean passed,
      List<CheckResult> results,
      boolean timedOut,
      String reason,
      boolean maxIterationReached,
      boolean suppressFeedback,
      boolean endsRun)
      implements Chunk {
    static IsTaskComplete of(ChunkHeader h, dev.entracte.v1.IsTaskCompleteChunk m) {
      return new IsTaskComplete(
          h,
          m.getIteration(),
          m.getPassed(),
          m.getResultsList().stream().map(CheckResult::of).toList(),
          m.getTimedOut(),
          m.getReason(),
          m.getMaxIterationReached(),
          m.getSuppressFeedback(),
          m.getEndsRun());
    }

    @Override
    public String type() {
      return "is-task-complete";
    }
  }

  /**
   * A processor stopped the run or a step.
   *
   * @param header what every chunk has
   * @param tripwire what it said
   */
  record TripwireHit(ChunkHeader header, Tripwire tripwire) implements Chunk {
    static TripwireHit of(ChunkHeader h, dev.entracte.v1.TripwireChunk m) {
      return new TripwireHit(h, Tripwire.of(m.getTripwire()));
    }

    @Override
    public String type() {
      return "tripwire";
    }
  }

  /**
   * A step ended.
   *
   * @param header what every chunk has
   * @param messageId the id of the step's message
   * @param reason how the model's answer ended
   * @param isContinued whether another step follows
   * @param usage tokens of this step
   * @param totalUsage tokens of the run so far
   * @param rawReason the provider's own word for the reason
   * @param responseId the provider's id of the answer
   * @param responseModel the model that answered, as the provider names it
   * @param warnings warnings of the provider
   */
  record StepFinish(
      ChunkHeader header,
      String messageId,
      FinishReason reason,
      boolean isContinued,
      Usage usage,
      Usage totalUsage,
      String rawReason,
      String responseId,
      String responseModel,
      List<String> warnings)
      implements Chunk {
    static StepFinish of(ChunkHeader h, dev.entracte.v1.StepFinishChunk m) {
      return new StepFinish(
          h,
          m.getMessageId(),
          FinishReason.of(m.getReason()),
          m.getIsContinued(),
          Usage.of(m.getUsage()),
          Usage.of(m.getTotalUsage()),
          m.getRawReason(),
          m.getResponseId(),
          m.getResponseModel(),
          List.copyOf(m.getWarningsList()));
    }

    @Override
    public String type() {
      return "step-finish";
    }
  }

  /**
   * The run parked (with the reason {@code SUSPENDED}) or ended. The last chunk before a stream
   * ends.
   *
   * @param header what every chunk has
   * @param reason how
   * @param stopCause what ended it
   * @param usage tokens of the run so far
   * @param openCalls every call that still waits
   */
  record Finish(
      ChunkHeader header,
      FinishReason reason,
      StopCause stopCause,
      Usage usage,
      List<OpenCall> openCalls)
      implements Chunk {
    static Finish of(ChunkHeader h, dev.entracte.v1.FinishChunk m) {
      return new Finish(
          h,
          FinishReason.of(m.getReason()),
          StopCause.of(m.getStopCause()),
          Usage.of(m.getUsage()),
          m.getOpenCallsList().stream().map(OpenCall::of).toList());
    }

    @Override
    public String type() {
      return "finish";
    }
  }

  /**
   * The run failed; {@code finish} follows.
   *
   * @param header what every chunk has
   * @param error why
   */
  record Failure(ChunkHeader header, RunError error) implements Chunk {
    static Failure of(ChunkHeader h, dev.entracte.v1.ErrorChunk m) {
      return new Failure(h, RunError.of(m.getError()));
    }

    @Override
    public String type() {
      return "error";
    }
  }

  /**
   * The run was cancelled; {@code finish} follows.
   *
   * @param header what every chunk has
   * @param reason the words of whoever cancelled it
   */
  record Abort(ChunkHeader header, String reason) implements Chunk {
    static Abort of(ChunkHeader h, dev.entracte.v1.AbortChunk m) {
      return new Abort(h, m.getReason());
    }

    @Override
    public String type() {
      return "abort";
    }
  }

  /**
   * What the provider sent, with the option {@code includeRawChunks}.
   *
   * @param header what every chunk has
   * @param value the event, unchanged
   */
  record Raw(ChunkHeader header, Json value) implements Chunk {
    static Raw of(ChunkHeader h, dev.entracte.v1.RawChunk m) {
      return new Raw(h, Wire.json(m.hasValue(), m.getValue()));
    }

    @Override
    public String type() {
      return "raw";
    }
  }

  /**
   * A tool's own event, of type {@code data-NAME} in the reference.
   *
   * @param header what every chunk has
   * @param name the name of the event
   * @param data the event
   * @param id events with the same id replace one another in a display
   * @param isTransient whether a display need not keep it
   */
  record Custom(ChunkHeader header, String name, Json data, String id, boolean isTransient)
      implements Chunk {
    static Custom of(ChunkHeader h, dev.entracte.v1.CustomChunk m) {
      return new Custom(
          h, m.getName(), Wire.json(m.hasData(), m.getData()), m.getId(), m.getTransient());
    }

    @Override
    public String type() {
      return "custom";
    }
  }

  /**
   * One completion check.
   *
   * @param scorer the scorer
   * @param score its score, 0 to 1; null where the check could not be made
   * @param passed whether it passed
   * @param reason why
   */
  record CheckResult(String scorer, Double score, boolean passed, String reason) {
    static CheckResult of(dev.entracte.v1.IsTaskCompleteChunk.CheckResult m) {
      return new CheckResult(
          m.getScorer(), m.hasScore() ? m.getScore() : null, m.getPassed(), m.getReason());
    }
  }
}
