package dev.entracte.errors;

/**
 * Another definition has the tool's name and version, or the toolset is one of the server's.
 * Metadata: {@code tool}, {@code version}.
 */
public final class WorkerToolExistsException extends AlreadyExistsException {
  private static final long serialVersionUID = 1L;

  WorkerToolExistsException(ErrorDetails details) {
    super(details);
  }
}
