package dev.entracte.errors;

/** No such pending call. Metadata: what was given. */
public final class PendingCallNotFoundException extends NotFoundException {
  private static final long serialVersionUID = 1L;

  PendingCallNotFoundException(ErrorDetails details) {
    super(details);
  }
}
