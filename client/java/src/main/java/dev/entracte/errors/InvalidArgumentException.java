package dev.entracte.errors;

/** The request is wrong. */
public class InvalidArgumentException extends EntracteException {
  private static final long serialVersionUID = 1L;

  InvalidArgumentException(ErrorDetails details) {
    super(details);
  }
}
