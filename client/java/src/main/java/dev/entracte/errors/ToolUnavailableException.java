package dev.entracte.errors;

/**
 * The tool is not registered on this server; the run stays parked. Metadata: {@code run_id}, {@code
 * agent_id}, {@code tool_name}.
 */
public final class ToolUnavailableException extends FailedPreconditionException {
  private static final long serialVersionUID = 1L;

  ToolUnavailableException(ErrorDetails details) {
    super(details);
  }
}
