package dev.entracte.errors;

/**
 * The agent is not registered on this server; the run stays parked. Metadata: {@code run_id},
 * {@code agent_id}.
 */
public final class AgentUnavailableException extends FailedPreconditionException {
  private static final long serialVersionUID = 1L;

  AgentUnavailableException(ErrorDetails details) {
    super(details);
  }
}
