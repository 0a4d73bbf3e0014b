/** What commands ask for, as the SDK takes it. */

import { Json, parse } from "@entracte/client";

// biome-ignore lint/suspicious/noExplicitAny: a command is what the driver writes
export type Asked = Record<string, any>;

type Convert = (value: Asked[string]) => unknown;

const same: Convert = (value) => value;
const millis: Convert = (seconds: number) => seconds * 1000;

/** The value of a JSON text; what is none goes to the SDK as it is. */
export function native(text: string): unknown {
  try {
    return parse(text);
  } catch {
    return new Json(text);
  }
}

function each(convert: Convert): Convert {
  return (value: object) =>
    Object.fromEntries(Object.entries(value).map(([key, item]) => [key, convert(item)]));
}

/** Those of the keys that are there, converted, under the names of the SDK. */
export function given(asked: Asked, ...names: string[]): Asked {
  const pairs = names.filter((name) => asked[name] !== undefined && asked[name] !== null);
  return Object.fromEntries(
    pairs.map((name) => [NAMES[name] ?? camel(name), (CONVERSIONS[name] ?? same)(asked[name])]),
  );
}

/** All fields of an object in the same way. */
const fields: Convert = (value: Asked) => given(value, ...Object.keys(value));

const NAMES: Readonly<Record<string, string>> = {
  timeout: "timeoutMs",
  execution_timeout: "executionTimeoutMs",
  queue_timeout: "queueTimeoutMs",
  reattach_timeout: "reattachTimeoutMs",
  after: "afterMs",
  ttl: "ttlMs",
};

const CONVERSIONS: Readonly<Record<string, Convert>> = {
  timeout: millis,
  execution_timeout: millis,
  queue_timeout: millis,
  reattach_timeout: millis,
  after: millis,
  ttl: millis,
  schema: native,
  fallback_value: native,
  input_schema: native,
  provider_options: native,
  request_context: native,
  metadata: native,
  edited_args: native,
  reason_data: native,
  default_answers: each(native),
  structured_output: fields,
  memory: fields,
  model_settings: fields,
  pending_call_expiry: fields,
  stop_when: fields,
};

const OPTIONS = [
  ...["run_id", "request_id", "timeout", "max_steps", "active_tools", "require_tool_approval"],
  ...["tool_call_concurrency", "structured_output", "instructions", "system", "memory", "model_settings"],
  ...["tool_choice", "toolsets", "stop_when", "provider_options", "request_context", "scorers"],
  ...["execution_timeout", "cancel_on_disconnect", "include_raw_chunks", "pending_call_expiry"],
  ...["on_behalf_of", "comment"],
];

/** The options of a command. Throws TypeError for one that the testee does not know. */
export function optionsOf(asked: Asked): Asked {
  const options: Asked = asked.options ?? {};
  const unknown = Object.keys(options).filter((name) => !OPTIONS.includes(name));
  if (unknown.length > 0) throw new TypeError(`the testee does not know the options ${unknown.join(", ")}`);
  return given(options, ...OPTIONS);
}

/** `tool_name` as `toolName`. */
export function camel(name: string): string {
  return name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());
}
