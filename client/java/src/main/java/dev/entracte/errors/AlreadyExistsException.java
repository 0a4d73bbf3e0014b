package dev.entracte.errors;

/** There is one already. */
public class AlreadyExistsException extends EntracteException {
  private static final long serialVersionUID = 1L;

  AlreadyExistsException(ErrorDetails details) {
    super(details);
  }
}
