package dev.entracte;

import com.google.protobuf.Any;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.rpc.BadRequest;
import com.google.rpc.ErrorInfo;
import com.google.rpc.RetryInfo;
import dev.entracte.errors.EntracteException;
import dev.entracte.errors.ErrorDetails;
import dev.entracte.errors.FieldViolation;
import io.grpc.Metadata;
import io.grpc.Status;
import io.grpc.protobuf.StatusProto;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** From gRPC statuses to exceptions. */
final class Statuses {
  private static final String DOMAIN = "entracte.dev";

  private Statuses() {}

  /** The exception for a call that ended with a status other than OK. */
  static EntracteException errorOf(Status status, Metadata trailers) {
    String reason = "";
    Map<String, String> metadata = new HashMap<>();
    List<FieldViolation> violations = new ArrayList<>();
    Duration retryAfter = null;
    for (Any packed : details(status, trailers)) {
      try {
        if (packed.is(ErrorInfo.class)) {
          ErrorInfo info = packed.unpack(ErrorInfo.class);
          reason = info.getDomain().equals(DOMAIN) ? info.getReason() : reason;
          metadata.putAll(info.getMetadataMap());
        } else if (packed.is(BadRequest.class)) {
          for (BadRequest.FieldViolation fault :
              packed.unpack(BadRequest.class).getFieldViolationsList()) {
            violations.add(new FieldViolation(fault.getField(), fault.getDescription()));
          }
        } else if (packed.is(RetryInfo.class)) {
          retryAfter = Wire.duration(true, packed.unpack(RetryInfo.class).getRetryDelay());
        }
      } catch (InvalidProtocolBufferException garbled) {
        continue; // a detail that cannot be read says nothing
      }
    }
    String message = status.getDescription() == null ? "" : status.getDescription();
    EntracteException error =
        EntracteException.of(
            new ErrorDetails(message, status.getCode(), reason, metadata, violations, retryAfter));
    error.initCause(status.asRuntimeException(trailers));
    return error;
  }

  private static List<Any> details(Status status, Metadata trailers) {
    if (trailers == null) {
      return List.of();
    }
    try {
      return StatusProto.fromStatusAndTrailers(status, trailers).getDetailsList();
    } catch (IllegalArgumentException contradiction) {
      return List.of(); // the details are of another status, so they are not of this call
    }
  }
}
