package dev.entracte.errors;

/** The server's own limit on the wait passed; the run goes on, and the same call joins it. */
public final class WaitTooLongException extends DeadlineExceededException {
  private static final long serialVersionUID = 1L;

  WaitTooLongException(ErrorDetails details) {
    super(details);
  }
}
