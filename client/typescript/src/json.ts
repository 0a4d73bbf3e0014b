/**
 * JSON text on the wire, native values for callers.
 *
 * Nothing is lost on the way: a {@link Json} keeps the exact text beside the value, and integers that a `number`
 * cannot hold are `bigint`, both ways.
 */

import { parse } from "./json-parse.js";

/** Any JSON value as a native one. Integers beyond 2^53 are `bigint`. */
export type JsonValue =
  | null
  | boolean
  | number
  | bigint
  | string
  | JsonValue[]
  | { [key: string]: JsonValue };

/**
 * A JSON value with its exact text.
 *
 * It is what records carry (`call.args.text`, `call.args.value`), and may be given wherever a JSON value is taken:
 * then its text is sent as it is. The text is parsed when the value is first read.
 */
export class Json {
  /** The text, as it was or is to be on the wire. */
  readonly text: string;
  #value: JsonValue | undefined;

  constructor(text: string) {
    this.text = text;
  }

  /** The JSON of a native value; see {@link stringify} for what it takes and throws. */
  static of(value: unknown): Json {
    return value instanceof Json ? value : new Json(stringify(value));
  }

  /** The native value. The same object each time; throws `SyntaxError` for a text that is not JSON. */
  get value(): JsonValue {
    if (this.#value === undefined) this.#value = parse(this.text);
    return this.#value;
  }

  /** The native value as a type the caller vouches for; nothing is checked. */
  as<T>(): T {
    return this.value as T;
  }

  /** Whether the texts are the same. */
  equals(other: Json | undefined): boolean {
    return other !== undefined && other.text === this.text;
  }

  /** The text. */
  toString(): string {
    return this.text;
  }

  /** For `JSON.stringify`, which refuses a `bigint`: {@link stringify} does not. */
  toJSON(): JsonValue {
    return this.value;
  }
}

/**
 * The JSON text of a value: like `JSON.stringify`, but a `bigint` is an integer, a {@link Json} is its text, and
 * what has no JSON form is refused rather than dropped.
 *
 * Throws `TypeError` for functions, symbols, maps, sets, values that contain themselves, numbers that are not finite,
 * and for `undefined` except as a property of an object, which is left out.
 */
export function stringify(value: unknown): string {
  return write(value, []);
}

function write(value: unknown, holders: object[]): string {
  switch (typeof value) {
    case "string":
      return JSON.stringify(value);
    case "boolean":
    case "bigint":
      return String(value);
    case "number":
      if (!Number.isFinite(value)) throw new TypeError(`${value} has no JSON form`);
      return JSON.stringify(value);
    case "object":
      return value === null ? "null" : writeObject(value, holders);
    default:
      throw new TypeError(`a value of type ${typeof value} has no JSON form`);
  }
}

function writeObject(value: object, holders: object[]): string {
  if (value instanceof Json) return value.text;
  if (holders.includes(value)) throw new TypeError("a value that contains itself has no JSON form");
  const inner = [...holders, value];
  if ("toJSON" in value && typeof value.toJSON === "function") return write(value.toJSON(), inner);
  if (Array.isArray(value)) return `[${value.map((item) => write(item, inner)).join(",")}]`;
  if (value instanceof Map || value instanceof Set || ArrayBuffer.isView(value)) {
    throw new TypeError(`a ${value.constructor.name} has no JSON form`);
  }
  const members = Object.entries(value)
    .filter(([, item]) => item !== undefined)
    .map(([key, item]) => `${JSON.stringify(key)}:${write(item, inner)}`);
  return `{${members.join(",")}}`;
}

export { parse };
