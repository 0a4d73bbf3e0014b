package dev.entracte.errors;

import io.grpc.Status;

/**
 * The caller gave up a wait: its thread was interrupted (and still is), or the client was closed.
 * The run goes on.
 */
public final class CancelledException extends EntracteException {
  private static final long serialVersionUID = 1L;

  /**
   * A wait that was given up.
   *
   * @param message why
   */
  public CancelledException(String message) {
    super(ErrorDetails.of(Status.Code.CANCELLED, message));
  }
}
