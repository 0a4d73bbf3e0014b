package dev.entracte.errors;

import java.util.Map;

/**
 * A chunk came that this SDK does not know and that must not be skipped: a newer SDK is needed.
 * Metadata: {@code run_id}, {@code sequence}.
 */
public final class UnknownChunkException extends StreamException {
  private static final long serialVersionUID = 1L;

  /**
   * An exception of this kind.
   *
   * @param message what happened
   * @param metadata what is known beside it
   */
  public UnknownChunkException(String message, Map<String, String> metadata) {
    super(message, metadata);
  }
}
