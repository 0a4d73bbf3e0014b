package dev.entracte.errors;

/**
 * The version was archived: no new run can use it. Metadata: {@code agent_id}, {@code version_id}.
 */
public final class AgentVersionArchivedException extends FailedPreconditionException {
  private static final long serialVersionUID = 1L;

  AgentVersionArchivedException(ErrorDetails details) {
    super(details);
  }
}
