package dev.entracte;

import java.time.Duration;
import java.util.List;

/**
 * What options have that is not part of the run's own.
 *
 * @param requestId makes the request safe to repeat; empty where the SDK makes it
 * @param timeout the longest to wait; null for ever
 * @param callbacks functions that are told what happens
 * @param clientTools tools that this process executes
 * @param traceparent the caller's span; null for none
 */
record CallSettings(
    String requestId,
    Duration timeout,
    Callbacks callbacks,
    List<ClientTool> clientTools,
    String traceparent) {
  static final CallSettings DEFAULT = new CallSettings("", null, Callbacks.none(), List.of(), null);

  /** Whether something is to happen while the run goes on. */
  boolean needStream() {
    return !callbacks.isEmpty() || ToolRunner.isNeeded(clientTools);
  }

  /** The given request id, else a new one. */
  String anyRequestId() {
    return requestId.isEmpty() ? Connection.newId() : requestId;
  }

  CallSettings requestId(String requestId) {
    return new CallSettings(requestId, timeout, callbacks, clientTools, traceparent);
  }

  CallSettings timeout(Duration timeout) {
    return new CallSettings(requestId, timeout, callbacks, clientTools, traceparent);
  }

  CallSettings callbacks(Callbacks callbacks) {
    return new CallSettings(requestId, timeout, callbacks, clientTools, traceparent);
  }

  CallSettings clientTools(List<ClientTool> clientTools) {
    return new CallSettings(requestId, timeout, callbacks, clientTools, traceparent);
  }

  CallSettings traceparent(String traceparent) {
    return new CallSettings(requestId, timeout, callbacks, clientTools, traceparent);
  }
}
