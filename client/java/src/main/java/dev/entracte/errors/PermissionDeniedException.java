package dev.entracte.errors;

/** The principal may not do this. */
public class PermissionDeniedException extends EntracteException {
  private static final long serialVersionUID = 1L;

  PermissionDeniedException(ErrorDetails details) {
    super(details);
  }
}
