package dev.entracte;

/** What is done after the end of a run. */
public enum FollowUpKind {
  /** A scorer judges the result. */
  SCORE,
  /** The thread of the run is given a title. */
  TITLE,
  /** A value that is newer than this SDK. */
  UNKNOWN;

  /** The value on the wire; null where it is not set. */
  static FollowUpKind of(dev.entracte.v1.FollowUpKind value) {
    return Enums.read(FollowUpKind.class, value, UNKNOWN);
  }
}
