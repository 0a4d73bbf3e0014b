package dev.entracte;

import java.util.function.Consumer;
import java.util.stream.Stream;

/**
 * Which runs are listed; what is not set does not filter.
 *
 * <p>Immutable: each method returns a copy.
 */
public final class RunFilter {
  private final dev.entracte.v1.ListRunsRequest wire;

  private RunFilter(dev.entracte.v1.ListRunsRequest wire) {
    this.wire = wire;
  }

  /**
   * Everything.
   *
   * @return the option
   */
  public static RunFilter all() {
    return new RunFilter(dev.entracte.v1.ListRunsRequest.newBuilder().build());
  }

  /**
   * Only runs in one of these states.
   *
   * @param states the states
   * @return a copy with it
   */
  public RunFilter states(RunState... states) {
    return with(
        m ->
            m.clearStates()
                .addAllStates(
                    Stream.of(states)
                        .map(s -> Enums.write(dev.entracte.v1.RunState.class, s))
                        .toList()));
  }

  /**
   * Only runs of this agent.
   *
   * @param agentId the agent
   * @return a copy with it
   */
  public RunFilter agentId(String agentId) {
    return with(m -> m.setAgentId(agentId));
  }

  /**
   * Only runs on this thread.
   *
   * @param threadId the thread
   * @return a copy with it
   */
  public RunFilter threadId(String threadId) {
    return with(m -> m.setThreadId(threadId));
  }

  /**
   * Whether runs of sub-agents are listed too.
   *
   * @param includeChildren false where it is not given
   * @return a copy with it
   */
  public RunFilter includeChildren(boolean includeChildren) {
    return with(m -> m.setIncludeChildren(includeChildren));
  }

  /**
   * How many one request asks for.
   *
   * @param pageSize 1 to 1000; 50 where it is not given
   * @return a copy with it
   */
  public RunFilter pageSize(int pageSize) {
    return with(m -> m.setPageSize(pageSize));
  }

  dev.entracte.v1.ListRunsRequest wire() {
    return wire;
  }

  private RunFilter with(Consumer<dev.entracte.v1.ListRunsRequest.Builder> change) {
    dev.entracte.v1.ListRunsRequest.Builder copy = wire.toBuilder();
    change.accept(copy);
    return new RunFilter(copy.build());
  }
}
