import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import dev.entracte.errors.CancelledException;
import java.io.PrintStream;

/**
 * One command: what is written about it, how many elements it may read, and how it is cancelled.
 */
final class Command {
  private static final Gson GSON =
      new GsonBuilder().serializeNulls().disableHtmlEscaping().create();
  private static PrintStream output;

  final String id;
  final Asked asked;
  private Thread thread;
  private boolean cancelled;
  private boolean ended;
  private Long allowed;

  /** What a command does. */
  interface Work {
    JsonObject run() throws InterruptedException;
  }

  Command(String id, Asked asked) {
    this.id = id;
    this.asked = asked;
    this.allowed = asked.has("pull") ? asked.number("pull", 0) : null;
  }

  static void writeTo(PrintStream stream) {
    output = stream;
  }

  /** Carries it out on the current thread, and writes how it ended. */
  void run(Work work) {
    synchronized (this) {
      thread = Thread.currentThread();
    }
    JsonObject line = new JsonObject();
    try {
      line.add("ok", work.run());
    } catch (InterruptedException | CancelledException error) {
      if (isCancelled() || error instanceof InterruptedException) {
        line.addProperty("cancelled", true);
      } else {
        line.add("error", Written.error(error));
      }
    } catch (RuntimeException error) {
      line.add("error", Written.error(error));
    }
    synchronized (this) {
      ended = true;
    }
    write(line);
  }

  void item(JsonElement item) {
    JsonObject line = new JsonObject();
    line.add("item", item);
    write(line);
  }

  void event(String name, Object value) {
    JsonObject event = new JsonObject();
    event.addProperty("name", name);
    event.add("value", Written.of(value));
    JsonObject line = new JsonObject();
    line.add("event", event);
    write(line);
  }

  /** Waits until another element may be read. */
  synchronized void awaitTurn() throws InterruptedException {
    while (allowed != null && allowed == 0) {
      wait();
    }
    if (allowed != null) {
      allowed--;
    }
  }

  /** Allows more elements; all where the count is missing. */
  synchronized void allow(Long count) {
    allowed = count == null || allowed == null ? null : Long.valueOf(allowed + count);
    notifyAll();
  }

  /** Interrupts it, unless it has ended. */
  synchronized void cancel() {
    cancelled = true;
    if (thread != null && !ended) {
      thread.interrupt();
    }
  }

  private synchronized boolean isCancelled() {
    return cancelled;
  }

  private void write(JsonObject content) {
    JsonObject line = new JsonObject();
    line.addProperty("id", id);
    content.entrySet().forEach(entry -> line.add(entry.getKey(), entry.getValue()));
    String text = GSON.toJson(line);
    synchronized (Command.class) {
      output.println(text);
      output.flush();
    }
  }
}
