package dev.entracte.errors;

/** The run id is taken. Metadata: {@code run_id}. */
public final class RunAlreadyExistsException extends AlreadyExistsException {
  private static final long serialVersionUID = 1L;

  RunAlreadyExistsException(ErrorDetails details) {
    super(details);
  }
}
