package dev.entracte.errors;

/** The thread belongs to another resource. Metadata: {@code thread_id}. */
public final class ThreadOfOtherResourceException extends FailedPreconditionException {
  private static final long serialVersionUID = 1L;

  ThreadOfOtherResourceException(ErrorDetails details) {
    super(details);
  }
}
