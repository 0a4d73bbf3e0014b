package dev.entracte.errors;

import io.grpc.Status;
import java.util.Map;

/** The stream is not what the contract says. */
public class StreamException extends EntracteException {
  private static final long serialVersionUID = 1L;

  StreamException(String message, Map<String, String> metadata) {
    super(ErrorDetails.of(Status.Code.DATA_LOSS, message).with(metadata));
  }
}
