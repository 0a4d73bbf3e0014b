package dev.entracte.errors;

/** What the tool wrote is not written to its run yet. Metadata: {@code work_id}. */
public final class WorkOutputFullException extends ResourceExhaustedException {
  private static final long serialVersionUID = 1L;

  WorkOutputFullException(ErrorDetails details) {
    super(details);
  }
}
