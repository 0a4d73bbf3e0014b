package dev.entracte.errors;

/**
 * The run is a sub-agent's: it is cancelled and deleted with its root. Metadata: {@code run_id},
 * {@code root_run_id}.
 */
public final class RunOfSubAgentException extends FailedPreconditionException {
  private static final long serialVersionUID = 1L;

  RunOfSubAgentException(ErrorDetails details) {
    super(details);
  }
}
