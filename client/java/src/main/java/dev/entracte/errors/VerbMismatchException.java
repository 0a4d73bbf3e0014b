package dev.entracte.errors;

/**
 * The verb does not fit the kind of call. Metadata: {@code pending_call_id}, {@code kind}, {@code
 * verbs} (those that fit, comma separated).
 */
public final class VerbMismatchException extends FailedPreconditionException {
  private static final long serialVersionUID = 1L;

  VerbMismatchException(ErrorDetails details) {
    super(details);
  }
}
