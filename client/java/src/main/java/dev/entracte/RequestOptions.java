package dev.entracte;

import java.time.Duration;

/**
 * How plain requests are made: those that neither start a run nor decide a call.
 *
 * @param timeout the longest a request may take with its repetitions; null for ever
 * @param requestId makes a change safe to repeat; empty where the SDK makes one for each request
 */
public record RequestOptions(Duration timeout, String requestId) {
  /**
   * Another time limit.
   *
   * @param timeout the longest a request may take; null for ever
   * @return a copy with it
   */
  public RequestOptions withTimeout(Duration timeout) {
    return new RequestOptions(timeout, requestId);
  }

  /**
   * A request id of the caller's. The server remembers it per method: given again with the same
   * request it changes nothing.
   *
   * @param requestId up to 128 characters
   * @return a copy with it
   */
  public RequestOptions withRequestId(String requestId) {
    return new RequestOptions(timeout, requestId);
  }

  String anyRequestId() {
    return requestId.isEmpty() ? Connection.newId() : requestId;
  }
}
