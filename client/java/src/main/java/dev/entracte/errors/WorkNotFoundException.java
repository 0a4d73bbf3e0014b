package dev.entracte.errors;

/** There is no such work, or it is another principal's. Metadata: {@code work_id}. */
public final class WorkNotFoundException extends NotFoundException {
  private static final long serialVersionUID = 1L;

  WorkNotFoundException(ErrorDetails details) {
    super(details);
  }
}
