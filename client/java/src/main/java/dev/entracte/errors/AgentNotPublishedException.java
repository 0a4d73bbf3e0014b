package dev.entracte.errors;

/**
 * The agent has no version of the status that the run was to use. Metadata: {@code agent_id},
 * {@code status}.
 */
public final class AgentNotPublishedException extends FailedPreconditionException {
  private static final long serialVersionUID = 1L;

  AgentNotPublishedException(ErrorDetails details) {
    super(details);
  }
}
