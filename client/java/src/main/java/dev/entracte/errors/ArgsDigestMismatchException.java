package dev.entracte.errors;

/** The arguments are not those that were shown. Metadata: {@code pending_call_id}. */
public final class ArgsDigestMismatchException extends FailedPreconditionException {
  private static final long serialVersionUID = 1L;

  ArgsDigestMismatchException(ErrorDetails details) {
    super(details);
  }
}
