package dev.entracte;

/** What came of a tool call in a thread. */
public enum ToolInvocationState {
  /** It waits: for a person, a client, or for its turn. */
  PENDING,
  /** The tool returned something. */
  RESULT,
  /** It failed. */
  ERROR,
  /** A person declined it. */
  DENIED,
  /** It was cut off with its run. */
  CANCELLED,
  /** A value that is newer than this SDK. */
  UNKNOWN;

  /** The value on the wire; null where it is not set. */
  static ToolInvocationState of(dev.entracte.v1.ToolInvocationState value) {
    return Enums.read(ToolInvocationState.class, value, UNKNOWN);
  }
}
