package dev.entracte;

import java.time.Instant;

/**
 * A person's hold on a pending call while they look at it.
 *
 * @param principal who
 * @param expireTime until when others cannot decide
 */
public record Claim(String principal, Instant expireTime) {
  static Claim of(dev.entracte.v1.Claim m) {
    return new Claim(m.getPrincipal(), Wire.time(m.hasExpireTime(), m.getExpireTime()));
  }
}
