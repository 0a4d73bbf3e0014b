package dev.entracte.errors;

/** There is too much of something. */
public class ResourceExhaustedException extends EntracteException {
  private static final long serialVersionUID = 1L;

  ResourceExhaustedException(ErrorDetails details) {
    super(details);
  }
}
