package dev.entracte.errors;

/** The run still executes or waits. Metadata: {@code run_id}, {@code state}. */
public final class RunNotFinishedException extends FailedPreconditionException {
  private static final long serialVersionUID = 1L;

  RunNotFinishedException(ErrorDetails details) {
    super(details);
  }
}
