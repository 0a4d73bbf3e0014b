package dev.entracte.errors;

/**
 * The chunks after that position are no longer stored. Metadata: {@code run_id}, {@code
 * first_sequence}.
 */
public final class SequenceTrimmedException extends OutOfRangeException {
  private static final long serialVersionUID = 1L;

  SequenceTrimmedException(ErrorDetails details) {
    super(details);
  }
}
