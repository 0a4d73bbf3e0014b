package dev.entracte;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

class JsonTest {
  private record Line(String item, BigInteger cents, List<Integer> sizes) {}

  @Test
  void numbersAndKeysAreWhatTheTextSays() {
    String text =
        "{\"z\":18446744073709551617,\"a\":1.0,\"m\":{\"e\":-0.5e-7,\"n\":null},\"l\":[0,\"\",false]}";
    Json json = Json.ofText(text);
    assertEquals(new BigInteger("18446744073709551617"), json.get("z").asBigInteger());
    assertThrows(ArithmeticException.class, () -> json.get("z").asLong());
    assertEquals(new BigDecimal("1.0"), json.get("a").asBigDecimal());
    assertThrows(IllegalStateException.class, () -> json.get("a").asLong());
    assertEquals(-0.5e-7, json.get("m").get("e").asDouble());
    assertTrue(json.get("m").get("n").isNull());
    assertNull(json.get("none"));
    assertEquals(List.of("z", "a", "m", "l"), new ArrayList<>(json.asMap().keySet()));
    assertEquals(Arrays.asList(BigInteger.ZERO, "", false), json.get("l").asList());
    assertEquals(text, json.text());
    assertEquals(text.replace("-0.5e-7", "-5E-8"), Json.of(json.value()).text());
  }

  @Test
  void javaValuesHaveAJsonForm() {
    assertEquals("null", Json.of(null).text());
    assertEquals("\"<ü😀>\\u2028\"", Json.of("<ü😀>\u2028").text());
    Json nested = Json.of(Map.of("raw", Json.ofText("1.0"), "huge", BigInteger.TEN.pow(30)));
    assertEquals(new BigDecimal("1.0"), nested.get("raw").asBigDecimal());
    assertTrue(nested.text().contains("\"raw\":1.0"));
    Line line = new Line("lamp", BigInteger.TWO.pow(70), List.of(1, 2));
    assertEquals(line, Json.of(line).as(Line.class));
    assertThrows(IllegalArgumentException.class, () -> Json.of(Double.NaN));
    assertThrows(IllegalArgumentException.class, () -> Json.of(List.of(Float.POSITIVE_INFINITY)));
  }

  @Test
  void whatIsNoJsonSaysSo() {
    for (String text : List.of("", "{", "[1,]", "NaN", "{'a':1}", "1 2", "nul")) {
      assertThrows(IllegalArgumentException.class, () -> Json.ofText(text).value(), text);
    }
    Json text = Json.ofText("\"yes\"");
    assertFalse(text.isNull());
    assertEquals(
        "the JSON value is not a boolean: \"yes\"",
        assertThrows(IllegalStateException.class, text::asBoolean).getMessage());
  }
}
