package dev.entracte;

import java.time.Duration;
import java.util.List;

/** How a decision is made. Immutable: each method returns a copy. */
public final class DecisionOptions {
  private static final DecisionOptions DEFAULTS = new DecisionOptions(CallSettings.DEFAULT, "", "");

  private final CallSettings settings;
  private final String onBehalfOf;
  private final String comment;

  private DecisionOptions(CallSettings settings, String onBehalfOf, String comment) {
    this.settings = settings;
    this.onBehalfOf = onBehalfOf;
    this.comment = comment;
  }

  /**
   * Nothing set.
   *
   * @return the options to begin with
   */
  public static DecisionOptions defaults() {
    return DEFAULTS;
  }

  /**
   * For whom the caller decides; kept in the audit, not verified.
   *
   * @param onBehalfOf a name
   * @return a copy with it
   */
  public DecisionOptions onBehalfOf(String onBehalfOf) {
    return new DecisionOptions(settings, onBehalfOf, comment);
  }

  /**
   * A note for the audit; the model does not see it.
   *
   * @param comment the note
   * @return a copy with it
   */
  public DecisionOptions comment(String comment) {
    return new DecisionOptions(settings, onBehalfOf, comment);
  }

  /**
   * Makes the decision safe to repeat.
   *
   * @param requestId made by the SDK where it is not given
   * @return a copy with it
   */
  public DecisionOptions requestId(String requestId) {
    return new DecisionOptions(settings.requestId(requestId), onBehalfOf, comment);
  }

  /**
   * The longest to wait. It bounds the wait and never the run.
   *
   * @param timeout for ever where it is not given
   * @return a copy with it
   */
  public DecisionOptions timeout(Duration timeout) {
    return new DecisionOptions(settings.timeout(timeout), onBehalfOf, comment);
  }

  /**
   * Functions that are told what happens.
   *
   * @param callbacks the functions
   * @return a copy with it
   */
  public DecisionOptions callbacks(Callbacks callbacks) {
    return new DecisionOptions(settings.callbacks(callbacks), onBehalfOf, comment);
  }

  /**
   * The span of whoever decides, to which the run's trace links.
   *
   * @param traceparent a W3C {@code traceparent}
   * @return a copy with it
   */
  public DecisionOptions traceparent(String traceparent) {
    return new DecisionOptions(settings.traceparent(traceparent), onBehalfOf, comment);
  }

  /**
   * Functions for the run's client tools, should it call them next.
   *
   * @param clientTools the tools
   * @return a copy with it
   */
  public DecisionOptions clientTools(ClientTool... clientTools) {
    return new DecisionOptions(settings.clientTools(List.of(clientTools)), onBehalfOf, comment);
  }

  CallSettings settings() {
    return settings;
  }

  String onBehalfOf() {
    return onBehalfOf;
  }

  String comment() {
    return comment;
  }
}
