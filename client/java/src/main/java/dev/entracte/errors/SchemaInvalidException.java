package dev.entracte.errors;

/** A JSON Schema is not one, or refers to something remote. */
public final class SchemaInvalidException extends InvalidArgumentException {
  private static final long serialVersionUID = 1L;

  SchemaInvalidException(ErrorDetails details) {
    super(details);
  }
}
