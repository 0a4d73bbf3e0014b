package dev.entracte.errors;

/** The run is owned by a process that cannot be reached. */
public final class RunLeaseLostException extends AbortedException {
  private static final long serialVersionUID = 1L;

  RunLeaseLostException(ErrorDetails details) {
    super(details);
  }
}
