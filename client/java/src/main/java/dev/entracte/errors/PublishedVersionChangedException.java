package dev.entracte.errors;

/**
 * Another version is published than the one that was to be replaced. Metadata: {@code agent_id},
 * {@code published_version_id}.
 */
public final class PublishedVersionChangedException extends AbortedException {
  private static final long serialVersionUID = 1L;

  PublishedVersionChangedException(ErrorDetails details) {
    super(details);
  }
}
