package dev.entracte;

import java.util.function.Consumer;

/**
 * How a scorer is run on results.
 *
 * <p>Immutable: each method returns a copy.
 */
public final class Scorer {
  private final dev.entracte.v1.ScorerOptions wire;

  private Scorer(dev.entracte.v1.ScorerOptions wire) {
    this.wire = wire;
  }

  /**
   * On every result.
   *
   * @return the option
   */
  public static Scorer onAll() {
    return new Scorer(
        dev.entracte.v1.ScorerOptions.newBuilder()
            .setSampling(dev.entracte.v1.ScorerOptions.Sampling.SAMPLING_NONE)
            .build());
  }

  /**
   * On a share of the results.
   *
   * @param ratio 0 to 1
   * @return the option
   */
  public static Scorer onShare(double ratio) {
    return new Scorer(
        dev.entracte.v1.ScorerOptions.newBuilder()
            .setSampling(dev.entracte.v1.ScorerOptions.Sampling.SAMPLING_RATIO)
            .setSamplingRatio(ratio)
            .build());
  }

  /**
   * The registered scorer, where it has another name than in the run.
   *
   * @param scorer its name
   * @return a copy with it
   */
  public Scorer scorer(String scorer) {
    return with(m -> m.setScorer(scorer));
  }

  dev.entracte.v1.ScorerOptions wire() {
    return wire;
  }

  private Scorer with(Consumer<dev.entracte.v1.ScorerOptions.Builder> change) {
    dev.entracte.v1.ScorerOptions.Builder copy = wire.toBuilder();
    change.accept(copy);
    return new Scorer(copy.build());
  }
}
