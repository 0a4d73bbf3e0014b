package dev.entracte.errors;

/**
 * Another principal has claimed the call. Metadata: {@code pending_call_id}, {@code principal},
 * {@code expire_time}.
 */
public final class PendingCallClaimedException extends FailedPreconditionException {
  private static final long serialVersionUID = 1L;

  PendingCallClaimedException(ErrorDetails details) {
    super(details);
  }
}
