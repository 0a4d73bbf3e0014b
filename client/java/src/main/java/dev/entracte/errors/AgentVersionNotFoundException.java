package dev.entracte.errors;

/** The agent has no such version. Metadata: {@code agent_id}, {@code version_id}. */
public final class AgentVersionNotFoundException extends NotFoundException {
  private static final long serialVersionUID = 1L;

  AgentVersionNotFoundException(ErrorDetails details) {
    super(details);
  }
}
