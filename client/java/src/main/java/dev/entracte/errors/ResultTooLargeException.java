package dev.entracte.errors;

/**
 * The result is larger than a message may be; follow the run's chunks instead. Metadata: {@code
 * run_id}, {@code rpc}, {@code bytes}.
 */
public final class ResultTooLargeException extends OutOfRangeException {
  private static final long serialVersionUID = 1L;

  ResultTooLargeException(ErrorDetails details) {
    super(details);
  }
}
