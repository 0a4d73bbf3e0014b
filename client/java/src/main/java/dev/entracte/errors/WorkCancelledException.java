package dev.entracte.errors;

/** Nobody wants the work any more. Metadata: {@code work_id}. */
public final class WorkCancelledException extends FailedPreconditionException {
  private static final long serialVersionUID = 1L;

  WorkCancelledException(ErrorDetails details) {
    super(details);
  }
}
