package dev.entracte;

/** What makes a call wait. Any of them can be declined. */
public enum PendingCallKind {
  /** Its arguments need approval: {@code approve}. */
  APPROVAL,
  /** The tool asked something: {@code resume}. */
  SUSPENSION,
  /** The caller executes it: {@code submitToolResult}. */
  CLIENT_TOOL,
  /**
   * The server stopped while the tool ran: {@code submitToolResult}, or {@code approve} to run it
   * again.
   */
  RECOVERY,
  /** A value that is newer than this SDK. */
  UNKNOWN;

  /** The value on the wire; null where it is not set. */
  static PendingCallKind of(dev.entracte.v1.PendingCallKind value) {
    return Enums.read(PendingCallKind.class, value, UNKNOWN);
  }
}
