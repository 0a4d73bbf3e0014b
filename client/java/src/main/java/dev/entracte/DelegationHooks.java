package dev.entracte;

import java.util.function.Consumer;

/**
 * Hooks around what the agent delegates to its sub-agents, by their names on the server.
 *
 * <p>Immutable: each method returns a copy.
 */
public final class DelegationHooks {
  private final dev.entracte.v1.DelegationOptions wire;

  private DelegationHooks(dev.entracte.v1.DelegationOptions wire) {
    this.wire = wire;
  }

  /**
   * No hooks.
   *
   * @return the option
   */
  public static DelegationHooks none() {
    return new DelegationHooks(dev.entracte.v1.DelegationOptions.newBuilder().build());
  }

  /**
   * Called before a sub-agent begins.
   *
   * @param onDelegationStart the name of the hook
   * @return a copy with it
   */
  public DelegationHooks onDelegationStart(String onDelegationStart) {
    return with(m -> m.setOnDelegationStart(onDelegationStart));
  }

  /**
   * Called when a sub-agent has come to an answer or to none.
   *
   * @param onDelegationComplete the name of the hook
   * @return a copy with it
   */
  public DelegationHooks onDelegationComplete(String onDelegationComplete) {
    return with(m -> m.setOnDelegationComplete(onDelegationComplete));
  }

  /**
   * Chooses which turns of the conversation the sub-agent is given.
   *
   * @param messageFilter the name of the hook
   * @return a copy with it
   */
  public DelegationHooks messageFilter(String messageFilter) {
    return with(m -> m.setMessageFilter(messageFilter));
  }

  /**
   * What an error of one of them means.
   *
   * @param hookErrorStrategy as the hook declares where it is not given
   * @return a copy with it
   */
  public DelegationHooks hookErrorStrategy(HookErrorStrategy hookErrorStrategy) {
    return with(
        m ->
            m.setHookErrorStrategy(
                Enums.write(
                    dev.entracte.v1.DelegationOptions.HookErrorStrategy.class, hookErrorStrategy)));
  }

  dev.entracte.v1.DelegationOptions wire() {
    return wire;
  }

  private DelegationHooks with(Consumer<dev.entracte.v1.DelegationOptions.Builder> change) {
    dev.entracte.v1.DelegationOptions.Builder copy = wire.toBuilder();
    change.accept(copy);
    return new DelegationHooks(copy.build());
  }

  /** What an error of a hook means. */
  public enum HookErrorStrategy {
    /** The delegation goes on as if there were no hook. */
    WARN,
    /** The call that delegates fails with it. */
    THROW
  }
}
