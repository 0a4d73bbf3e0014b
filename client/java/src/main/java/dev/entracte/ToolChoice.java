package dev.entracte;

import java.util.function.Consumer;

/**
 * Whether and which tool the model must call. What forces a call holds until it was made, and then
 * the model decides.
 *
 * <p>Immutable: each method returns a copy.
 */
public final class ToolChoice {
  private final dev.entracte.v1.ToolChoice wire;

  private ToolChoice(dev.entracte.v1.ToolChoice wire) {
    this.wire = wire;
  }

  /**
   * As the model likes.
   *
   * @return the option
   */
  public static ToolChoice auto() {
    return new ToolChoice(
        dev.entracte.v1.ToolChoice.newBuilder()
            .setMode(dev.entracte.v1.ToolChoice.Mode.MODE_AUTO)
            .build());
  }

  /**
   * No tools are offered, and none is executed.
   *
   * @return the option
   */
  public static ToolChoice none() {
    return new ToolChoice(
        dev.entracte.v1.ToolChoice.newBuilder()
            .setMode(dev.entracte.v1.ToolChoice.Mode.MODE_NONE)
            .build());
  }

  /**
   * At least one tool.
   *
   * @return the option
   */
  public static ToolChoice required() {
    return new ToolChoice(
        dev.entracte.v1.ToolChoice.newBuilder()
            .setMode(dev.entracte.v1.ToolChoice.Mode.MODE_REQUIRED)
            .build());
  }

  /**
   * One tool.
   *
   * @param name the tool
   * @return the option
   */
  public static ToolChoice tool(String name) {
    return new ToolChoice(
        dev.entracte.v1.ToolChoice.newBuilder()
            .setMode(dev.entracte.v1.ToolChoice.Mode.MODE_TOOL)
            .setToolName(name)
            .build());
  }

  /**
   * Whether it holds for the whole run.
   *
   * @param everyStep false where it is not given
   * @return a copy with it
   */
  public ToolChoice everyStep(boolean everyStep) {
    return with(m -> m.setEveryStep(everyStep));
  }

  dev.entracte.v1.ToolChoice wire() {
    return wire;
  }

  private ToolChoice with(Consumer<dev.entracte.v1.ToolChoice.Builder> change) {
    dev.entracte.v1.ToolChoice.Builder copy = wire.toBuilder();
    change.accept(copy);
    return new ToolChoice(copy.build());
  }
}
