import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import dev.entracte.Json;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.function.Consumer;

/** An object of a command: its keys, read one by one. A key with null is a missing one. */
final class Asked {
  private final JsonObject object;
  private final Set<String> read = new HashSet<>();

  Asked(JsonObject object) {
    this.object = object;
  }

  boolean has(String key) {
    read.add(key);
    return object.has(key) && !object.get(key).isJsonNull();
  }

  JsonElement get(String key) {
    return has(key) ? object.get(key) : null;
  }

  String text(String key) {
    return has(key) ? object.get(key).getAsString() : "";
  }

  boolean truth(String key) {
    return has(key) && object.get(key).getAsBoolean();
  }

  long number(String key, long otherwise) {
    return has(key) ? object.get(key).getAsLong() : otherwise;
  }

  Duration seconds(String key) {
    return has(key) ? Duration.ofNanos(Math.round(object.get(key).getAsDouble() * 1e9)) : null;
  }

  /** A native value of the JSON text under a key; raw text where that is not JSON. */
  Object value(String key) {
    return value(object.get(key));
  }

  /** The same as the SDK's own type; null where there is none. */
  Json json(String key) {
    return has(key) ? Json.of(value(key)) : null;
  }

  String[] texts(String key) {
    List<String> texts = new ArrayList<>();
    if (has(key)) {
      object.getAsJsonArray(key).forEach(item -> texts.add(item.getAsString()));
    }
    return texts.toArray(String[]::new);
  }

  <E extends Enum<E>> E constant(String key, Class<E> type) {
    return named(text(key), type);
  }

  static <E extends Enum<E>> E named(String name, Class<E> type) {
    return Enum.valueOf(type, name.toUpperCase(Locale.ROOT).replace('-', '_'));
  }

  Asked inner(String key) {
    return new Asked(has(key) ? object.getAsJsonObject(key) : new JsonObject());
  }

  List<Asked> all(String key) {
    JsonArray items = has(key) ? object.getAsJsonArray(key) : new JsonArray();
    List<Asked> all = new ArrayList<>();
    items.forEach(item -> all.add(new Asked(item.getAsJsonObject())));
    return all;
  }

  Map<String, Json> values() {
    Map<String, Json> values = new HashMap<>();
    object
        .entrySet()
        .forEach(entry -> values.put(entry.getKey(), Json.of(value(entry.getValue()))));
    return values;
  }

  /** Does something with the value of a key, where there is one. */
  void with(String key, Consumer<String> action) {
    if (has(key)) {
      action.accept(key);
    }
  }

  /** Refuses keys that nobody has asked for. */
  void nothingElse(String what) {
    for (Map.Entry<String, JsonElement> entry : object.entrySet()) {
      if (!read.contains(entry.getKey()) && !entry.getValue().isJsonNull()) {
        throw new IllegalArgumentException(what + " has no key " + entry.getKey());
      }
    }
  }

  private static Object value(JsonElement text) {
    Json json = Json.ofText(text.getAsString());
    try {
      return json.value();
    } catch (IllegalArgumentException error) {
      return json;
    }
  }
}
