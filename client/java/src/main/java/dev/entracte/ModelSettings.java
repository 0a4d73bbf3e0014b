package dev.entracte;

import java.util.List;
import java.util.Map;
import java.util.function.Consumer;

/**
 * Sampling and limits of model calls. What is not set is left to the provider.
 *
 * <p>Immutable: each method returns a copy.
 */
public final class ModelSettings {
  private final dev.entracte.v1.ModelSettings wire;

  private ModelSettings(dev.entracte.v1.ModelSettings wire) {
    this.wire = wire;
  }

  /**
   * Nothing set.
   *
   * @return the option
   */
  public static ModelSettings defaults() {
    return new ModelSettings(dev.entracte.v1.ModelSettings.newBuilder().build());
  }

  /**
   * Randomness.
   *
   * @param temperature 0 to 2
   * @return a copy with it
   */
  public ModelSettings temperature(double temperature) {
    return with(m -> m.setTemperature(temperature));
  }

  /**
   * The most tokens of one answer.
   *
   * @param maxOutputTokens at least 1
   * @return a copy with it
   */
  public ModelSettings maxOutputTokens(int maxOutputTokens) {
    return with(m -> m.setMaxOutputTokens(maxOutputTokens));
  }

  /**
   * How often a call that failed before its answer began is tried again.
   *
   * @param maxRetries at least 0
   * @return a copy with it
   */
  public ModelSettings maxRetries(int maxRetries) {
    return with(m -> m.setMaxRetries(maxRetries));
  }

  /**
   * Nucleus sampling.
   *
   * @param topP 0 to 1
   * @return a copy with it
   */
  public ModelSettings topP(double topP) {
    return with(m -> m.setTopP(topP));
  }

  /**
   * Only the most likely tokens.
   *
   * @param topK at least 1
   * @return a copy with it
   */
  public ModelSettings topK(int topK) {
    return with(m -> m.setTopK(topK));
  }

  /**
   * Penalty on tokens that appeared.
   *
   * @param presencePenalty -2 to 2
   * @return a copy with it
   */
  public ModelSettings presencePenalty(double presencePenalty) {
    return with(m -> m.setPresencePenalty(presencePenalty));
  }

  /**
   * Penalty on tokens by how often they appeared.
   *
   * @param frequencyPenalty -2 to 2
   * @return a copy with it
   */
  public ModelSettings frequencyPenalty(double frequencyPenalty) {
    return with(m -> m.setFrequencyPenalty(frequencyPenalty));
  }

  /**
   * Texts at which the answer ends.
   *
   * @param stopSequences the texts
   * @return a copy with it
   */
  public ModelSettings stopSequences(String... stopSequences) {
    return with(m -> m.clearStopSequences().addAllStopSequences(List.of(stopSequences)));
  }

  /**
   * Makes sampling repeatable where the provider can.
   *
   * @param seed any number
   * @return a copy with it
   */
  public ModelSettings seed(long seed) {
    return with(m -> m.setSeed(seed));
  }

  /**
   * HTTP headers added to the call.
   *
   * @param headers name and value
   * @return a copy with it
   */
  public ModelSettings headers(Map<String, String> headers) {
    return with(m -> m.clearHeaders().putAllHeaders(headers));
  }

  dev.entracte.v1.ModelSettings wire() {
    return wire;
  }

  private ModelSettings with(Consumer<dev.entracte.v1.ModelSettings.Builder> change) {
    dev.entracte.v1.ModelSettings.Builder copy = wire.toBuilder();
    change.accept(copy);
    return new ModelSettings(copy.build());
  }
}
