package dev.entracte;

import java.time.Duration;

/**
 * Why a run failed.
 *
 * @param kind the kind, for example {@code provider_error}, {@code cut}, {@code stall}, {@code
 *     timeout}, {@code tool_limit}, {@code expired}, {@code structured_output_invalid} or {@code
 *     internal}
 * @param message in words
 * @param providerStatus the provider's HTTP status; 0 where there was none
 * @param retryable whether the same request may well succeed later
 * @param retryAfter how long the provider asked to wait; null where it did not
 * @param providerCode the provider's own code
 * @param raw what the provider sent; null where it sent nothing readable
 */
public record RunError(
    String kind,
    String message,
    int providerStatus,
    boolean retryable,
    Duration retryAfter,
    String providerCode,
    Json raw) {
  static RunError of(dev.entracte.v1.RunError m) {
    return new RunError(
        m.getKind(),
        m.getMessage(),
        m.getProviderStatus(),
        m.getRetryable(),
        Wire.duration(m.hasRetryAfter(), m.getRetryAfter()),
        m.getProviderCode(),
        Wire.json(m.hasRaw(), m.getRaw()));
  }
}
