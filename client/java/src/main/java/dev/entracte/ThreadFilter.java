package dev.entracte;

import java.util.function.Consumer;

/**
 * Which threads are listed; what is not set does not filter.
 *
 * <p>Immutable: each method returns a copy.
 */
public final class ThreadFilter {
  private final dev.entracte.v1.ListThreadsRequest wire;

  private ThreadFilter(dev.entracte.v1.ListThreadsRequest wire) {
    this.wire = wire;
  }

  /**
   * Everything.
   *
   * @return the option
   */
  public static ThreadFilter all() {
    return new ThreadFilter(dev.entracte.v1.ListThreadsRequest.newBuilder().build());
  }

  /**
   * Only threads of this resource.
   *
   * @param resourceId the resource
   * @return a copy with it
   */
  public ThreadFilter resourceId(String resourceId) {
    return with(m -> m.setResourceId(resourceId));
  }

  /**
   * How many one request asks for.
   *
   * @param pageSize 1 to 1000; 50 where it is not given
   * @return a copy with it
   */
  public ThreadFilter pageSize(int pageSize) {
    return with(m -> m.setPageSize(pageSize));
  }

  dev.entracte.v1.ListThreadsRequest wire() {
    return wire;
  }

  private ThreadFilter with(Consumer<dev.entracte.v1.ListThreadsRequest.Builder> change) {
    dev.entracte.v1.ListThreadsRequest.Builder copy = wire.toBuilder();
    change.accept(copy);
    return new ThreadFilter(copy.build());
  }
}
