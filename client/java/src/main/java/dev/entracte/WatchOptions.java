package dev.entracte;

import java.time.Duration;
import java.util.List;

/** How a run is watched. Immutable: each method returns a copy. */
public final class WatchOptions {
  private static final WatchOptions DEFAULTS = new WatchOptions(CallSettings.DEFAULT, false);

  private final CallSettings settings;
  private final boolean untilFinished;

  private WatchOptions(CallSettings settings, boolean untilFinished) {
    this.settings = settings;
    this.untilFinished = untilFinished;
  }

  /**
   * Nothing set.
   *
   * @return the options to begin with
   */
  public static WatchOptions defaults() {
    return DEFAULTS;
  }

  /**
   * Waits through suspensions until the run has ended.
   *
   * @return a copy with it
   */
  public WatchOptions untilFinished() {
    return new WatchOptions(settings, true);
  }

  /**
   * The longest to wait. It bounds the wait and never the run.
   *
   * @param timeout for ever where it is not given
   * @return a copy with it
   */
  public WatchOptions timeout(Duration timeout) {
    return new WatchOptions(settings.timeout(timeout), untilFinished);
  }

  /**
   * Functions that are told what happens.
   *
   * @param callbacks the functions
   * @return a copy with it
   */
  public WatchOptions callbacks(Callbacks callbacks) {
    return new WatchOptions(settings.callbacks(callbacks), untilFinished);
  }

  /**
   * Functions for the run's client tools, executed when it parks for them.
   *
   * @param clientTools the tools
   * @return a copy with it
   */
  public WatchOptions clientTools(ClientTool... clientTools) {
    return new WatchOptions(settings.clientTools(List.of(clientTools)), untilFinished);
  }

  CallSettings settings() {
    return settings;
  }

  boolean isUntilFinished() {
    return untilFinished;
  }
}
