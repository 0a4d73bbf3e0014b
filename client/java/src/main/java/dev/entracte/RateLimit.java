package dev.entracte;

import java.time.Duration;

/**
 * A limit of the provider, as it was when an answer began.
 *
 * @param limit how much it allows; null where it does not say
 * @param remaining how much of that is left; null where it does not say
 * @param reset how long until all of it is there again; null where it does not say
 */
public record RateLimit(Long limit, Long remaining, Duration reset) {
  static RateLimit of(dev.entracte.v1.RateLimit m) {
    return new RateLimit(
        m.hasLimit() ? m.getLimit() : null,
        m.hasRemaining() ? m.getRemaining() : null,
        Wire.duration(m.hasReset(), m.getReset()));
  }
}
