package dev.entracte;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import dev.entracte.errors.ServerUnreachableException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** A server that is killed and comes back. */
@Timeout(90)
class ReattachTest {
  @Test
  void aStreamGoesOnWhereAKilledServerLeftIt(@TempDir Path folder) {
    String store = folder.resolve("entracte.db").toString();
    TestServer server = TestServer.start("127.0.0.1:0", store);
    List<Map<String, Object>> parts = new ArrayList<>();
    for (int number = 0; number < 20; number++) {
      parts.add(Map.of("text", number + " "));
      parts.add(Map.of("delay", 50));
    }
    try (EntracteClient client = EntracteClient.connect(server.address())) {
      AgentClient agent = client.agent("play");
      long last = 0;
      int deltas = 0;
      boolean restarted = false;
      try (RunStream stream = agent.stream(Json.of(List.of(parts)).text())) {
        for (Chunk chunk : stream) {
          assertEquals(last + 1, chunk.sequence());
          last = chunk.sequence();
          if (chunk instanceof Chunk.TextDelta && ++deltas == 3 && !restarted) {
            restarted = true;
            server.kill();
            server = TestServer.start(server.address(), store);
          }
        }
        GenerateResult result = stream.result();
        assertEquals(FinishReason.STOP, result.finishReason());
        // The step was made again: what the first attempt said is void.
        assertEquals(result.text(), stream.text());
        assertEquals(20, stream.text().split(" ").length);
      }
    } finally {
      server.close();
    }
  }

  @Test
  void aServerThatNeverWasThereIsGivenUpSoon() {
    Backoff.Limits quick =
        new Backoff.Limits(Duration.ofMillis(1), Duration.ofMillis(5), 4, Duration.ofSeconds(60));
    try (EntracteClient client = EntracteClient.builder("127.0.0.1:1").limits(quick).build()) {
      assertThrows(ServerUnreachableException.class, () -> client.runs().get("r1"));
      assertThrows(
          ServerUnreachableException.class,
          () -> client.agent("play").stream("hi").iterator().hasNext());
    }
  }
}
