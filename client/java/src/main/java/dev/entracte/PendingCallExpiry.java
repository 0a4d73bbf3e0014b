package dev.entracte;

import java.time.Duration;
import java.util.Map;
import java.util.stream.Collectors;

/**
 * How long the run's pending calls may wait for people, and what happens to one that expires.
 * Nothing is ever approved by an expiry.
 *
 * <p>Immutable.
 */
public final class PendingCallExpiry {
  private final dev.entracte.v1.PendingCallExpiry wire;

  private PendingCallExpiry(dev.entracte.v1.PendingCallExpiry wire) {
    this.wire = wire;
  }

  /**
   * Declines calls that nobody decided in time.
   *
   * @param after how long they may wait
   * @return the option
   */
  public static PendingCallExpiry decline(Duration after) {
    return new PendingCallExpiry(
        dev.entracte.v1.PendingCallExpiry.newBuilder()
            .setAfter(Wire.duration(after))
            .setAction(dev.entracte.v1.ExpiryAction.EXPIRY_ACTION_DECLINE)
            .build());
  }

  /**
   * Fails the run.
   *
   * @param after how long they may wait
   * @return the option
   */
  public static PendingCallExpiry fail(Duration after) {
    return new PendingCallExpiry(
        dev.entracte.v1.PendingCallExpiry.newBuilder()
            .setAfter(Wire.duration(after))
            .setAction(dev.entracte.v1.ExpiryAction.EXPIRY_ACTION_FAIL)
            .build());
  }

  /**
   * Gives answers that are declared here.
   *
   * @param after how long they may wait
   * @param answers the answers by the name of the tool
   * @return the option
   */
  public static PendingCallExpiry answer(Duration after, Map<String, Json> answers) {
    return new PendingCallExpiry(
        dev.entracte.v1.PendingCallExpiry.newBuilder()
            .setAfter(Wire.duration(after))
            .setAction(dev.entracte.v1.ExpiryAction.EXPIRY_ACTION_ANSWER)
            .putAllDefaultAnswers(
                answers.entrySet().stream()
                    .collect(Collectors.toMap(Map.Entry::getKey, e -> e.getValue().wire())))
            .build());
  }

  dev.entracte.v1.PendingCallExpiry wire() {
    return wire;
  }
}
