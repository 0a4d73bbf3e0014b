package dev.entracte;

/**
 * Tokens. Input and output include the cached and the reasoning ones.
 *
 * @param inputTokens tokens read by the model
 * @param outputTokens tokens written by the model
 * @param totalTokens both
 * @param reasoningTokens of the output, those spent on thinking
 * @param cachedInputTokens of the input, those read from the provider's cache
 */
public record Usage(
    long inputTokens,
    long outputTokens,
    long totalTokens,
    long reasoningTokens,
    long cachedInputTokens) {
  static Usage of(dev.entracte.v1.Usage m) {
    return new Usage(
        m.getInputTokens(),
        m.getOutputTokens(),
        m.getTotalTokens(),
        m.getReasoningTokens(),
        m.getCachedInputTokens());
  }
}
