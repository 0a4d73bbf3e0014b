package dev.entracte.errors;

/** A newer stream of the same session took this one's place. Metadata: {@code session_id}. */
public final class WorkerSessionReplacedException extends AbortedException {
  private static final long serialVersionUID = 1L;

  WorkerSessionReplacedException(ErrorDetails details) {
    super(details);
  }
}
