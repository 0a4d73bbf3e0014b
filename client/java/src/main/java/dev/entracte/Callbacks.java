package dev.entracte;

import dev.entracte.errors.EntracteException;
import java.util.EnumMap;
import java.util.Map;
import java.util.function.Consumer;

/**
 * Functions that are told what happens in a run. They observe, and cannot hold up or change it.
 *
 * <p>They are called in order, on a thread beside the stream: one that is slow does not slow it
 * down, one that throws is logged. At the end those still behind get 5 seconds. Immutable: each
 * method returns a copy.
 *
 * <pre>{@code
 * Callbacks.none().onStepFinish(step -> System.out.println(step.usage()));
 * }</pre>
 */
public final class Callbacks {
  /** The events. */
  enum Event {
    CHUNK,
    STEP_FINISH,
    FINISH,
    RUN_ERROR,
    STREAM_ERROR,
    ABORT,
    TITLE_GENERATED
  }

  private static final Callbacks NONE = new Callbacks(new EnumMap<>(Event.class));

  private final Map<Event, Consumer<Object>> functions;

  private Callbacks(Map<Event, Consumer<Object>> functions) {
    this.functions = functions;
  }

  /**
   * No callbacks.
   *
   * @return an empty set, to add to
   */
  public static Callbacks none() {
    return NONE;
  }

  /**
   * Every chunk, those of sub-agents too.
   *
   * @param function what to call
   * @return a copy with it
   */
  public Callbacks onChunk(Consumer<? super Chunk> function) {
    return with(Event.CHUNK, value -> function.accept((Chunk) value));
  }

  /**
   * Each step of the run's own agent, when it has ended.
   *
   * @param function what to call
   * @return a copy with it
   */
  public Callbacks onStepFinish(Consumer<? super StepResult> function) {
    return with(Event.STEP_FINISH, value -> function.accept((StepResult) value));
  }

  /**
   * The result, once, when the run has ended other than by an error or a cancellation. A run that
   * parks has not ended.
   *
   * @param function what to call
   * @return a copy with it
   */
  public Callbacks onFinish(Consumer<? super GenerateResult> function) {
    return with(Event.FINISH, value -> function.accept((GenerateResult) value));
  }

  /**
   * Why the run failed.
   *
   * @param function what to call
   * @return a copy with it
   */
  public Callbacks onRunError(Consumer<? super RunError> function) {
    return with(Event.RUN_ERROR, value -> function.accept((RunError) value));
  }

  /**
   * Why the stream could not be read.
   *
   * @param function what to call
   * @return a copy with it
   */
  public Callbacks onStreamError(Consumer<? super EntracteException> function) {
    return with(Event.STREAM_ERROR, value -> function.accept((EntracteException) value));
  }

  /**
   * The run was cancelled.
   *
   * @param function what to call
   * @return a copy with it
   */
  public Callbacks onAbort(Consumer<? super Chunk.Abort> function) {
    return with(Event.ABORT, value -> function.accept((Chunk.Abort) value));
  }

  /**
   * The title that the run's thread was given, if it was given one. The end of the stream waits for
   * it, for 30 seconds at most.
   *
   * @param function what to call
   * @return a copy with it
   */
  public Callbacks onTitleGenerated(Consumer<? super String> function) {
    return with(Event.TITLE_GENERATED, value -> function.accept((String) value));
  }

  boolean isEmpty() {
    return functions.isEmpty();
  }

  /** The function for an event; null where there is none. */
  Consumer<Object> of(Event event) {
    return functions.get(event);
  }

  private Callbacks with(Event event, Consumer<Object> function) {
    Map<Event, Consumer<Object>> more = new EnumMap<>(functions);
    more.put(event, function);
    return new Callbacks(more);
  }
}
