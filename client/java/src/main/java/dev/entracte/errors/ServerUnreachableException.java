package dev.entracte.errors;

/** No server answered at the address, or the connection broke. */
public final class ServerUnreachableException extends UnavailableException {
  private static final long serialVersionUID = 1L;

  ServerUnreachableException(ErrorDetails details) {
    super(details);
  }
}
