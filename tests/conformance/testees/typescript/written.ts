/** The SDK's records as the protocol writes them (see ../../README.md). */

import { EntracteError, Json, stringify } from "@entracte/client";

const LEFT_OUT = new Set(["response", "request", "rememberedMessages", "scoringData"]);

/** A JSON value: its exact text, and the native value written again. */
export function jvalue(json: Json): object {
  return { text: json.text, native: stringify(json.value) };
}

/** Any value of the SDK. */
export function written(value: unknown): unknown {
  if (value === undefined) return null;
  if (value instanceof Json) return jvalue(value);
  if (value instanceof Uint8Array) return Buffer.from(value).toString("hex");
  if (value instanceof Date) return value.toISOString();
  if (Array.isArray(value)) return value.map(written);
  return typeof value === "object" && value !== null ? record(value) : value;
}

function record(value: object): object {
  const found: Record<string, unknown> = {};
  for (const [key, item] of Object.entries(value)) {
    if (!LEFT_OUT.has(key)) found[snake(key)] = written(item);
  }
  const { type, parts, messages } = value as {
    type?: string;
    parts?: { text?: string }[];
    messages?: unknown[];
  };
  if (type === "custom") {
    found.custom_id = found.id;
    delete found.id;
  }
  if (messages !== undefined) found.messages = messages.length;
  if (parts !== undefined) found.text = parts.map((part) => part.text ?? "").join("");
  return found;
}

function snake(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

/** An error, of the SDK or not. */
export function failure(error: unknown): object {
  if (!(error instanceof Error)) return { kind: "other", class: typeof error, message: String(error) };
  const kind = error instanceof TypeError || error instanceof SyntaxError ? "usage" : "other";
  if (!(error instanceof EntracteError)) return { kind, class: error.name, message: error.message };
  const { name, code, reason, message, metadata, violations, retryAfterMs } = error;
  const after = retryAfterMs === undefined ? null : retryAfterMs / 1000;
  return { kind: "entracte", class: name, code, reason, message, metadata, violations, retry_after: after };
}

// biome-ignore lint/suspicious/noExplicitAny: which it is depends on the name
type Told = any;

/** What an observer was told, as far as the protocol asks. */
export function observed(name: string, value: Told): object {
  switch (name) {
    case "on_chunk":
      return { type: value.type, sequence: value.sequence };
    case "on_step_finish":
      return { step: value.step, text: value.text };
    case "on_finish":
      return { text: value.text, finish_reason: value.finishReason };
    case "on_error":
      return value instanceof EntracteError ? failure(value) : { kind: value.kind };
    default:
      return { reason: value.reason };
  }
}
