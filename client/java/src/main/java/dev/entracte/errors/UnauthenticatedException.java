package dev.entracte.errors;

/** No valid credential was sent. */
public final class UnauthenticatedException extends EntracteException {
  private static final long serialVersionUID = 1L;

  UnauthenticatedException(ErrorDetails details) {
    super(details);
  }
}
