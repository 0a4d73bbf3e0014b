package dev.entracte;

import java.util.function.Consumer;

/**
 * Hooks around tool calls, by the names under which they are registered on the server.
 *
 * <p>Immutable: each method returns a copy.
 */
public final class ToolHooks {
  private final dev.entracte.v1.ToolHooks wire;

  private ToolHooks(dev.entracte.v1.ToolHooks wire) {
    this.wire = wire;
  }

  /**
   * No hooks.
   *
   * @return the option
   */
  public static ToolHooks none() {
    return new ToolHooks(dev.entracte.v1.ToolHooks.newBuilder().build());
  }

  /**
   * Called before a call; may give its result.
   *
   * @param beforeToolCall the name of the hook
   * @return a copy with it
   */
  public ToolHooks beforeToolCall(String beforeToolCall) {
    return with(m -> m.setBeforeToolCall(beforeToolCall));
  }

  /**
   * Called with what came of a call; looks on.
   *
   * @param afterToolCall the name of the hook
   * @return a copy with it
   */
  public ToolHooks afterToolCall(String afterToolCall) {
    return with(m -> m.setAfterToolCall(afterToolCall));
  }

  dev.entracte.v1.ToolHooks wire() {
    return wire;
  }

  private ToolHooks with(Consumer<dev.entracte.v1.ToolHooks.Builder> change) {
    dev.entracte.v1.ToolHooks.Builder copy = wire.toBuilder();
    change.accept(copy);
    return new ToolHooks(copy.build());
  }
}
