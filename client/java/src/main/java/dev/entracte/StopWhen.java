package dev.entracte;

/**
 * A condition that ends a run after a step.
 *
 * <p>Immutable.
 */
public final class StopWhen {
  private final dev.entracte.v1.StopCondition wire;

  private StopWhen(dev.entracte.v1.StopCondition wire) {
    this.wire = wire;
  }

  /**
   * So many steps were made.
   *
   * @param count at least 1
   * @return the option
   */
  public static StopWhen steps(int count) {
    return new StopWhen(dev.entracte.v1.StopCondition.newBuilder().setStepCount(count).build());
  }

  /**
   * A tool was called in the last step.
   *
   * @param name the tool
   * @return the option
   */
  public static StopWhen toolCalled(String name) {
    return new StopWhen(dev.entracte.v1.StopCondition.newBuilder().setToolCalled(name).build());
  }

  /**
   * So many tokens were used in total.
   *
   * @param count at least 1
   * @return the option
   */
  public static StopWhen totalTokens(long count) {
    return new StopWhen(dev.entracte.v1.StopCondition.newBuilder().setTotalTokens(count).build());
  }

  /**
   * So much money was spent.
   *
   * @param micros millionths of the account's currency, at least 1
   * @return the option
   */
  public static StopWhen costMicros(long micros) {
    return new StopWhen(dev.entracte.v1.StopCondition.newBuilder().setCostMicros(micros).build());
  }

  /**
   * The text of the last step contains something.
   *
   * @param text what it contains
   * @return the option
   */
  public static StopWhen textContains(String text) {
    return new StopWhen(dev.entracte.v1.StopCondition.newBuilder().setTextContains(text).build());
  }

  /**
   * A predicate registered on the server holds.
   *
   * @param name the name of the predicate
   * @return the option
   */
  public static StopWhen predicate(String name) {
    return new StopWhen(dev.entracte.v1.StopCondition.newBuilder().setPredicate(name).build());
  }

  dev.entracte.v1.StopCondition wire() {
    return wire;
  }
}
