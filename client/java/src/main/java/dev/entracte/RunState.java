package dev.entracte;

/** Where a run stands. */
public enum RunState {
  /** It waits for its turn on its thread. */
  QUEUED,
  /** It executes. */
  RUNNING,
  /** It is parked: nothing happens until a call is decided. */
  SUSPENDED,
  /** It ended well. */
  SUCCEEDED,
  /** It failed. */
  FAILED,
  /** It was cancelled. */
  CANCELLED,
  /** A value that is newer than this SDK. */
  UNKNOWN;

  /** The value on the wire; null where it is not set. */
  static RunState of(dev.entracte.v1.RunState value) {
    return Enums.read(RunState.class, value, UNKNOWN);
  }
}
