package dev.entracte.errors;

/** There is no such thing, or it belongs to another tenant. */
public class NotFoundException extends EntracteException {
  private static final long serialVersionUID = 1L;

  NotFoundException(ErrorDetails details) {
    super(details);
  }
}
