package dev.entracte;

/**
 * Something the model cited.
 *
 * @param id identifies it within the step
 * @param url where it is
 * @param title its title
 * @param providerMetadata what the provider attached; null where it attached nothing
 */
public record Source(String id, String url, String title, Json providerMetadata) {
  static Source of(dev.entracte.v1.SourceChunk m) {
    return new Source(
        m.getId(),
        m.getUrl(),
        m.getTitle(),
        Wire.json(m.hasProviderMetadata(), m.getProviderMetadata()));
  }
}
