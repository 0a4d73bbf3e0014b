package dev.entracte.errors;

/** The {@code request_id} was used with another request. */
public final class RequestIdReusedException extends InvalidArgumentException {
  private static final long serialVersionUID = 1L;

  RequestIdReusedException(ErrorDetails details) {
    super(details);
  }
}
