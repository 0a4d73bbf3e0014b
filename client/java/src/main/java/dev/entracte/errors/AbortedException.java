package dev.entracte.errors;

/** Something else got in the way. */
public class AbortedException extends EntracteException {
  private static final long serialVersionUID = 1L;

  AbortedException(ErrorDetails details) {
    super(details);
  }
}
