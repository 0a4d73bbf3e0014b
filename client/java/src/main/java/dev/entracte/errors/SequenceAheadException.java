package dev.entracte.errors;

/**
 * The position lies beyond the run's last chunk. Metadata: {@code run_id}, {@code last_sequence}.
 */
public final class SequenceAheadException extends OutOfRangeException {
  private static final long serialVersionUID = 1L;

  SequenceAheadException(ErrorDetails details) {
    super(details);
  }
}
