package dev.entracte;

/** How a waiting call was decided. */
public enum DecisionVerb {
  /** Approved. */
  APPROVE,
  /** Declined. */
  DECLINE,
  /** Answered. */
  RESUME,
  /** A client's tool result. */
  SUBMIT,
  /** The run was cancelled. */
  CANCEL,
  /** It expired. */
  EXPIRE,
  /** A value that is newer than this SDK. */
  UNKNOWN;

  /** The value on the wire; null where it is not set. */
  static DecisionVerb of(dev.entracte.v1.DecisionVerb value) {
    return Enums.read(DecisionVerb.class, value, UNKNOWN);
  }
}
