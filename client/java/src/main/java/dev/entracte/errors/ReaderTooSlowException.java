package dev.entracte.errors;

/** The stream was not read fast enough. Metadata: {@code run_id}. */
public final class ReaderTooSlowException extends UnavailableException {
  private static final long serialVersionUID = 1L;

  ReaderTooSlowException(ErrorDetails details) {
    super(details);
  }
}
