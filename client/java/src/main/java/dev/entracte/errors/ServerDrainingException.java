package dev.entracte.errors;

/** The server is stopping. */
public final class ServerDrainingException extends UnavailableException {
  private static final long serialVersionUID = 1L;

  ServerDrainingException(ErrorDetails details) {
    super(details);
  }
}
