package dev.entracte.errors;

/**
 * The agent has a tool that no worker has registered yet; no run was started. Metadata: {@code
 * tool}, {@code version}.
 */
public final class WorkerToolUnknownException extends FailedPreconditionException {
  private static final long serialVersionUID = 1L;

  WorkerToolUnknownException(ErrorDetails details) {
    super(details);
  }
}
