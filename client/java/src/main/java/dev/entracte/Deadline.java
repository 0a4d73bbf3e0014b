package dev.entracte;

import dev.entracte.errors.EntracteException;
import dev.entracte.errors.ErrorDetails;
import io.grpc.Status;
import java.time.Duration;

/** The end of a wait. */
final class Deadline {
  private final Long end;

  /** A wait of this length; null waits for ever. */
  Deadline(Duration timeout) {
    this.end = timeout == null ? null : System.nanoTime() + timeout.toNanos();
  }

  /** Nanoseconds left, null without end. Throws DeadlineExceededException when there are none. */
  Long remaining() {
    if (end == null) {
      return null;
    }
    long left = end - System.nanoTime();
    if (left <= 0) {
      throw EntracteException.of(
          ErrorDetails.of(Status.Code.DEADLINE_EXCEEDED, "the timeout passed; the run goes on"));
    }
    return left;
  }

  /** Whether there is time for a pause. */
  boolean allows(long nanos) {
    return end == null || end - System.nanoTime() > nanos;
  }

  /** What is left, but at most so long; null without end. */
  Duration atMost(Duration limit) {
    Long left = remaining();
    if (left == null || (limit != null && limit.toNanos() < left)) {
      return limit;
    }
    return Duration.ofNanos(left);
  }
}
