package dev.entracte.errors;

/** The server's database does not answer. */
public final class StoreUnavailableException extends UnavailableException {
  private static final long serialVersionUID = 1L;

  StoreUnavailableException(ErrorDetails details) {
    super(details);
  }
}
