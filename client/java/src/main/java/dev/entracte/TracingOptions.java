package dev.entracte;

import java.util.List;
import java.util.function.Consumer;

/**
 * How a run appears in traces.
 *
 * <p>Immutable: each method returns a copy.
 */
public final class TracingOptions {
  private final dev.entracte.v1.TracingOptions wire;

  private TracingOptions(dev.entracte.v1.TracingOptions wire) {
    this.wire = wire;
  }

  /**
   * Nothing set.
   *
   * @return the option
   */
  public static TracingOptions defaults() {
    return new TracingOptions(dev.entracte.v1.TracingOptions.newBuilder().build());
  }

  /**
   * Attributes of the run's spans.
   *
   * @param metadata an object
   * @return a copy with it
   */
  public TracingOptions metadata(Json metadata) {
    return with(m -> m.setMetadata(metadata.wire()));
  }

  /**
   * Values of the request context to record; dots reach nested ones.
   *
   * @param requestContextKeys keys
   * @return a copy with it
   */
  public TracingOptions requestContextKeys(String... requestContextKeys) {
    return with(
        m -> m.clearRequestContextKeys().addAllRequestContextKeys(List.of(requestContextKeys)));
  }

  /**
   * The trace to belong to.
   *
   * @param traceId 1 to 32 hexadecimal digits
   * @return a copy with it
   */
  public TracingOptions traceId(String traceId) {
    return with(m -> m.setTraceId(traceId));
  }

  /**
   * The parent span.
   *
   * @param parentSpanId 1 to 16 hexadecimal digits
   * @return a copy with it
   */
  public TracingOptions parentSpanId(String parentSpanId) {
    return with(m -> m.setParentSpanId(parentSpanId));
  }

  /**
   * Labels.
   *
   * @param tags the labels
   * @return a copy with it
   */
  public TracingOptions tags(String... tags) {
    return with(m -> m.clearTags().addAllTags(List.of(tags)));
  }

  dev.entracte.v1.TracingOptions wire() {
    return wire;
  }

  private TracingOptions with(Consumer<dev.entracte.v1.TracingOptions.Builder> change) {
    dev.entracte.v1.TracingOptions.Builder copy = wire.toBuilder();
    change.accept(copy);
    return new TracingOptions(copy.build());
  }
}
