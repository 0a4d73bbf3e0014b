package dev.entracte.errors;

/** A position or size is beyond what there is. */
public class OutOfRangeException extends EntracteException {
  private static final long serialVersionUID = 1L;

  OutOfRangeException(ErrorDetails details) {
    super(details);
  }
}
