package dev.entracte;

/** How a step or a run ended. */
public enum FinishReason {
  /** The model finished. */
  STOP,
  /** The last step called tools and no further step was made; the stop cause says why. */
  TOOL_CALLS,
  /** The run is parked: calls wait for people. */
  SUSPENDED,
  /** The run failed. */
  ERROR,
  /** The answer was cut by the token limit. */
  LENGTH,
  /** The answer was cut by the provider's filter. */
  CONTENT_FILTER,
  /** The run was cancelled. */
  ABORTED,
  /** A processor stopped the run. */
  TRIPWIRE,
  /** The provider gave a reason of its own. */
  OTHER,
  /** A value that is newer than this SDK. */
  UNKNOWN;

  /** The value on the wire; null where it is not set. */
  static FinishReason of(dev.entracte.v1.FinishReason value) {
    return Enums.read(FinishReason.class, value, UNKNOWN);
  }
}
