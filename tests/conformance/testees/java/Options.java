import com.google.gson.JsonObject;
import dev.entracte.Callbacks;
import dev.entracte.ClientTool;
import dev.entracte.DecisionOptions;
import dev.entracte.GenerateOptions;
import dev.entracte.Json;
import dev.entracte.Memory;
import dev.entracte.ModelSettings;
import dev.entracte.PendingCallExpiry;
import dev.entracte.Scorer;
import dev.entracte.StopWhen;
import dev.entracte.StructuredOutput;
import dev.entracte.ToolApproval;
import dev.entracte.ToolChoice;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.function.BiConsumer;

/** The options of commands as those of the SDK. */
final class Options {
  private Options() {}

  static GenerateOptions generate(Asked o) {
    GenerateOptions g = GenerateOptions.defaults();
    g = o.has("run_id") ? g.runId(o.text("run_id")) : g;
    g = o.has("request_id") ? g.requestId(o.text("request_id")) : g;
    g = o.has("timeout") ? g.timeout(o.seconds("timeout")) : g;
    g = o.has("max_steps") ? g.maxSteps((int) o.number("max_steps", 0)) : g;
    g = o.has("active_tools") ? g.activeTools(o.texts("active_tools")) : g;
    g = o.has("require_tool_approval") ? g.requireToolApproval(approval(o)) : g;
    g =
        o.has("tool_call_concurrency")
            ? g.toolCallConcurrency((int) o.number("tool_call_concurrency", 0))
            : g;
    g = o.has("structured_output") ? g.structuredOutput(output(o.inner("structured_output"))) : g;
    g = o.has("instructions") ? g.instructions(o.text("instructions")) : g;
    g = o.has("system") ? g.system(o.text("system")) : g;
    g = o.has("memory") ? g.memory(memory(o.inner("memory"))) : g;
    g = o.has("model_settings") ? g.modelSettings(settings(o.inner("model_settings"))) : g;
    g = o.has("tool_choice") ? g.toolChoice(choice(o.text("tool_choice"))) : g;
    g = o.has("toolsets") ? g.toolsets(o.texts("toolsets")) : g;
    g = o.has("stop_when") ? g.stopWhen(stop(o.inner("stop_when"))) : g;
    g = o.has("provider_options") ? g.providerOptions(o.json("provider_options")) : g;
    g = o.has("request_context") ? g.requestContext(o.json("request_context")) : g;
    for (String name : o.texts("scorers")) {
      g = g.scorer(name, Scorer.onAll());
    }
    g = o.has("execution_timeout") ? g.executionTimeout(o.seconds("execution_timeout")) : g;
    g = o.has("cancel_on_disconnect") ? g.cancelOnDisconnect(o.truth("cancel_on_disconnect")) : g;
    g = o.has("include_raw_chunks") ? g.includeRawChunks(o.truth("include_raw_chunks")) : g;
    g =
        o.has("pending_call_expiry")
            ? g.pendingCallExpiry(expiry(o.inner("pending_call_expiry")))
            : g;
    o.nothingElse("options");
    return g;
  }

  static DecisionOptions decision(Asked o) {
    DecisionOptions d = DecisionOptions.defaults();
    d = o.has("request_id") ? d.requestId(o.text("request_id")) : d;
    d = o.has("on_behalf_of") ? d.onBehalfOf(o.text("on_behalf_of")) : d;
    d = o.has("comment") ? d.comment(o.text("comment")) : d;
    d = o.has("timeout") ? d.timeout(o.seconds("timeout")) : d;
    o.nothingElse("options");
    return d;
  }

  /** Observers that write their events; they fail afterwards where that is asked for. */
  static Callbacks callbacks(Asked command, BiConsumer<String, Object> event) {
    boolean raises = command.truth("observer_raises");
    BiConsumer<String, Object> tell =
        (name, value) -> {
          event.accept(name, value);
          if (raises) {
            throw new IllegalStateException("the observer raises");
          }
        };
    Callbacks callbacks = Callbacks.none();
    for (String name : command.texts("observe")) {
      callbacks =
          switch (name) {
            case "on_chunk" ->
                callbacks.onChunk(
                    c -> tell.accept(name, Map.of("type", c.type(), "sequence", c.sequence())));
            case "on_step_finish" ->
                callbacks.onStepFinish(
                    s -> tell.accept(name, Map.of("step", s.step(), "text", s.text())));
            case "on_finish" ->
                callbacks.onFinish(
                    r ->
                        tell.accept(
                            name, Map.of("text", r.text(), "finish_reason", r.finishReason())));
            case "on_error" ->
                callbacks
                    .onRunError(e -> tell.accept(name, Map.of("kind", e.kind())))
                    .onStreamError(
                        e -> {
                          JsonObject error = Written.error(e);
                          tell.accept(
                              name,
                              Map.of(
                                  "class", error.get("class").getAsString(),
                                  "code", error.get("code").getAsString(),
                                  "reason", e.reason()));
                        });
            case "on_abort" ->
                callbacks.onAbort(a -> tell.accept(name, Map.of("reason", a.reason())));
            default -> throw new IllegalArgumentException("there is no observer " + name);
          };
    }
    return callbacks;
  }

  static ClientTool[] tools(Asked command, BiConsumer<String, Object> event) {
    List<ClientTool> tools = new ArrayList<>();
    for (Asked tool : command.all("client_tools")) {
      String name = tool.text("name");
      Asked function = tool.inner("function");
      ClientTool.Function called =
          args -> {
            event.accept("client-tool", Map.of("tool", name, "args", args));
            if (function.has("raises")) {
              throw new IllegalStateException(function.text("raises"));
            }
            return function.truth("echo") ? args.value() : function.value("returns");
          };
      tools.add(
          new ClientTool(
              name,
              tool.text("description"),
              tool.json("input_schema"),
              tool.has("function") ? called : null));
    }
    return tools.toArray(ClientTool[]::new);
  }

  private static ToolApproval approval(Asked o) {
    if (o.get("require_tool_approval").isJsonArray()) {
      return ToolApproval.rules().names(o.texts("require_tool_approval"));
    }
    return o.truth("require_tool_approval") ? ToolApproval.all() : ToolApproval.none();
  }

  private static StructuredOutput output(Asked o) {
    StructuredOutput output = StructuredOutput.of(o.json("schema"));
    if (o.has("fallback_value")) {
      output = output.fallbackValue(o.json("fallback_value"));
    }
    if (o.has("error_strategy")) {
      output =
          output.errorStrategy(o.constant("error_strategy", StructuredOutput.ErrorStrategy.class));
    }
    o.nothingElse("structured_output");
    return output;
  }

  private static Memory memory(Asked o) {
    Memory memory =
        o.has("thread")
            ? Memory.of(o.text("thread"), o.text("resource"))
            : Memory.ofResource(o.text("resource"));
    if (o.has("last_messages")) {
      memory = memory.lastMessages((int) o.number("last_messages", 0));
    }
    if (o.has("on_busy_thread")) {
      memory = memory.onBusyThread(o.constant("on_busy_thread", Memory.OnBusy.class));
    }
    if (o.has("on_parked_thread")) {
      memory = memory.onParkedThread(o.constant("on_parked_thread", Memory.OnParked.class));
    }
    if (o.has("queue_timeout")) {
      memory = memory.queueTimeout(o.seconds("queue_timeout"));
    }
    o.has("resource");
    o.nothingElse("memory");
    return memory;
  }

  private static ModelSettings settings(Asked o) {
    ModelSettings settings = ModelSettings.defaults();
    if (o.has("temperature")) {
      settings = settings.temperature(o.get("temperature").getAsDouble());
    }
    if (o.has("max_output_tokens")) {
      settings = settings.maxOutputTokens((int) o.number("max_output_tokens", 0));
    }
    if (o.has("seed")) {
      settings = settings.seed(o.number("seed", 0));
    }
    o.nothingElse("model_settings");
    return settings;
  }

  private static ToolChoice choice(String name) {
    return switch (name) {
      case "auto" -> ToolChoice.auto();
      case "none" -> ToolChoice.none();
      case "required" -> ToolChoice.required();
      default -> throw new IllegalArgumentException("there is no tool choice " + name);
    };
  }

  private static StopWhen stop(Asked o) {
    if (o.has("step_count")) {
      return StopWhen.steps((int) o.number("step_count", 0));
    }
    return o.has("tool_called")
        ? StopWhen.toolCalled(o.text("tool_called"))
        : StopWhen.textContains(o.text("text_contains"));
  }

  private static PendingCallExpiry expiry(Asked o) {
    Duration after = o.seconds("after");
    Map<String, Json> answers = o.inner("default_answers").values();
    return switch (o.text("action")) {
      case "fail" -> PendingCallExpiry.fail(after);
      case "answer" -> PendingCallExpiry.answer(after, answers);
      case "decline" -> PendingCallExpiry.decline(after);
      default ->
          answers.isEmpty()
              ? PendingCallExpiry.decline(after)
              : PendingCallExpiry.answer(after, answers);
    };
  }
}
