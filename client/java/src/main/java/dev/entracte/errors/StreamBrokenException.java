package dev.entracte.errors;

import java.util.Map;

/**
 * The stream ended before its {@code finish} chunk, over and over. Metadata: {@code run_id}, {@code
 * sequence} (the last that came).
 */
public final class StreamBrokenException extends StreamException {
  private static final long serialVersionUID = 1L;

  /**
   * An exception of this kind.
   *
   * @param message what happened
   * @param metadata what is known beside it
   */
  public StreamBrokenException(String message, Map<String, String> metadata) {
    super(message, metadata);
  }
}
