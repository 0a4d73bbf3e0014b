package dev.entracte.errors;

/** A fault of the server; its log has the details. Metadata: {@code request_id}. */
public final class InternalException extends EntracteException {
  private static final long serialVersionUID = 1L;

  InternalException(ErrorDetails details) {
    super(details);
  }
}
