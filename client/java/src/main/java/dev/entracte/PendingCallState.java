package dev.entracte;

/** Whether a call still waits. */
public enum PendingCallState {
  /** It waits. */
  OPEN,
  /** It was decided. */
  DECIDED,
  /** A value that is newer than this SDK. */
  UNKNOWN;

  /** The value on the wire; null where it is not set. */
  static PendingCallState of(dev.entracte.v1.PendingCallState value) {
    return Enums.read(PendingCallState.class, value, UNKNOWN);
  }
}
