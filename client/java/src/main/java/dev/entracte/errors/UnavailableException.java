package dev.entracte.errors;

/** The server cannot answer now. The SDK has tried again before it throws this. */
public class UnavailableException extends EntracteException {
  private static final long serialVersionUID = 1L;

  UnavailableException(ErrorDetails details) {
    super(details);
  }
}
