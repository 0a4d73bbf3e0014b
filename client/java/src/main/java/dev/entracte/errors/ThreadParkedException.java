package dev.entracte.errors;

/**
 * The run that has the thread is parked. Metadata: {@code thread_id}, {@code run_id}, {@code
 * pending_call_ids} (comma separated).
 */
public final class ThreadParkedException extends FailedPreconditionException {
  private static final long serialVersionUID = 1L;

  ThreadParkedException(ErrorDetails details) {
    super(details);
  }
}
