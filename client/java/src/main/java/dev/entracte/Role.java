package dev.entracte;

/** Who speaks in a message. */
public enum Role {
  /** Directions to the model. */
  SYSTEM,
  /** The person, or the program speaking for them. */
  USER,
  /** The model. */
  ASSISTANT,
  /** Results of tool calls. */
  TOOL,
  /** A value that is newer than this SDK. */
  UNKNOWN;

  /** The value on the wire; null where it is not set. */
  static Role of(dev.entracte.v1.Role value) {
    return Enums.read(Role.class, value, UNKNOWN);
  }
}
