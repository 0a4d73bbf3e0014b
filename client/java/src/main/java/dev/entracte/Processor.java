package dev.entracte;

import java.util.function.Consumer;

/**
 * A processor registered on the server.
 *
 * <p>Immutable: each method returns a copy.
 */
public final class Processor {
  private final dev.entracte.v1.ProcessorRef wire;

  private Processor(dev.entracte.v1.ProcessorRef wire) {
    this.wire = wire;
  }

  /**
   * A processor by name.
   *
   * @param name its name on the server
   * @return the option
   */
  public static Processor of(String name) {
    return new Processor(dev.entracte.v1.ProcessorRef.newBuilder().setName(name).build());
  }

  /**
   * Its parameters.
   *
   * @param parameters an object
   * @return a copy with it
   */
  public Processor parameters(Json parameters) {
    return with(m -> m.setParameters(parameters.wire()));
  }

  dev.entracte.v1.ProcessorRef wire() {
    return wire;
  }

  private Processor with(Consumer<dev.entracte.v1.ProcessorRef.Builder> change) {
    dev.entracte.v1.ProcessorRef.Builder copy = wire.toBuilder();
    change.accept(copy);
    return new Processor(copy.build());
  }
}
