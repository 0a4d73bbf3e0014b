package dev.entracte;

import java.util.function.Consumer;
import java.util.stream.Stream;

/**
 * Which messages of a thread are listed, and how; what is not set does not filter.
 *
 * <p>Immutable: each method returns a copy.
 */
public final class MessageFilter {
  private final dev.entracte.v1.ListThreadMessagesRequest wire;

  private MessageFilter(dev.entracte.v1.ListThreadMessagesRequest wire) {
    this.wire = wire;
  }

  /**
   * Everything.
   *
   * @return the option
   */
  public static MessageFilter all() {
    return new MessageFilter(dev.entracte.v1.ListThreadMessagesRequest.newBuilder().build());
  }

  /**
   * Only messages of these roles.
   *
   * @param roles user, assistant or system
   * @return a copy with it
   */
  public MessageFilter roles(Role... roles) {
    return with(
        m ->
            m.clearRoles()
                .addAllRoles(
                    Stream.of(roles)
                        .map(r -> Enums.write(dev.entracte.v1.Role.class, r))
                        .toList()));
  }

  /**
   * Only messages of this run.
   *
   * @param runId the run
   * @return a copy with it
   */
  public MessageFilter runId(String runId) {
    return with(m -> m.setRunId(runId));
  }

  /**
   * Whether the newest come first.
   *
   * @param newestFirst false where it is not given
   * @return a copy with it
   */
  public MessageFilter newestFirst(boolean newestFirst) {
    return with(m -> m.setNewestFirst(newestFirst));
  }

  /**
   * How many one request asks for.
   *
   * @param pageSize 1 to 1000; 50 where it is not given
   * @return a copy with it
   */
  public MessageFilter pageSize(int pageSize) {
    return with(m -> m.setPageSize(pageSize));
  }

  dev.entracte.v1.ListThreadMessagesRequest wire() {
    return wire;
  }

  private MessageFilter with(Consumer<dev.entracte.v1.ListThreadMessagesRequest.Builder> change) {
    dev.entracte.v1.ListThreadMessagesRequest.Builder copy = wire.toBuilder();
    change.accept(copy);
    return new MessageFilter(copy.build());
  }
}
