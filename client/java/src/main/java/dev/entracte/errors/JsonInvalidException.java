package dev.entracte.errors;

/** A JSON value is refused: not JSON, too large or too deep. */
public final class JsonInvalidException extends InvalidArgumentException {
  private static final long serialVersionUID = 1L;

  JsonInvalidException(ErrorDetails details) {
    super(details);
  }
}
