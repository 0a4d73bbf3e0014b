package dev.entracte.errors;

/** No such thread. Metadata: {@code thread_id}. */
public final class ThreadNotFoundException extends NotFoundException {
  private static final long serialVersionUID = 1L;

  ThreadNotFoundException(ErrorDetails details) {
    super(details);
  }
}
