package dev.entracte;

import java.util.Locale;

/** The enumerations of the contract, whose values have the enumeration's name as a prefix. */
final class Enums {
  private Enums() {}

  /** The value that has the name of a wire value: null for one not set, else {@code unknown}. */
  static <E extends Enum<E>> E read(Class<E> type, Enum<?> wire, E unknown) {
    String prefix = prefix(wire.getDeclaringClass());
    String name = wire.name();
    if (name.equals(prefix + "UNSPECIFIED")) {
      return null;
    }
    if (name.startsWith(prefix)) {
      String plain = name.substring(prefix.length());
      for (E value : type.getEnumConstants()) {
        if (value.name().equals(plain)) {
          return value;
        }
      }
    }
    return unknown;
  }

  /** The wire value that has the name of a value. */
  static <W extends Enum<W>> W write(Class<W> type, Enum<?> value) {
    String name = prefix(type) + value.name();
    for (W wire : type.getEnumConstants()) {
      if (wire.name().equals(name)) {
        return wire;
      }
    }
    throw new IllegalArgumentException(
        value.getDeclaringClass().getSimpleName() + "." + value + " cannot be sent");
  }

  private static String prefix(Class<?> type) {
    return type.getSimpleName().replaceAll("(?<!^)(?=[A-Z])", "_").toUpperCase(Locale.ROOT) + "_";
  }
}
