package dev.entracte;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonParseException;
import com.google.gson.Strictness;
import com.google.gson.TypeAdapter;
import com.google.gson.stream.JsonReader;
import com.google.gson.stream.JsonToken;
import com.google.gson.stream.JsonWriter;
import java.io.IOException;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.util.List;
import java.util.Map;
import java.util.Objects;

/**
 * A JSON value with its exact text.
 *
 * <p>It travels as text, so that nothing is lost on the way: integers of any size, the order of
 * keys, the difference between 1 and 1.0. The text is parsed when a value is first asked for.
 *
 * <pre>{@code
 * call.args().get("amount_cents").asLong();
 * result.object().as(Invoice.class);
 * Json.of(Map.of("ok", true));
 * Json.ofText("{\"n\": 1.0}");
 * }</pre>
 *
 * <p>Where no value is there at all, this SDK has a Java {@code null}; {@link #NULL} is the JSON
 * value {@code null}. Two of them are equal when their texts are. Immutable.
 */
public final class Json {
  /** The JSON value {@code null}. */
  public static final Json NULL = new Json("null");

  private static final Gson GSON =
      new GsonBuilder()
          .serializeNulls()
          .disableHtmlEscaping()
          .setStrictness(Strictness.STRICT)
          .setObjectToNumberStrategy(Json::number)
          .registerTypeAdapter(Json.class, new Nested())
          .create();

  private final String text;
  private Object value;
  private boolean parsed;

  private Json(String text) {
    this.text = Objects.requireNonNull(text, "the text");
  }

  /**
   * A value given as JSON text, which is sent as it is. Whether it is JSON shows when it is parsed,
   * here or on the server.
   *
   * @param text the text
   * @return the value
   */
  public static Json ofText(String text) {
    return new Json(text);
  }

  /**
   * The JSON form of a Java value: null, a Boolean, a number, a String, a List, a Map with String
   * keys, a Json, a record or a plain object.
   *
   * @param value the value
   * @return its JSON form
   * @throws IllegalArgumentException for a number that is not finite, and for what has no JSON form
   */
  public static Json of(Object value) {
    if (value instanceof Json json) {
      return json;
    }
    try {
      return value == null ? NULL : new Json(GSON.toJson(value));
    } catch (JsonParseException | UnsupportedOperationException error) {
      throw new IllegalArgumentException(
          "a value without a JSON form: " + error.getMessage(), error);
    }
  }

  /**
   * The exact text.
   *
   * @return JSON text
   */
  public String text() {
    return text;
  }

  /**
   * The value in Java's terms: null, Boolean, String, BigInteger for a number written as an
   * integer, BigDecimal for any other, List, and Map in the order of the text.
   *
   * @return the value; not to be changed
   * @throws IllegalArgumentException if the text is not JSON
   */
  public Object value() {
    synchronized (this) {
      if (!parsed) {
        value = parse(Object.class);
        parsed = true;
      }
      return value;
    }
  }

  /**
   * The value as an instance of a class: a record or plain object, by the names of its fields.
   *
   * @param type the class
   * @param <T> the class
   * @return the instance
   * @throws IllegalArgumentException if the text does not fit the class
   */
  public <T> T as(Class<T> type) {
    return parse(type);
  }

  /**
   * A member of an object.
   *
   * @param key its key
   * @return its value, or null where the object has no such member
   * @throws IllegalStateException if this is not an object
   */
  public Json get(String key) {
    Map<String, Object> members = asMap();
    return members.containsKey(key) ? of(members.get(key)) : null;
  }

  /**
   * An element of an array.
   *
   * @param index its place, from 0
   * @return its value
   * @throws IllegalStateException if this is not an array
   * @throws IndexOutOfBoundsException if the array is shorter
   */
  public Json get(int index) {
    return of(asList().get(index));
  }

  /**
   * Whether this is the JSON value {@code null}.
   *
   * @return true for {@code null}
   */
  public boolean isNull() {
    return value() == null;
  }

  /**
   * The value of a string.
   *
   * @return the string
   * @throws IllegalStateException if this is not a string
   */
  public String asString() {
    return expect(String.class, "a string");
  }

  /**
   * The value of a boolean.
   *
   * @return true or false
   * @throws IllegalStateException if this is not a boolean
   */
  public boolean asBoolean() {
    return expect(Boolean.class, "a boolean");
  }

  /**
   * The value of an integer of any size.
   *
   * @return the integer
   * @throws IllegalStateException if this is not a number written as an integer
   */
  public BigInteger asBigInteger() {
    return expect(BigInteger.class, "an integer");
  }

  /**
   * The value of any number, exactly.
   *
   * @return the number
   * @throws IllegalStateException if this is not a number
   */
  public BigDecimal asBigDecimal() {
    return value() instanceof BigInteger integer
        ? new BigDecimal(integer)
        : expect(BigDecimal.class, "a number");
  }

  /**
   * The value of an integer.
   *
   * @return the integer
   * @throws IllegalStateException if this is not an integer
   * @throws ArithmeticException if it does not fit a long
   */
  public long asLong() {
    return asBigInteger().longValueExact();
  }

  /**
   * The value of any number, perhaps rounded.
   *
   * @return the number
   * @throws IllegalStateException if this is not a number
   */
  public double asDouble() {
    return asBigDecimal().doubleValue();
  }

  /**
   * The elements of an array, as {@link #value()} has them.
   *
   * @return the elements; not to be changed
   * @throws IllegalStateException if this is not an array
   */
  @SuppressWarnings("unchecked")
  public List<Object> asList() {
    return expect(List.class, "an array");
  }

  /**
   * The members of an object, as {@link #value()} has them.
   *
   * @return the members in the order of the text; not to be changed
   * @throws IllegalStateException if this is not an object
   */
  @SuppressWarnings("unchecked")
  public Map<String, Object> asMap() {
    return expect(Map.class, "an object");
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof Json json && json.text.equals(text);
  }

  @Override
  public int hashCode() {
    return text.hashCode();
  }

  /** The text. */
  @Override
  public String toString() {
    return text;
  }

  dev.entracte.v1.Json wire() {
    return dev.entracte.v1.Json.newBuilder().setText(text).build();
  }

  private <T> T expect(Class<T> type, String what) {
    Object found = value();
    if (!type.isInstance(found)) {
      String start = text.length() > 60 ? text.substring(0, 60) + "..." : text;
      throw new IllegalStateException("the JSON value is not " + what + ": " + start);
    }
    return type.cast(found);
  }

  private <T> T parse(Class<T> type) {
    if (text.isBlank()) {
      throw new IllegalArgumentException("not JSON: the text is empty");
    }
    try {
      return GSON.fromJson(text, type);
    } catch (JsonParseException error) {
      String what = type == Object.class ? "JSON" : "JSON that fits " + type.getSimpleName();
      throw new IllegalArgumentException("not " + what + ": " + error.getMessage(), error);
    }
  }

  private static Number number(JsonReader in) throws IOException {
    String digits = in.nextString();
    boolean whole = digits.chars().noneMatch(sign -> sign == '.' || sign == 'e' || sign == 'E');
    return whole ? new BigInteger(digits) : new BigDecimal(digits);
  }

  /** A Json within another value is written as its text. */
  private static final class Nested extends TypeAdapter<Json> {
    @Override
    public void write(JsonWriter out, Json json) throws IOException {
      if (json == null) {
        out.nullValue();
      } else {
        out.jsonValue(json.text);
      }
    }

    @Override
    public Json read(JsonReader in) throws IOException {
      if (in.peek() == JsonToken.NULL) {
        in.nextNull();
        return NULL;
      }
      return of(GSON.getAdapter(Object.class).read(in));
    }
  }
}
