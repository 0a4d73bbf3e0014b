package dev.entracte.errors;

import io.grpc.Status;
import java.time.Duration;
import java.util.List;
import java.util.Map;

/**
 * The root of all exceptions of this SDK.
 *
 * <p>Every refusal of the server is an exception named after its reason in the contract ({@code
 * ErrorReason}), below the class of its status code: {@link RunNotFoundException} is a {@link
 * NotFoundException}. A reason or code newer than this SDK is the closest class above it. A run
 * that failed is not an error: it is a result whose finish reason is {@code ERROR}.
 */
public class EntracteException extends RuntimeException {
  private static final long serialVersionUID = 1L;

  private final ErrorDetails details;

  /**
   * An exception of no more special class.
   *
   * @param details what is known
   */
  EntracteException(ErrorDetails details) {
    super(text(details));
    this.details = details;
  }

  /**
   * The exception of the class that fits what is known.
   *
   * @param details what is known of the error
   * @return the exception, not thrown yet
   */
  public static EntracteException of(ErrorDetails details) {
    return Kinds.of(details);
  }

  /**
   * The details.
   *
   * @return all that is known of the error
   */
  public ErrorDetails details() {
    return details;
  }

  /**
   * The status code.
   *
   * @return the gRPC status code
   */
  public Status.Code code() {
    return details.code();
  }

  /**
   * The reason.
   *
   * @return the name in the contract's {@code ErrorReason}; empty where the server gave none
   */
  public String reason() {
    return details.reason();
  }

  /**
   * What the server added to the reason.
   *
   * @return the metadata, as each reason documents it
   */
  public Map<String, String> metadata() {
    return details.metadata();
  }

  /**
   * The faulty fields of the request.
   *
   * @return path and description of each
   */
  public List<FieldViolation> violations() {
    return details.violations();
  }

  /**
   * How long to wait before trying again.
   *
   * @return the time, or null where the server did not say
   */
  public Duration retryAfter() {
    return details.retryAfter();
  }

  /**
   * Whether the same request may well succeed later.
   *
   * @return true where the server says when to come back, and for what passes by itself
   */
  public boolean retryable() {
    return details.retryAfter() != null
        || code() == Status.Code.UNAVAILABLE
        || code() == Status.Code.RESOURCE_EXHAUSTED;
  }

  private static String text(ErrorDetails details) {
    String name = details.reason().isEmpty() ? details.code().name() : details.reason();
    StringBuilder text = new StringBuilder(name);
    if (!details.message().isEmpty()) {
      text.append(": ").append(details.message());
    }
    for (FieldViolation violation : details.violations()) {
      text.append("\n  ").append(violation.field()).append(": ").append(violation.description());
    }
    return text.toString();
  }
}
