package dev.entracte.errors;

/** No such agent. Metadata: {@code agent_id}. */
public final class AgentNotFoundException extends NotFoundException {
  private static final long serialVersionUID = 1L;

  AgentNotFoundException(ErrorDetails details) {
    super(details);
  }
}
