package dev.entracte.errors;

/** The request does not fit the state of things. */
public class FailedPreconditionException extends EntracteException {
  private static final long serialVersionUID = 1L;

  FailedPreconditionException(ErrorDetails details) {
    super(details);
  }
}
