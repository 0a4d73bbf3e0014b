package dev.entracte.errors;

/** A field is missing or wrong; see {@link #violations()}. */
public final class RequestInvalidException extends InvalidArgumentException {
  private static final long serialVersionUID = 1L;

  RequestInvalidException(ErrorDetails details) {
    super(details);
  }
}
