package dev.entracte.errors;

/** The principal has too many streams open. Metadata: {@code limit}. */
public final class TooManyStreamsException extends ResourceExhaustedException {
  private static final long serialVersionUID = 1L;

  TooManyStreamsException(ErrorDetails details) {
    super(details);
  }
}
