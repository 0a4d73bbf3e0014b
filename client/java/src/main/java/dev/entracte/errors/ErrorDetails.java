package dev.entracte.errors;

import io.grpc.Status;
import java.io.Serializable;
import java.time.Duration;
import java.util.List;
import java.util.Map;

/**
 * What is known of an error.
 *
 * @param message what happened, in words
 * @param code the gRPC status code
 * @param reason the name in the contract's {@code ErrorReason}, for example {@code RUN_NOT_FOUND};
 *     empty where the server gave none
 * @param metadata what the server added to the reason
 * @param violations the faulty fields of the request
 * @param retryAfter how long to wait before trying again; null where the server did not say
 */
public record ErrorDetails(
    String message,
    Status.Code code,
    String reason,
    Map<String, String> metadata,
    List<FieldViolation> violations,
    Duration retryAfter)
    implements Serializable {

  /**
   * Keeps copies of the metadata and the violations.
   *
   * @param message what happened, in words
   * @param code the gRPC status code
   * @param reason the name in the contract's {@code ErrorReason}, for example {@code
   *     RUN_NOT_FOUND}; empty where the server gave none
   * @param metadata what the server added to the reason
   * @param violations the faulty fields of the request
   * @param retryAfter how long to wait before trying again; null where the server did not say
   */
  public ErrorDetails {
    metadata = Map.copyOf(metadata);
    violations = List.copyOf(violations);
  }

  /**
   * The details of an error that did not come from the server.
   *
   * @param code the status code
   * @param message what happened
   * @return the details
   */
  public static ErrorDetails of(Status.Code code, String message) {
    return new ErrorDetails(message, code, "", Map.of(), List.of(), null);
  }

  /**
   * The same with metadata.
   *
   * @param metadata what is known beside the message
   * @return a copy
   */
  public ErrorDetails with(Map<String, String> metadata) {
    return new ErrorDetails(message, code, reason, metadata, violations, retryAfter);
  }
}
