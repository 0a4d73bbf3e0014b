package dev.entracte.errors;

/** An agent of this id is written in Python. Metadata: {@code agent_id}. */
public final class AgentDefinedInCodeException extends AlreadyExistsException {
  private static final long serialVersionUID = 1L;

  AgentDefinedInCodeException(ErrorDetails details) {
    super(details);
  }
}
