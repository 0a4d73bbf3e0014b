package dev.entracte;

import java.util.function.Consumer;

/**
 * Search in older messages. What is not set is the agent's own setting.
 *
 * <p>Immutable: each method returns a copy.
 */
public final class SemanticRecall {
  private final dev.entracte.v1.SemanticRecall wire;

  private SemanticRecall(dev.entracte.v1.SemanticRecall wire) {
    this.wire = wire;
  }

  /**
   * With the agent's own settings.
   *
   * @return the option
   */
  public static SemanticRecall asTheAgentSays() {
    return new SemanticRecall(dev.entracte.v1.SemanticRecall.newBuilder().build());
  }

  /**
   * How many messages to find.
   *
   * @param topK at most 100; 0 searches nothing
   * @return a copy with it
   */
  public SemanticRecall topK(int topK) {
    return with(m -> m.setTopK(topK));
  }

  /**
   * How many messages before and after each of them are shown with it.
   *
   * @param messageRange at most 20
   * @return a copy with it
   */
  public SemanticRecall messageRange(int messageRange) {
    return with(m -> m.setMessageRange(messageRange));
  }

  /**
   * Where to search.
   *
   * @param scope the reach
   * @return a copy with it
   */
  public SemanticRecall scope(Scope scope) {
    return with(m -> m.setScope(Enums.write(dev.entracte.v1.SemanticRecall.Scope.class, scope)));
  }

  dev.entracte.v1.SemanticRecall wire() {
    return wire;
  }

  private SemanticRecall with(Consumer<dev.entracte.v1.SemanticRecall.Builder> change) {
    dev.entracte.v1.SemanticRecall.Builder copy = wire.toBuilder();
    change.accept(copy);
    return new SemanticRecall(copy.build());
  }

  /** The reach of a search. */
  public enum Scope {
    /** Only this thread. */
    THREAD,
    /** All threads of the resource. */
    RESOURCE
  }
}
