/** A parser of JSON that loses no integer. */

import type { JsonValue } from "./json.js";

/** Where no number has as many digits, the built-in parser loses nothing, and it is far quicker. */
const MANY_DIGITS = /\d{16}/;

/**
 * The value of a JSON text. Integers beyond 2^53 are `bigint`; every other number is a `number`.
 *
 * Throws `SyntaxError` for a text that is not JSON.
 */
export function parse(text: string): JsonValue {
  return MANY_DIGITS.test(text) ? new Parser(text).parse() : JSON.parse(text);
}

const SPACE = /[ \t\n\r]*/y;
const NUMBER = /-?(?:0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?/y;
const WORD = /true|false|null/y;

class Parser {
  readonly #text: string;
  #at = 0;

  constructor(text: string) {
    this.#text = text;
  }

  parse(): JsonValue {
    const value = this.#value();
    this.#match(SPACE);
    if (this.#at < this.#text.length) throw this.#fault();
    return value;
  }

  #value(): JsonValue {
    this.#match(SPACE);
    switch (this.#text[this.#at]) {
      case "{":
        return this.#object();
      case "[":
        return this.#array();
      case '"':
        return this.#string();
      case "t":
      case "f":
      case "n":
        return JSON.parse(this.#token(WORD));
      default:
        return this.#number();
    }
  }

  #object(): JsonValue {
    const object: { [key: string]: JsonValue } = {};
    this.#at += 1;
    if (this.#skip("}")) return object;
    do {
      this.#match(SPACE);
      const key = this.#string();
      if (!this.#skip(":")) throw this.#fault();
      const value = this.#value();
      // A plain assignment to `__proto__` would not make a property.
      Object.defineProperty(object, key, { value, writable: true, enumerable: true, configurable: true });
    } while (this.#skip(","));
    if (!this.#skip("}")) throw this.#fault();
    return object;
  }

  #array(): JsonValue {
    const items: JsonValue[] = [];
    this.#at += 1;
    if (this.#skip("]")) return items;
    do {
      items.push(this.#value());
    } while (this.#skip(","));
    if (!this.#skip("]")) throw this.#fault();
    return items;
  }

  #string(): string {
    const start = this.#at;
    if (this.#text[start] !== '"') throw this.#fault();
    let end = start;
    do {
      end = this.#text.indexOf('"', end + 1);
      if (end < 0) throw this.#fault();
    } while (this.#isEscaped(end));
    this.#at = end + 1;
    try {
      return JSON.parse(this.#text.slice(start, end + 1));
    } catch {
      this.#at = start;
      throw this.#fault();
    }
  }

  #isEscaped(at: number): boolean {
    let first = at;
    while (this.#text[first - 1] === "\\") first -= 1;
    return (at - first) % 2 === 1;
  }

  #number(): JsonValue {
    const text = this.#token(NUMBER);
    const number = Number(text);
    return Number.isSafeInteger(number) || !/^-?\d+$/.test(text) ? number : BigInt(text);
  }

  #skip(sign: string): boolean {
    this.#match(SPACE);
    if (this.#text[this.#at] !== sign) return false;
    this.#at += 1;
    return true;
  }

  #token(pattern: RegExp): string {
    const token = this.#match(pattern);
    if (!token) throw this.#fault();
    return token;
  }

  #match(pattern: RegExp): string {
    pattern.lastIndex = this.#at;
    const found = pattern.exec(this.#text)?.[0] ?? "";
    this.#at += found.length;
    return found;
  }

  #fault(): SyntaxError {
    const sign = this.#text[this.#at];
    const what = sign === undefined ? "the text ends too early" : `unexpected ${JSON.stringify(sign)}`;
    return new SyntaxError(`not JSON: ${what} at position ${this.#at}`);
  }
}
