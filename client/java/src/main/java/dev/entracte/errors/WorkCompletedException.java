package dev.entracte.errors;

/** Another outcome was handed in before. Metadata: {@code work_id}. */
public final class WorkCompletedException extends FailedPreconditionException {
  private static final long serialVersionUID = 1L;

  WorkCompletedException(ErrorDetails details) {
    super(details);
  }
}
