package dev.entracte.errors;

/** No such run. Metadata: {@code run_id}. */
public final class RunNotFoundException extends NotFoundException {
  private static final long serialVersionUID = 1L;

  RunNotFoundException(ErrorDetails details) {
    super(details);
  }
}
