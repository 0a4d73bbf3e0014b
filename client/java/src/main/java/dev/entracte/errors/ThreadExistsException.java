package dev.entracte.errors;

/** The thread id is taken. Metadata: {@code thread_id}. */
public final class ThreadExistsException extends AlreadyExistsException {
  private static final long serialVersionUID = 1L;

  ThreadExistsException(ErrorDetails details) {
    super(details);
  }
}
