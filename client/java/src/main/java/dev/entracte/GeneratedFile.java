package dev.entracte;

import com.google.protobuf.ByteString;

/**
 * A file the model made.
 *
 * @param mediaType for example {@code image/png}
 * @param data the file itself
 * @param url where it is, when the provider gave only that
 */
public record GeneratedFile(String mediaType, ByteString data, String url) {
  static GeneratedFile of(dev.entracte.v1.FileChunk m) {
    return new GeneratedFile(m.getMediaType(), m.getData(), m.getUrl());
  }
}
