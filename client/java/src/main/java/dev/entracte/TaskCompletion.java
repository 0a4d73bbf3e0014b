package dev.entracte;

import java.time.Duration;
import java.util.List;
import java.util.function.Consumer;

/**
 * Checks made when the model wants to stop. A score of 1 passes.
 *
 * <p>Immutable: each method returns a copy.
 */
public final class TaskCompletion {
  private final dev.entracte.v1.TaskCompletion wire;

  private TaskCompletion(dev.entracte.v1.TaskCompletion wire) {
    this.wire = wire;
  }

  /**
   * Checks by scorers.
   *
   * @param scorers names of scorers registered on the server, at least one
   * @return the option
   */
  public static TaskCompletion of(String... scorers) {
    return new TaskCompletion(
        dev.entracte.v1.TaskCompletion.newBuilder().addAllScorers(List.of(scorers)).build());
  }

  /**
   * One check that passes is enough; else all of them must.
   *
   * @return a copy with it
   */
  public TaskCompletion anyIsEnough() {
    return with(m -> m.setStrategy(dev.entracte.v1.TaskCompletion.Strategy.STRATEGY_ANY));
  }

  /**
   * Whether they run at the same time.
   *
   * @param parallel true where it is not given
   * @return a copy with it
   */
  public TaskCompletion parallel(boolean parallel) {
    return with(m -> m.setParallel(parallel));
  }

  /**
   * The longest all of them may take.
   *
   * @param timeout 600 s where it is not given
   * @return a copy with it
   */
  public TaskCompletion timeout(Duration timeout) {
    return with(m -> m.setTimeout(Wire.duration(timeout)));
  }

  /**
   * Whether the model is told nothing about a failed check.
   *
   * @param suppressFeedback false where it is not given
   * @return a copy with it
   */
  public TaskCompletion suppressFeedback(boolean suppressFeedback) {
    return with(m -> m.setSuppressFeedback(suppressFeedback));
  }

  /**
   * A hook registered on the server that is shown every score.
   *
   * @param onComplete its name
   * @return a copy with it
   */
  public TaskCompletion onComplete(String onComplete) {
    return with(m -> m.setOnComplete(onComplete));
  }

  dev.entracte.v1.TaskCompletion wire() {
    return wire;
  }

  private TaskCompletion with(Consumer<dev.entracte.v1.TaskCompletion.Builder> change) {
    dev.entracte.v1.TaskCompletion.Builder copy = wire.toBuilder();
    change.accept(copy);
    return new TaskCompletion(copy.build());
  }
}
