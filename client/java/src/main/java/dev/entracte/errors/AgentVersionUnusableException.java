package dev.entracte.errors;

/**
 * The version names something that this server does not have. Metadata: {@code agent_id}, {@code
 * version_id}.
 */
public final class AgentVersionUnusableException extends FailedPreconditionException {
  private static final long serialVersionUID = 1L;

  AgentVersionUnusableException(ErrorDetails details) {
    super(details);
  }
}
