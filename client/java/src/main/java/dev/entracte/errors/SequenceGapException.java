package dev.entracte.errors;

import java.util.Map;

/**
 * A chunk is missing. Metadata: {@code run_id}, {@code expected}, {@code sequence} (the one that
 * came).
 */
public final class SequenceGapException extends StreamException {
  private static final long serialVersionUID = 1L;

  /**
   * An exception of this kind.
   *
   * @param message what happened
   * @param metadata what is known beside it
   */
  public SequenceGapException(String message, Map<String, String> metadata) {
    super(message, metadata);
  }
}
