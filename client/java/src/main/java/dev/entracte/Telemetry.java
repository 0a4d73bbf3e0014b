package dev.entracte;

import java.util.function.Consumer;

/**
 * What telemetry may record of a run. What is not set is as the agent says.
 *
 * <p>Immutable: each method returns a copy.
 */
public final class Telemetry {
  private final dev.entracte.v1.TelemetryOptions wire;

  private Telemetry(dev.entracte.v1.TelemetryOptions wire) {
    this.wire = wire;
  }

  /**
   * With the agent's own settings.
   *
   * @return the option
   */
  public static Telemetry asTheAgentSays() {
    return new Telemetry(dev.entracte.v1.TelemetryOptions.newBuilder().build());
  }

  /**
   * Whether the run is traced.
   *
   * @param enabled true for traced
   * @return a copy with it
   */
  public Telemetry enabled(boolean enabled) {
    return with(m -> m.setIsEnabled(enabled));
  }

  /**
   * Whether spans carry what models and tools are given.
   *
   * @param recordInputs true for recorded
   * @return a copy with it
   */
  public Telemetry recordInputs(boolean recordInputs) {
    return with(m -> m.setRecordInputs(recordInputs));
  }

  /**
   * Whether spans carry what models and tools answer.
   *
   * @param recordOutputs true for recorded
   * @return a copy with it
   */
  public Telemetry recordOutputs(boolean recordOutputs) {
    return with(m -> m.setRecordOutputs(recordOutputs));
  }

  /**
   * A name to find the spans under.
   *
   * @param functionId at most 256 characters
   * @return a copy with it
   */
  public Telemetry functionId(String functionId) {
    return with(m -> m.setFunctionId(functionId));
  }

  dev.entracte.v1.TelemetryOptions wire() {
    return wire;
  }

  private Telemetry with(Consumer<dev.entracte.v1.TelemetryOptions.Builder> change) {
    dev.entracte.v1.TelemetryOptions.Builder copy = wire.toBuilder();
    change.accept(copy);
    return new Telemetry(copy.build());
  }
}
