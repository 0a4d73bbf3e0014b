package dev.entracte;

/** Where a follow-up stands. */
public enum FollowUpState {
  /** It is still to be done, or being done. */
  WAITING,
  /** It was done. */
  SUCCEEDED,
  /** Every attempt failed. */
  FAILED,
  /** It was not to be done. */
  SKIPPED,
  /** A value that is newer than this SDK. */
  UNKNOWN;

  /** The value on the wire; null where it is not set. */
  static FollowUpState of(dev.entracte.v1.FollowUpState value) {
    return Enums.read(FollowUpState.class, value, UNKNOWN);
  }
}
