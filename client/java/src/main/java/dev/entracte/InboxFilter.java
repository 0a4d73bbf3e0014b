package dev.entracte;

import java.util.function.Consumer;

/**
 * Which pending calls are listed or watched; what is not set does not filter.
 *
 * <p>Immutable: each method returns a copy.
 */
public final class InboxFilter {
  private final dev.entracte.v1.ListPendingCallsRequest wire;

  private InboxFilter(dev.entracte.v1.ListPendingCallsRequest wire) {
    this.wire = wire;
  }

  /**
   * Everything.
   *
   * @return the option
   */
  public static InboxFilter all() {
    return new InboxFilter(dev.entracte.v1.ListPendingCallsRequest.newBuilder().build());
  }

  /**
   * Only calls of this run.
   *
   * @param runId the run
   * @return a copy with it
   */
  public InboxFilter runId(String runId) {
    return with(m -> m.setRunId(runId));
  }

  /**
   * Only calls of this agent's runs.
   *
   * @param agentId the agent
   * @return a copy with it
   */
  public InboxFilter agentId(String agentId) {
    return with(m -> m.setAgentId(agentId));
  }

  /**
   * Only calls of runs on this thread; a watch does not look at it.
   *
   * @param threadId the thread
   * @return a copy with it
   */
  public InboxFilter threadId(String threadId) {
    return with(m -> m.setThreadId(threadId));
  }

  /**
   * Only calls of runs that use this resource's memory.
   *
   * @param resourceId the resource
   * @return a copy with it
   */
  public InboxFilter resourceId(String resourceId) {
    return with(m -> m.setResourceId(resourceId));
  }

  /**
   * Whether decided calls are listed too; a watch does not look at it.
   *
   * @param includeDecided false where it is not given
   * @return a copy with it
   */
  public InboxFilter includeDecided(boolean includeDecided) {
    return with(m -> m.setIncludeDecided(includeDecided));
  }

  /**
   * How many one request asks for.
   *
   * @param pageSize 1 to 1000; 50 where it is not given
   * @return a copy with it
   */
  public InboxFilter pageSize(int pageSize) {
    return with(m -> m.setPageSize(pageSize));
  }

  dev.entracte.v1.ListPendingCallsRequest wire() {
    return wire;
  }

  private InboxFilter with(Consumer<dev.entracte.v1.ListPendingCallsRequest.Builder> change) {
    dev.entracte.v1.ListPendingCallsRequest.Builder copy = wire.toBuilder();
    change.accept(copy);
    return new InboxFilter(copy.build());
  }
}
