package dev.entracte.errors;

/** The page token is not one of this list. */
public final class PageTokenInvalidException extends InvalidArgumentException {
  private static final long serialVersionUID = 1L;

  PageTokenInvalidException(ErrorDetails details) {
    super(details);
  }
}
