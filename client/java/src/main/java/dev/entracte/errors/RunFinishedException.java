package dev.entracte.errors;

/** The run has ended. Metadata: {@code run_id}, {@code state}. */
public final class RunFinishedException extends FailedPreconditionException {
  private static final long serialVersionUID = 1L;

  RunFinishedException(ErrorDetails details) {
    super(details);
  }
}
