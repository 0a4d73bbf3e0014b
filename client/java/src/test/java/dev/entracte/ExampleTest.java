package dev.entracte;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** The example of {@code examples/client/java}, as a process of its own. */
@Timeout(90)
class ExampleTest {
  private record Outcome(int code, String output) {}

  private static Outcome run(String address) throws IOException, InterruptedException {
    String classes = System.getProperty("surefire.test.class.path");
    Process process =
        new ProcessBuilder(
                System.getProperty("java.home") + "/bin/java",
                "-XX:TieredStopAtLevel=1",
                "-cp",
                classes == null ? System.getProperty("java.class.path") : classes,
                "Support",
                address)
            .redirectErrorStream(true)
            .start();
    process.getOutputStream().close();
    String output = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    return new Outcome(process.waitFor(), output);
  }

  @Test
  void itAsksStreamsAnswersAQuestionAndApproves() throws Exception {
    Outcome outcome = run(TestServer.shared().address());
    assertEquals(0, outcome.code(), outcome.output());
    for (String part :
        new String[] {
          "Which order is it about? [7, 8, 9] 7",
          "May it call refund with {\"order_id\":\"7\",\"amount_cents\":12900}? yes",
          "(STOP, "
        }) {
      assertTrue(outcome.output().contains(part), outcome.output());
    }
  }

  @Test
  void itSaysSoWhenThereIsNoServer() throws Exception {
    Outcome outcome = run("127.0.0.1:1");
    assertEquals(3, outcome.code(), outcome.output());
    assertTrue(outcome.output().contains("No server answers at 127.0.0.1:1."));
  }
}
