package dev.entracte;

/** What ended a run or made it pause. */
public enum StopCause {
  /** The model had nothing more to do. */
  MODEL_FINISHED,
  /** The limit of steps was reached. */
  MAX_STEPS,
  /** A stop condition held. */
  STOP_WHEN,
  /** A hook said so. */
  HOOK,
  /** A delegation ended the run. */
  BAIL,
  /** The completion check never passed. */
  TASK_INCOMPLETE,
  /** The completion check could not be made. */
  CHECK_UNAVAILABLE,
  /** A client has to execute a tool. */
  CLIENT_TOOL,
  /** Calls wait for people. */
  SUSPENDED,
  /** The execution timeout passed. */
  TIMEOUT,
  /** A budget was used up. */
  BUDGET,
  /** The run was cancelled. */
  CANCELLED,
  /** A processor stopped it. */
  TRIPWIRE,
  /** An error ended it. */
  ERROR,
  /** A value that is newer than this SDK. */
  UNKNOWN;

  /** The value on the wire; null where it is not set. */
  static StopCause of(dev.entracte.v1.StopCause value) {
    return Enums.read(StopCause.class, value, UNKNOWN);
  }
}
