package dev.entracte.errors;

/**
 * The call was decided before. Metadata: {@code pending_call_id}, {@code decision_id}, {@code
 * verb}, {@code principal}, {@code decide_time}.
 */
public final class PendingCallAlreadyDecidedException extends FailedPreconditionException {
  private static final long serialVersionUID = 1L;

  PendingCallAlreadyDecidedException(ErrorDetails details) {
    super(details);
  }
}
