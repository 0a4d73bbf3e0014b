package dev.entracte.errors;

/** This server does not support that. */
public class UnimplementedException extends EntracteException {
  private static final long serialVersionUID = 1L;

  UnimplementedException(ErrorDetails details) {
    super(details);
  }
}
