package dev.entracte;

/** What happens to a pending call that nobody decides in time. */
public enum ExpiryAction {
  /** It is declined, and the run goes on. */
  DECLINE,
  /** The run fails. */
  FAIL,
  /** An answer that was declared beforehand is given. */
  ANSWER,
  /** A value that is newer than this SDK. */
  UNKNOWN;

  /** The value on the wire; null where it is not set. */
  static ExpiryAction of(dev.entracte.v1.ExpiryAction value) {
    return Enums.read(ExpiryAction.class, value, UNKNOWN);
  }
}
