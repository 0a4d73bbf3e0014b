package dev.entracte;

import java.util.List;
import java.util.function.Consumer;

/**
 * Which calls a person must approve, in addition to what the tools themselves ask for.
 *
 * <p>Immutable: each method returns a copy.
 */
public final class ToolApproval {
  private final dev.entracte.v1.ToolApproval wire;

  private ToolApproval(dev.entracte.v1.ToolApproval wire) {
    this.wire = wire;
  }

  /**
   * Every call.
   *
   * @return the option
   */
  public static ToolApproval all() {
    return new ToolApproval(dev.entracte.v1.ToolApproval.newBuilder().setAll(true).build());
  }

  /**
   * None beyond what the tools themselves ask for.
   *
   * @return the option
   */
  public static ToolApproval none() {
    return new ToolApproval(dev.entracte.v1.ToolApproval.newBuilder().setAll(false).build());
  }

  /**
   * Those that a rule names; add rules to it.
   *
   * @return the option
   */
  public static ToolApproval rules() {
    return new ToolApproval(
        dev.entracte.v1.ToolApproval.newBuilder()
            .setRules(dev.entracte.v1.ToolApprovalRules.getDefaultInstance())
            .build());
  }

  /**
   * Calls of these tools.
   *
   * @param names exact tool names
   * @return a copy with it
   */
  public ToolApproval names(String... names) {
    return with(m -> m.setRules(m.getRules().toBuilder().addAllNames(List.of(names))));
  }

  /**
   * Calls of tools whose names fit.
   *
   * @param patterns patterns: {@code *} any characters, {@code ?} one, {@code [abc]} one of these
   * @return a copy with it
   */
  public ToolApproval patterns(String... patterns) {
    return with(m -> m.setRules(m.getRules().toBuilder().addAllPatterns(List.of(patterns))));
  }

  /**
   * Calls for which a predicate registered on the server holds; one that fails means "ask".
   *
   * @param predicates names of predicates
   * @return a copy with it
   */
  public ToolApproval predicates(String... predicates) {
    return with(m -> m.setRules(m.getRules().toBuilder().addAllPredicates(List.of(predicates))));
  }

  /**
   * Calls of the tools of toolsets registered on the server.
   *
   * @param toolsets names of toolsets
   * @return a copy with it
   */
  public ToolApproval toolsets(String... toolsets) {
    return with(m -> m.setRules(m.getRules().toBuilder().addAllToolsets(List.of(toolsets))));
  }

  /**
   * Calls of some tools for which an expression in CEL holds, for example {@code args.amount_cents
   * > 5000}.
   *
   * @param tool a pattern over tool names
   * @param text the expression, over {@code args}, {@code tool} and {@code request_context}
   * @return a copy with it
   */
  public ToolApproval expression(String tool, String text) {
    return with(m -> m.getRulesBuilder().addExpressionsBuilder().setTool(tool).setExpression(text));
  }

  dev.entracte.v1.ToolApproval wire() {
    return wire;
  }

  private ToolApproval with(Consumer<dev.entracte.v1.ToolApproval.Builder> change) {
    dev.entracte.v1.ToolApproval.Builder copy = wire.toBuilder();
    change.accept(copy);
    return new ToolApproval(copy.build());
  }
}
