import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import com.google.gson.JsonPrimitive;
import com.google.protobuf.ByteString;
import dev.entracte.Chunk;
import dev.entracte.GenerateResult;
import dev.entracte.Json;
import dev.entracte.StepResult;
import dev.entracte.ThreadMessage;
import dev.entracte.ThreadPart;
import dev.entracte.errors.EntracteException;
import java.lang.reflect.RecordComponent;
import java.time.temporal.TemporalAmount;
import java.util.Collection;
import java.util.HexFormat;
import java.util.Locale;
import java.util.Map;
import java.util.Set;

/** What the SDK gives, as the protocol has it. Records are written by their components. */
final class Written {
  /** Names that the protocol has another way. */
  private static final Map<String, String> NAMES =
      Map.of("reason_json", "reason_data", "is_transient", "transient");

  /** Components that the protocol does not have. */
  private static final Set<String> LEFT_OUT =
      Set.of("header", "follow_ups", "request_context", "tool_description");

  private Written() {}

  static JsonElement of(Object value) {
    if (value == null || value instanceof TemporalAmount || value instanceof java.time.Instant) {
      return JsonNull.INSTANCE;
    }
    if (value instanceof Json json) {
      return json(json);
    }
    if (value instanceof String text) {
      return new JsonPrimitive(text);
    }
    if (value instanceof Boolean truth) {
      return new JsonPrimitive(truth);
    }
    if (value instanceof Number number) {
      return new JsonPrimitive(number);
    }
    if (value instanceof Enum<?> constant) {
      return new JsonPrimitive(constant.name().toLowerCase(Locale.ROOT).replace('_', '-'));
    }
    if (value instanceof ByteString bytes) {
      return new JsonPrimitive(HexFormat.of().formatHex(bytes.toByteArray()));
    }
    if (value instanceof Collection<?> items) {
      JsonArray array = new JsonArray();
      items.forEach(item -> array.add(of(item)));
      return array;
    }
    if (value instanceof Map<?, ?> entries) {
      JsonObject object = new JsonObject();
      entries.forEach((key, item) -> object.add(key.toString(), of(item)));
      return object;
    }
    if (value instanceof Chunk chunk) {
      return chunk(chunk);
    }
    if (value instanceof GenerateResult result) {
      return result(result);
    }
    if (value instanceof ThreadMessage message) {
      JsonObject object = record((Record) value);
      object.addProperty("text", message.text());
      return object;
    }
    if (value instanceof ThreadPart part) {
      JsonObject object = record((Record) part);
      object.addProperty("type", type(part));
      return object;
    }
    if (value instanceof Record record) {
      return record(record);
    }
    throw new IllegalStateException("the protocol has no form for " + value.getClass());
  }

  private static JsonObject record(Record record) {
    JsonObject object = new JsonObject();
    for (RecordComponent component : record.getClass().getRecordComponents()) {
      String name = snake(component.getName());
      if (!LEFT_OUT.contains(name)) {
        try {
          component.getAccessor().setAccessible(true);
          object.add(NAMES.getOrDefault(name, name), of(component.getAccessor().invoke(record)));
        } catch (ReflectiveOperationException error) {
          throw new IllegalStateException(error);
        }
      }
    }
    return object;
  }

  private static JsonObject json(Json json) {
    JsonObject object = new JsonObject();
    object.addProperty("text", json.text());
    object.addProperty("native", Json.of(json.value()).text());
    return object;
  }

  private static JsonObject chunk(Chunk chunk) {
    JsonObject object = record((Record) chunk);
    if (chunk instanceof Chunk.Custom custom) {
      object.addProperty("custom_id", custom.id());
      object.remove("id");
    }
    object.addProperty("type", chunk.type());
    object.addProperty("run_id", chunk.runId());
    object.addProperty("sequence", chunk.sequence());
    object.addProperty("step", chunk.header().step());
    object.addProperty("attempt", chunk.header().attempt());
    object.add("source", of(chunk.header().source()));
    object.add("agent_path", of(chunk.header().agentPath()));
    object.addProperty("ignorable", chunk.header().ignorable());
    return object;
  }

  private static JsonObject result(GenerateResult result) {
    JsonObject object = new JsonObject();
    object.addProperty("run_id", result.runId());
    object.addProperty("text", result.text());
    object.add("object", of(result.object()));
    object.add("finish_reason", of(result.finishReason()));
    object.add("stop_cause", of(result.stopCause()));
    object.add("usage", of(result.usage()));
    object.addProperty("reasoning_text", result.reasoningText());
    object.add("tool_calls", of(result.toolCalls()));
    object.add("tool_results", of(result.toolResults()));
    object.add("warnings", of(result.warnings()));
    object.add("error", of(result.error()));
    object.add("tripwire", of(result.tripwire()));
    object.addProperty("used_fallback_value", result.usedFallbackValue());
    JsonArray steps = new JsonArray();
    result.steps().forEach(step -> steps.add(step(step)));
    object.add("steps", steps);
    object.add("pending_calls", of(result.pendingCalls()));
    object.addProperty("messages", result.messages().size());
    return object;
  }

  private static JsonObject step(StepResult step) {
    JsonObject object = new JsonObject();
    object.addProperty("step", step.step());
    object.addProperty("text", step.text());
    object.addProperty("reasoning_text", step.reasoningText());
    object.add("finish_reason", of(step.finishReason()));
    object.add("usage", of(step.usage()));
    object.add("tool_calls", of(step.toolCalls()));
    object.add("tool_results", of(step.toolResults()));
    object.addProperty("is_draft", step.isDraft());
    return object;
  }

  static JsonObject error(Throwable error) {
    JsonObject object = new JsonObject();
    String name = error.getClass().getSimpleName().replaceAll("(Error|Exception)$", "");
    object.addProperty("class", name);
    object.addProperty("message", error.getMessage());
    if (error instanceof EntracteException refusal) {
      object.addProperty("kind", "entracte");
      object.addProperty("code", refusal.code().name());
      object.addProperty("reason", refusal.reason());
      object.addProperty("message", refusal.details().message());
      object.add("metadata", of(refusal.metadata()));
      object.add("violations", of(refusal.violations()));
      if (refusal.retryAfter() != null) {
        object.addProperty("retry_after", refusal.retryAfter().toNanos() / 1e9);
      }
    } else {
      boolean usage =
          error instanceof IllegalArgumentException
              || error instanceof IllegalStateException
              || error instanceof NullPointerException;
      object.addProperty("kind", usage ? "usage" : "other");
    }
    return object;
  }

  private static String type(ThreadPart part) {
    String name = part instanceof ThreadPart.Failure ? "Error" : part.getClass().getSimpleName();
    return snake(name.substring(0, 1).toLowerCase(Locale.ROOT) + name.substring(1))
        .replace('_', '-');
  }

  private static String snake(String name) {
    return name.replaceAll("([A-Z])", "_$1").toLowerCase(Locale.ROOT);
  }
}
