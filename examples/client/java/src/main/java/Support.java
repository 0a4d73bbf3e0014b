import dev.entracte.AgentClient;
import dev.entracte.Chunk;
import dev.entracte.DecisionOptions;
import dev.entracte.EntracteClient;
import dev.entracte.FinishReason;
import dev.entracte.GenerateResult;
import dev.entracte.PendingCall;
import dev.entracte.PendingCallKind;
import dev.entracte.RunStream;
import dev.entracte.ToolChunk;
import dev.entracte.errors.ServerUnreachableException;
import java.util.List;
import java.util.Map;

/**
 * Talks to the support agent of {@code examples/support.py}: asks, shows the answer as it comes,
 * and decides what waits for a person. At a terminal you decide; without one, all is agreed to.
 *
 * <pre>
 * entracte serve examples.support:app       # in one terminal
 * mvn -q compile dependency:build-classpath
 * java -cp target/classes:$(cat target/classpath) Support localhost:50051 "My kettle arrived broken"
 * </pre>
 */
public final class Support {
  private record Option(String label) {}

  private record Question(String question, List<Option> options) {}

  private Support() {}

  /** Arguments: the server's address, and what to say to the agent. */
  public static void main(String... args) {
    String address = args.length > 0 ? args[0] : "localhost:50051";
    String question = args.length > 1 ? args[1] : "My kettle arrived broken.";
    try (EntracteClient client = EntracteClient.connect(address)) {
      System.out.println("> " + question);
      GenerateResult result = show(client.agent("support").stream(question));
      while (!result.pendingCalls().isEmpty()) {
        result = show(decide(client, result.pendingCalls().get(0)));
      }
      System.out.printf("(%s, %d tokens)%n", result.finishReason(), result.usage().totalTokens());
      if (result.finishReason() == FinishReason.ERROR) {
        System.exit(1);
      }
    } catch (ServerUnreachableException error) {
      System.err.println(
          "No server answers at " + address + ". Start one: entracte serve examples.support:app");
      System.exit(3);
    }
  }

  /** Shows a stream as it comes, and gives what the run has come to. */
  private static GenerateResult show(RunStream run) {
    try (RunStream stream = run) {
      for (Chunk chunk : stream) {
        if (chunk instanceof Chunk.TextDelta delta) {
          System.out.print(delta.text());
          System.out.flush();
        } else if (chunk instanceof ToolChunk.Call call) {
          System.out.printf("%n[%s %s]%n", call.toolName(), call.args());
        } else if (chunk instanceof Chunk.Failure failure) {
          System.out.printf("%nIt failed: %s%n", failure.error().message());
        }
      }
      System.out.println();
      return stream.result();
    }
  }

  /** Has a person decide a call, and gives what comes of it as a stream. */
  private static RunStream decide(EntracteClient client, PendingCall call) {
    AgentClient agent = client.agent(call.agentId());
    DecisionOptions options = DecisionOptions.defaults();
    if (call.kind() == PendingCallKind.APPROVAL) {
      String said = ask("May it call " + call.toolName() + " with " + call.args() + "?", "yes");
      return said.equals("yes")
          ? agent.approveStream(call, options)
          : agent.declineStream(call, said, options);
    }
    if (call.kind() == PendingCallKind.SUSPENSION && call.suspendPayload() != null) {
      Question question = call.suspendPayload().as(Question.class);
      if (!call.toolName().equals("ask_user")) {
        boolean yes = ask(question.question(), "yes").equals("yes");
        return agent.resumeStream(call, Map.of("ok", yes), options);
      }
      List<String> labels = question.options().stream().map(Option::label).toList();
      String answer = ask(question.question() + " " + labels, labels.get(0));
      return agent.resumeStream(call, answer, options);
    }
    return agent.declineStream(call, "nobody can answer this here", options);
  }

  /** What the person at the terminal says, or {@code otherwise} where there is nobody. */
  private static String ask(String text, String otherwise) {
    if (System.console() == null) {
      System.out.println(text + " " + otherwise);
      return otherwise;
    }
    String said = System.console().readLine("%s ", text);
    return said == null || said.isEmpty() ? otherwise : said;
  }
}
