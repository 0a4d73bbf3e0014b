package dev.entracte.errors;

/** As many runs wait for the thread as may. Metadata: {@code thread_id}, {@code limit}. */
public final class ThreadQueueFullException extends ResourceExhaustedException {
  private static final long serialVersionUID = 1L;

  ThreadQueueFullException(ErrorDetails details) {
    super(details);
  }
}
