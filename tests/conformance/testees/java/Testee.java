import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import dev.entracte.AgentClient;
import dev.entracte.Chunk;
import dev.entracte.DecisionFilter;
import dev.entracte.DecisionOptions;
import dev.entracte.EntracteClient;
import dev.entracte.GenerateOptions;
import dev.entracte.GenerateResult;
import dev.entracte.InboxChange;
import dev.entracte.InboxFilter;
import dev.entracte.InboxWatch;
import dev.entracte.MessageFilter;
import dev.entracte.Page;
import dev.entracte.Paged;
import dev.entracte.PendingCall;
import dev.entracte.RequestOptions;
import dev.entracte.Role;
import dev.entracte.RunFilter;
import dev.entracte.RunState;
import dev.entracte.RunStream;
import dev.entracte.ThreadFilter;
import dev.entracte.ThreadsClient;
import dev.entracte.ToolChunk;
import dev.entracte.WaitingCall;
import dev.entracte.WatchOptions;
import dev.entracte.WorkingMemory;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Function;
import java.util.stream.Stream;

/** The testee of the Java SDK: carries out the commands of the conformance driver. */
public final class Testee {
  /** What an operation does with its command. */
  private interface Operation {
    JsonObject run(Command command) throws InterruptedException;
  }

  private static final Map<String, Operation> OPERATIONS = new TreeMap<>();
  private static final Map<String, EntracteClient> CLIENTS = new ConcurrentHashMap<>();
  private static final Map<String, Command> COMMANDS = new ConcurrentHashMap<>();
  private static final Map<String, WaitingCall> SHOWN = new ConcurrentHashMap<>();

  static {
    OPERATIONS.put("hello", command -> hello());
    OPERATIONS.put("connect", Testee::connect);
    OPERATIONS.put("close", Testee::close);
    OPERATIONS.put("cancel", Testee::cancel);
    OPERATIONS.put("pull", Testee::pull);
    OPERATIONS.put("generate", Testee::generate);
    OPERATIONS.put("stream", Testee::stream);
    for (String verb : List.of("approve", "decline", "resume", "submit")) {
      OPERATIONS.put(verb, command -> decide(command, verb));
    }
    OPERATIONS.put("runs.get", Testee::getRun);
    OPERATIONS.put("runs.list", Testee::listRuns);
    OPERATIONS.put("runs.watch", Testee::watchRun);
    OPERATIONS.put("runs.cancel", Testee::cancelRun);
    OPERATIONS.put("runs.delete", Testee::deleteRun);
    OPERATIONS.put("inbox.list", Testee::listInbox);
    OPERATIONS.put("inbox.get", c -> shown(client(c).inbox().get(c.asked.text("pending_call_id"))));
    OPERATIONS.put("inbox.watch", Testee::watchInbox);
    OPERATIONS.put("inbox.claim", Testee::claim);
    OPERATIONS.put(
        "inbox.release",
        c -> shown(client(c).inbox().release(WaitingCall.byId(c.asked.text("pending_call_id")))));
    OPERATIONS.put("inbox.decisions", Testee::decisions);
    OPERATIONS.put("threads.create", Testee::createThread);
    OPERATIONS.put("threads.get", c -> written(client(c).threads().get(c.asked.text("thread_id"))));
    OPERATIONS.put("threads.list", Testee::listThreads);
    OPERATIONS.put("threads.update", Testee::updateThread);
    OPERATIONS.put("threads.delete", Testee::deleteThread);
    OPERATIONS.put("threads.messages", Testee::messages);
    OPERATIONS.put("threads.working_memory", Testee::workingMemory);
    OPERATIONS.put("threads.update_working_memory", Testee::updateWorkingMemory);
  }

  private Testee() {}

  /** Reads commands until the input ends. */
  public static void main(String... args) throws IOException {
    Command.writeTo(new PrintStream(System.out, false, StandardCharsets.UTF_8));
    System.setOut(System.err);
    BufferedReader input =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = input.readLine(); line != null; line = input.readLine()) {
      JsonObject object = JsonParser.parseString(line).getAsJsonObject();
      Command command = new Command(object.get("id").getAsString(), new Asked(object));
      COMMANDS.put(command.id, command);
      Thread thread = new Thread(() -> carryOut(command), command.id);
      thread.setDaemon(true);
      thread.start();
    }
    CLIENTS.values().forEach(EntracteClient::close);
    System.exit(0);
  }

  private static void carryOut(Command command) {
    String name = command.asked.text("op");
    Operation operation = OPERATIONS.get(name);
    command.run(
        () -> {
          if (operation == null) {
            throw new IllegalArgumentException("there is no op " + name);
          }
          return operation.run(command);
        });
  }

  private static JsonObject hello() {
    JsonObject ok = new JsonObject();
    ok.addProperty("protocol", 1);
    ok.addProperty("language", "java");
    ok.addProperty("version", EntracteClient.VERSION);
    ok.add("ops", Written.of(OPERATIONS.keySet()));
    return ok;
  }

  private static JsonObject connect(Command command) {
    Asked asked = command.asked;
    EntracteClient.Builder builder = EntracteClient.builder(asked.text("address"));
    if (asked.has("api_key")) {
      builder.apiKey(asked.text("api_key"));
    }
    if (asked.has("ca_certificates")) {
      builder.tls(Path.of(asked.text("ca_certificates")));
    }
    if (asked.has("timeout")) {
      builder.timeout(asked.seconds("timeout"));
    }
    if (asked.has("reattach_timeout")) {
      builder.reattachTimeout(asked.seconds("reattach_timeout"));
    }
    CLIENTS.put(asked.text("client"), builder.build());
    return new JsonObject();
  }

  private static JsonObject close(Command command) {
    EntracteClient client = CLIENTS.remove(command.asked.text("client"));
    if (client != null) {
      client.close();
    }
    return new JsonObject();
  }

  private static JsonObject cancel(Command command) {
    Command target = COMMANDS.get(command.asked.text("target"));
    if (target != null) {
      target.cancel();
    }
    return new JsonObject();
  }

  private static JsonObject pull(Command command) {
    Command target = COMMANDS.get(command.asked.text("target"));
    if (target != null) {
      Long count = command.asked.has("count") ? command.asked.number("count", 0) : null;
      target.allow(count);
    }
    return new JsonObject();
  }

  private static EntracteClient client(Command command) {
    EntracteClient client = CLIENTS.get(command.asked.text("client"));
    if (client == null) {
      throw new IllegalArgumentException("no client is connected under that name");
    }
    return client;
  }

  private static AgentClient agent(Command command) {
    return client(command).agent(command.asked.text("agent"));
  }

  private static GenerateOptions options(Command command) {
    return Options.generate(command.asked.inner("options"))
        .callbacks(Options.callbacks(command.asked, command::event))
        .clientTools(Options.tools(command.asked, command::event));
  }

  private static JsonObject generate(Command command) {
    return result(agent(command).generate(command.asked.text("input"), options(command)));
  }

  private static JsonObject stream(Command command) throws InterruptedException {
    return follow(command, agent(command).stream(command.asked.text("input"), options(command)));
  }

  /** Reads a stream as the command says. */
  private static JsonObject follow(Command command, RunStream run) throws InterruptedException {
    try (RunStream stream = run) {
      boolean left = read(command, stream.iterator(), Testee::chunk);
      JsonObject ok = new JsonObject();
      ok.addProperty("run_id", stream.runId());
      ok.addProperty("position", stream.position());
      ok.addProperty("text", stream.text());
      ok.add("usage", Written.of(stream.fold().usage()));
      if (!left) {
        ok.add("result", result(stream.result()));
      }
      ok.addProperty("left", left);
      if (stream.decision() != null) {
        ok.add("decision", Written.of(stream.decision()));
      }
      return ok;
    }
  }

  /** Reports elements as far as it may. True when it left before the end. */
  private static <T> boolean read(
      Command command, Iterator<T> elements, Function<T, JsonElement> written)
      throws InterruptedException {
    long limit = command.asked.number("leave_after", Long.MAX_VALUE);
    for (long count = 0; count < limit; count++) {
      command.awaitTurn();
      if (!elements.hasNext()) {
        return false;
      }
      command.item(written.apply(elements.next()));
    }
    return true;
  }

  private static JsonElement chunk(Chunk chunk) {
    if (chunk instanceof ToolChunk.Approval call) {
      SHOWN.put(call.pendingCallId(), call);
    } else if (chunk instanceof ToolChunk.Suspended call) {
      SHOWN.put(call.pendingCallId(), call);
    }
    return Written.of(chunk);
  }

  private static JsonObject result(GenerateResult result) {
    result.pendingCalls().forEach(call -> SHOWN.put(call.pendingCallId(), call));
    return written(result);
  }

  private static JsonObject shown(PendingCall call) {
    SHOWN.put(call.pendingCallId(), call);
    return written(call);
  }

  private static JsonObject written(Object value) {
    return Written.of(value).getAsJsonObject();
  }

  private static WaitingCall call(Asked asked) {
    if (asked.has("shown")) {
      return SHOWN.get(asked.text("shown"));
    }
    if (asked.has("pending_call_id")) {
      return WaitingCall.byId(asked.text("pending_call_id"));
    }
    return asked.has("tool_call_id")
        ? WaitingCall.of(asked.text("run_id"), asked.text("tool_call_id"))
        : WaitingCall.onlyOneOf(asked.text("run_id"));
  }

  private static JsonObject decide(Command command, String verb) throws InterruptedException {
    Asked asked = command.asked;
    AgentClient agent = agent(command);
    WaitingCall call = call(asked.inner("call"));
    DecisionOptions options =
        Options.decision(asked.inner("options"))
            .callbacks(Options.callbacks(asked, command::event))
            .clientTools(Options.tools(asked, command::event));
    if (asked.truth("stream")) {
      return follow(command, decisionStream(agent, verb, call, asked, options));
    }
    return result(
        switch (verb) {
          case "approve" ->
              asked.has("edited_args")
                  ? agent.approveEdited(call, asked.value("edited_args"), options)
                  : agent.approve(call, options);
          case "decline" ->
              asked.has("reason_data")
                  ? agent.declineWith(
                      call, asked.text("reason"), asked.value("reason_data"), options)
                  : agent.decline(call, asked.text("reason"), options);
          case "resume" -> agent.resume(call, asked.value("answer"), options);
          default ->
              asked.has("result")
                  ? agent.submitToolResult(call, asked.value("result"), options)
                  : agent.submitToolError(call, asked.text("error"), options);
        });
  }

  private static RunStream decisionStream(
      AgentClient agent, String verb, WaitingCall call, Asked asked, DecisionOptions options) {
    return switch (verb) {
      case "approve" ->
          asked.has("edited_args")
              ? agent.approveEditedStream(call, asked.value("edited_args"), options)
              : agent.approveStream(call, options);
      case "decline" ->
          asked.has("reason_data")
              ? agent.declineWithStream(
                  call, asked.text("reason"), asked.value("reason_data"), options)
              : agent.declineStream(call, asked.text("reason"), options);
      case "resume" -> agent.resumeStream(call, asked.value("answer"), options);
      default ->
          asked.has("result")
              ? agent.submitToolResultStream(call, asked.value("result"), options)
              : agent.submitToolErrorStream(call, asked.text("error"), options);
    };
  }

  private static JsonObject getRun(Command command) {
    String id = command.asked.text("run_id");
    return written(
        command.asked.truth("omit_result")
            ? client(command).runs().getWithoutResult(id)
            : client(command).runs().get(id));
  }

  private static JsonObject listRuns(Command command) {
    Asked asked = command.asked;
    RunFilter filter =
        RunFilter.all()
            .agentId(asked.text("agent_id"))
            .threadId(asked.text("thread_id"))
            .includeChildren(asked.truth("include_children"))
            .pageSize((int) asked.number("page_size", 0))
            .states(
                Stream.of(asked.texts("states"))
                    .map(name -> Asked.named(name, RunState.class))
                    .toArray(RunState[]::new));
    return listed(asked, client(command).runs().list(filter));
  }

  private static JsonObject watchRun(Command command) throws InterruptedException {
    Asked asked = command.asked;
    WatchOptions options =
        WatchOptions.defaults()
            .timeout(asked.seconds("timeout"))
            .callbacks(Options.callbacks(asked, command::event))
            .clientTools(Options.tools(asked, command::event));
    options = asked.truth("until_finished") ? options.untilFinished() : options;
    return follow(
        command,
        client(command).runs().watch(asked.text("run_id"), asked.number("after", 0), options));
  }

  private static JsonObject cancelRun(Command command) {
    Asked asked = command.asked;
    String id = asked.text("run_id");
    String reason = asked.text("reason");
    return written(
        asked.truth("wait")
            ? client(command).runs().cancelAndWait(id, reason, null)
            : client(command).runs().cancel(id, reason));
  }

  private static JsonObject deleteRun(Command command) {
    client(command).runs().delete(command.asked.text("run_id"), command.asked.truth("force"));
    return new JsonObject();
  }

  private static InboxFilter inboxFilter(Asked asked) {
    return InboxFilter.all()
        .runId(asked.text("run_id"))
        .agentId(asked.text("agent_id"))
        .threadId(asked.text("thread_id"))
        .resourceId(asked.text("resource_id"))
        .includeDecided(asked.truth("include_decided"))
        .pageSize((int) asked.number("page_size", 0));
  }

  private static JsonObject listInbox(Command command) {
    return listed(command.asked, client(command).inbox().list(inboxFilter(command.asked)));
  }

  private static JsonObject watchInbox(Command command) throws InterruptedException {
    Asked asked = command.asked;
    try (InboxWatch watch =
        client(command).inbox().watch(inboxFilter(asked), asked.seconds("timeout"))) {
      JsonObject ok = new JsonObject();
      ok.addProperty("left", read(command, watch.iterator(), Testee::change));
      return ok;
    }
  }

  private static JsonElement change(InboxChange change) {
    change.opened().forEach(call -> SHOWN.put(call.pendingCallId(), call));
    return Written.of(change);
  }

  private static JsonObject claim(Command command) {
    WaitingCall call = WaitingCall.byId(command.asked.text("pending_call_id"));
    return shown(client(command).inbox().claim(call, command.asked.seconds("ttl")));
  }

  private static JsonObject decisions(Command command) {
    Asked asked = command.asked;
    DecisionFilter filter =
        DecisionFilter.all()
            .runId(asked.text("run_id"))
            .pendingCallId(asked.text("pending_call_id"))
            .principal(asked.text("principal"))
            .pageSize((int) asked.number("page_size", 0));
    return listed(asked, client(command).inbox().decisions(filter));
  }

  private static ThreadsClient threads(Command command) {
    ThreadsClient threads = client(command).threads();
    RequestOptions options = threads.options();
    return threads.with(options.withRequestId(command.asked.text("request_id")));
  }

  private static JsonObject createThread(Command command) {
    Asked asked = command.asked;
    return written(
        threads(command)
            .create(
                asked.text("thread_id"),
                asked.text("resource_id"),
                asked.text("title"),
                asked.json("metadata")));
  }

  private static JsonObject listThreads(Command command) {
    ThreadFilter filter =
        ThreadFilter.all()
            .resourceId(command.asked.text("resource_id"))
            .pageSize((int) command.asked.number("page_size", 0));
    return listed(command.asked, client(command).threads().list(filter));
  }

  private static JsonObject updateThread(Command command) {
    Asked asked = command.asked;
    String title = asked.has("title") ? asked.text("title") : null;
    return written(threads(command).update(asked.text("thread_id"), title, asked.json("metadata")));
  }

  private static JsonObject deleteThread(Command command) {
    JsonObject ok = new JsonObject();
    ok.add(
        "cancelled_run_ids",
        Written.of(
            client(command)
                .threads()
                .delete(command.asked.text("thread_id"), command.asked.truth("force"))));
    return ok;
  }

  private static JsonObject messages(Command command) {
    Asked asked = command.asked;
    MessageFilter filter =
        MessageFilter.all()
            .runId(asked.text("run_id"))
            .newestFirst(asked.truth("newest_first"))
            .pageSize((int) asked.number("page_size", 0))
            .roles(
                Stream.of(asked.texts("roles"))
                    .map(name -> Asked.named(name, Role.class))
                    .toArray(Role[]::new));
    return listed(asked, client(command).threads().messages(asked.text("thread_id"), filter));
  }

  private static JsonObject workingMemory(Command command) {
    Asked asked = command.asked;
    ThreadsClient threads = client(command).threads();
    return written(
        asked.has("thread_id")
            ? threads.workingMemory(asked.text("thread_id"))
            : threads.workingMemoryOfResource(asked.text("resource_id")));
  }

  private static JsonObject updateWorkingMemory(Command command) {
    Asked asked = command.asked;
    String content = asked.text("content");
    Long version = asked.has("expected_version") ? asked.number("expected_version", 0) : null;
    ThreadsClient threads = threads(command);
    WorkingMemory memory =
        asked.has("thread_id")
            ? threads.updateWorkingMemory(asked.text("thread_id"), content, version)
            : threads.updateWorkingMemoryOfResource(asked.text("resource_id"), content, version);
    return written(memory);
  }

  /** All elements of a list, or the page that is asked for. */
  private static <T> JsonObject listed(Asked asked, Paged<T> list) {
    JsonObject ok = new JsonObject();
    JsonArray items = new JsonArray();
    if (asked.has("page_token")) {
      Page<T> page = list.page(asked.text("page_token"));
      page.items().forEach(item -> items.add(listedItem(item)));
      ok.addProperty("next_page_token", page.nextPageToken());
    } else {
      list.forEach(item -> items.add(listedItem(item)));
    }
    ok.add("items", items);
    return ok;
  }

  private static JsonElement listedItem(Object item) {
    return item instanceof PendingCall call ? shown(call) : Written.of(item);
  }
}
