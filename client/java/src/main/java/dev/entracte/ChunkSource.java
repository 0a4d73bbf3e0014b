package dev.entracte;

/** Who made a chunk. */
public enum ChunkSource {
  /** The agent: its model and the loop around it. */
  AGENT,
  /** A tool, writing while it runs. */
  USER,
  /** The server. */
  SYSTEM,
  /** A value that is newer than this SDK. */
  UNKNOWN;

  /** The value on the wire; null where it is not set. */
  static ChunkSource of(dev.entracte.v1.ChunkSource value) {
    return Enums.read(ChunkSource.class, value, UNKNOWN);
  }
}
