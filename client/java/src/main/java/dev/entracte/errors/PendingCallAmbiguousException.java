package dev.entracte.errors;

/**
 * More than one call could be meant; nothing was decided. Metadata: {@code run_id}, {@code
 * pending_call_ids} (comma separated).
 */
public final class PendingCallAmbiguousException extends FailedPreconditionException {
  private static final long serialVersionUID = 1L;

  PendingCallAmbiguousException(ErrorDetails details) {
    super(details);
  }
}
