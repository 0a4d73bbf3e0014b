package dev.entracte;

/**
 * Which version of a data-defined agent to use.
 *
 * <p>Immutable.
 */
public final class AgentVersion {
  private final dev.entracte.v1.VersionSelector wire;

  private AgentVersion(dev.entracte.v1.VersionSelector wire) {
    this.wire = wire;
  }

  /**
   * One version.
   *
   * @param versionId its id
   * @return the option
   */
  public static AgentVersion byId(String versionId) {
    return new AgentVersion(
        dev.entracte.v1.VersionSelector.newBuilder().setVersionId(versionId).build());
  }

  /**
   * The latest published version.
   *
   * @return the option
   */
  public static AgentVersion published() {
    return new AgentVersion(
        dev.entracte.v1.VersionSelector.newBuilder().setPublished(true).build());
  }

  /**
   * The latest draft.
   *
   * @return the option
   */
  public static AgentVersion draft() {
    return new AgentVersion(
        dev.entracte.v1.VersionSelector.newBuilder().setPublished(false).build());
  }

  dev.entracte.v1.VersionSelector wire() {
    return wire;
  }
}
