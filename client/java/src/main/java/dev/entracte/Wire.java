package dev.entracte;

import com.google.protobuf.Timestamp;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Objects;
import java.util.function.Function;

/** Small values from and to the wire. */
final class Wire {
  private Wire() {}

  static Json json(boolean present, dev.entracte.v1.Json message) {
    return present ? Json.ofText(message.getText()) : null;
  }

  static Instant time(boolean present, Timestamp message) {
    return present ? Instant.ofEpochSecond(message.getSeconds(), message.getNanos()) : null;
  }

  static Duration duration(boolean present, com.google.protobuf.Duration message) {
    return present ? Duration.ofSeconds(message.getSeconds(), message.getNanos()) : null;
  }

  static com.google.protobuf.Duration duration(Duration duration) {
    return com.google.protobuf.Duration.newBuilder()
        .setSeconds(duration.getSeconds())
        .setNanos(duration.getNano())
        .build();
  }

  /** Reads a list, without those that this version does not know. */
  static <M, R> List<R> all(List<M> messages, Function<M, R> read) {
    return messages.stream().map(read).filter(Objects::nonNull).toList();
  }

  static List<ToolChunk.Call> toolCalls(List<dev.entracte.v1.Chunk> chunks) {
    return only(chunks, ToolChunk.Call.class);
  }

  static List<ToolChunk.Result> toolResults(List<dev.entracte.v1.Chunk> chunks) {
    return only(chunks, ToolChunk.Result.class);
  }

  private static <T> List<T> only(List<dev.entracte.v1.Chunk> chunks, Class<T> type) {
    return chunks.stream().map(ChunkReader::read).filter(type::isInstance).map(type::cast).toList();
  }
}
