package dev.entracte.errors;

/**
 * Another run has the thread, or others wait for it. Metadata: {@code thread_id}, {@code run_id},
 * {@code state}.
 */
public final class ThreadBusyException extends AbortedException {
  private static final long serialVersionUID = 1L;

  ThreadBusyException(ErrorDetails details) {
    super(details);
  }
}
