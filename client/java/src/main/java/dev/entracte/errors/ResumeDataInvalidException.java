package dev.entracte.errors;

/** The answer does not fit the call's resume schema; the call still waits. */
public final class ResumeDataInvalidException extends InvalidArgumentException {
  private static final long serialVersionUID = 1L;

  ResumeDataInvalidException(ErrorDetails details) {
    super(details);
  }
}
