package dev.entracte;

/**
 * A request to a model.
 *
 * @param body what was sent, with the option {@code includeRequestBody}; null otherwise
 */
public record RequestInfo(Json body) {
  static RequestInfo of(dev.entracte.v1.RequestInfo m) {
    return new RequestInfo(Wire.json(m.hasBody(), m.getBody()));
  }
}
