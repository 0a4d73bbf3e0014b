package dev.entracte.errors;

/** The work was given out anew since then. Metadata: {@code work_id}. */
public final class WorkReassignedException extends FailedPreconditionException {
  private static final long serialVersionUID = 1L;

  WorkReassignedException(ErrorDetails details) {
    super(details);
  }
}
