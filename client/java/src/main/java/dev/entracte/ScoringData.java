package dev.entracte;

/**
 * What scorers see of a run.
 *
 * @param input an object with the messages that went in
 * @param output what the model and the tools said
 */
public record ScoringData(Json input, Json output) {
  static ScoringData of(dev.entracte.v1.ScoringData m) {
    return new ScoringData(
        Wire.json(m.hasInput(), m.getInput()), Wire.json(m.hasOutput(), m.getOutput()));
  }
}
