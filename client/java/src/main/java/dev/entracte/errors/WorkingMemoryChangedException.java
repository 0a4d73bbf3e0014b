package dev.entracte.errors;

/**
 * The working memory has another version than the one that was to be changed: read it again.
 * Metadata: {@code version}.
 */
public final class WorkingMemoryChangedException extends AbortedException {
  private static final long serialVersionUID = 1L;

  WorkingMemoryChangedException(ErrorDetails details) {
    super(details);
  }
}
