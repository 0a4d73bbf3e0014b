package dev.entracte;

import dev.entracte.errors.CancelledException;
import dev.entracte.errors.EntracteException;
import io.grpc.Status;
import java.time.Duration;
import java.util.concurrent.ThreadLocalRandom;

/**
 * Pauses between the attempts of one call: growing, with jitter, never shorter than the server
 * asked for.
 *
 * <p>Gives up after a few attempts where the server never answered, and after the limit's patience
 * without progress where it did, in this call or before, or where it asks to come back.
 */
final class Backoff {
  /**
   * The limits of all pauses.
   *
   * @param first the first pause
   * @param longest the longest pause
   * @param attempts how often a server that never answered is tried
   * @param patience how long a server that was there before is waited for
   */
  record Limits(Duration first, Duration longest, int attempts, Duration patience) {
    static final Limits DEFAULT =
        new Limits(Duration.ofMillis(100), Duration.ofSeconds(5), 4, Duration.ofSeconds(60));

    Limits with(Duration patience) {
      return new Limits(first, longest, attempts, patience);
    }
  }

  private final Limits limits;
  private final Deadline deadline;
  private final boolean reached;
  private int failures;
  private Long since;
  private long begun = System.nanoTime();
  private boolean attached;

  Backoff(Limits limits, Deadline deadline, boolean reached) {
    this.limits = limits;
    this.deadline = deadline;
    this.reached = reached;
  }

  /** An attempt begins. */
  void begin() {
    begun = System.nanoTime();
  }

  /**
   * The server answered. That alone is progress only when the attempt has lasted a while, or else
   * one that answers and fails, over and over, would be tried for ever.
   */
  void answered() {
    attached = true;
    if (System.nanoTime() - begun > limits.longest().toNanos()) {
      progress();
    }
  }

  /** Something new arrived: the count starts again. */
  void progress() {
    attached = true;
    failures = 0;
    since = null;
  }

  /**
   * Whether a call that failed may be made again: the server was unavailable, or the connection to
   * one that had answered broke, or one that had taken this call said when to come back.
   */
  boolean mayTryAgain(EntracteException error) {
    if (error instanceof CancelledException) {
      return false;
    }
    if (error.code() == Status.Code.UNAVAILABLE) {
      return true;
    }
    if (error.reason().isEmpty()) {
      switch (error.code()) {
        case CANCELLED: // what arrives as a server stops may be cancelled
          return true;
        case UNKNOWN: // what proxies and the transport say when a connection breaks
        case INTERNAL:
          return attached || reached;
        default:
          break;
      }
    }
    return attached && error.retryAfter() != null;
  }

  /** How many nanoseconds to wait before the next attempt. Throws the error when there is none. */
  long pauseAfter(EntracteException error) {
    long now = System.nanoTime();
    failures++;
    if (since == null) {
      since = now;
    }
    double grown = limits.first().toNanos() * Math.pow(2, Math.min(failures - 1, 16));
    double jitter = ThreadLocalRandom.current().nextDouble(0.5, 1.0);
    long pause = (long) (Math.min(limits.longest().toNanos(), grown) * jitter);
    if (error.retryAfter() != null) {
      pause = Math.max(pause, error.retryAfter().toNanos());
    } else if (!(attached || reached) && failures >= limits.attempts()) {
      throw error;
    }
    if (now + pause - since > limits.patience().toNanos() || !deadline.allows(pause)) {
      throw error;
    }
    return pause;
  }
}
