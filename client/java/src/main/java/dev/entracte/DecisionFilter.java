package dev.entracte;

import java.util.function.Consumer;

/**
 * Which decisions are listed; what is not set does not filter.
 *
 * <p>Immutable: each method returns a copy.
 */
public final class DecisionFilter {
  private final dev.entracte.v1.ListDecisionsRequest wire;

  private DecisionFilter(dev.entracte.v1.ListDecisionsRequest wire) {
    this.wire = wire;
  }

  /**
   * Everything.
   *
   * @return the option
   */
  public static DecisionFilter all() {
    return new DecisionFilter(dev.entracte.v1.ListDecisionsRequest.newBuilder().build());
  }

  /**
   * Only decisions on this run.
   *
   * @param runId the run
   * @return a copy with it
   */
  public DecisionFilter runId(String runId) {
    return with(m -> m.setRunId(runId));
  }

  /**
   * Only the decision on this call.
   *
   * @param pendingCallId the call
   * @return a copy with it
   */
  public DecisionFilter pendingCallId(String pendingCallId) {
    return with(m -> m.setPendingCallId(pendingCallId));
  }

  /**
   * Only decisions of this principal.
   *
   * @param principal the principal
   * @return a copy with it
   */
  public DecisionFilter principal(String principal) {
    return with(m -> m.setPrincipal(principal));
  }

  /**
   * How many one request asks for.
   *
   * @param pageSize 1 to 1000; 50 where it is not given
   * @return a copy with it
   */
  public DecisionFilter pageSize(int pageSize) {
    return with(m -> m.setPageSize(pageSize));
  }

  dev.entracte.v1.ListDecisionsRequest wire() {
    return wire;
  }

  private DecisionFilter with(Consumer<dev.entracte.v1.ListDecisionsRequest.Builder> change) {
    dev.entracte.v1.ListDecisionsRequest.Builder copy = wire.toBuilder();
    change.accept(copy);
    return new DecisionFilter(copy.build());
  }
}
