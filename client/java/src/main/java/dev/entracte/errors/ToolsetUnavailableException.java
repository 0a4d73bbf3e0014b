package dev.entracte.errors;

/**
 * The run was to have a toolset whose server does not list its tools. Metadata: {@code toolset}.
 */
public final class ToolsetUnavailableException extends FailedPreconditionException {
  private static final long serialVersionUID = 1L;

  ToolsetUnavailableException(ErrorDetails details) {
    super(details);
  }
}
