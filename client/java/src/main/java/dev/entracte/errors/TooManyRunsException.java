package dev.entracte.errors;

/** The server executes as many runs as it may. Metadata: {@code limit}. */
public final class TooManyRunsException extends ResourceExhaustedException {
  private static final long serialVersionUID = 1L;

  TooManyRunsException(ErrorDetails details) {
    super(details);
  }
}
