package dev.entracte.errors;

/** The call expired. Metadata: {@code pending_call_id}, {@code expire_time}. */
public final class PendingCallExpiredException extends FailedPreconditionException {
  private static final long serialVersionUID = 1L;

  PendingCallExpiredException(ErrorDetails details) {
    super(details);
  }
}
