/** Small records that chunks, results and runs share, and how they are read from the wire. */

import { create } from "@bufbuild/protobuf";
import { type Duration, DurationSchema, type Timestamp } from "@bufbuild/protobuf/wkt";
import type { Json as JsonMessage } from "./gen/entracte/v1/json_pb.js";
import { JsonSchema } from "./gen/entracte/v1/json_pb.js";
import type * as pb from "./gen/entracte/v1/result_pb.js";
import { Json } from "./json.js";

/** Tokens. Input and output include the cached and the reasoning ones. */
export interface Usage {
  readonly inputTokens: number;
  readonly outputTokens: number;
  readonly totalTokens: number;
  readonly reasoningTokens: number;
  readonly cachedInputTokens: number;
}

/** Why a run failed. */
export interface RunError {
  /**
   * One of `provider_error`, `cut` (the model's stream broke off), `stall`, `content_filter`, `empty_stream`,
   * `connection`, `timeout`, `tool_limit`, `expired` (nobody decided a call in time), `structured_output_invalid`
   * (`raw` lists the violations), `structured_output_truncated`, `internal`.
   */
  readonly kind: string;
  readonly message: string;
  /** The provider's HTTP status, 0 where there was none. */
  readonly providerStatus: number;
  /** Whether the same request may well succeed later. */
  readonly retryable: boolean;
  /** How long the provider asked to wait. */
  readonly retryAfterMs: number | undefined;
  readonly providerCode: string;
  /** What the provider sent. */
  readonly raw: Json | undefined;
}

/** What a processor said when it stopped something. */
export interface Tripwire {
  readonly reason: string;
  readonly retry: boolean;
  readonly processorId: string;
  /** What the processor attached, an object. */
  readonly metadata: Json | undefined;
}

/** Reads a JSON value, `undefined` where the field is absent. */
export function jsonOf(message: JsonMessage | undefined): Json | undefined {
  return message && new Json(message.text);
}

/** Writes a JSON value. */
export function toJson(value: unknown): JsonMessage {
  return create(JsonSchema, { text: Json.of(value).text });
}

/** Writes a JSON value that may be absent. */
export function toOptionalJson(value: unknown): JsonMessage | undefined {
  return value === undefined ? undefined : toJson(value);
}

/**
 * A 64-bit integer as a number. What the contract counts (chunks, tokens, messages) stays far below 2^53; throws
 * `RangeError` for a number that does not, rather than round it.
 */
export function countOf(value: bigint): number {
  const count = Number(value);
  if (!Number.isSafeInteger(count)) throw new RangeError(`${value} is beyond what a number can hold`);
  return count;
}

/** A timestamp, cut to milliseconds; `undefined` where the field is absent. */
export function timeOf(message: Timestamp | undefined): Date | undefined {
  return message && new Date(Number(message.seconds) * 1000 + Math.floor(message.nanos / 1e6));
}

/** A duration in milliseconds. */
export function millisOf(message: Duration): number {
  return Number(message.seconds) * 1000 + message.nanos / 1e6;
}

/** Writes a duration given in milliseconds. Throws `TypeError` for what is none. */
export function toDuration(millis: number, what: string): Duration {
  if (!Number.isFinite(millis) || millis < 0) {
    throw new TypeError(`${what} is a number of milliseconds, not ${millis}`);
  }
  const nanos = BigInt(Math.round(millis * 1e6));
  return create(DurationSchema, { seconds: nanos / 1_000_000_000n, nanos: Number(nanos % 1_000_000_000n) });
}

/** Reads a usage; none is zero tokens. */
export function usageOf(message: pb.Usage | undefined): Usage {
  return {
    inputTokens: countOf(message?.inputTokens ?? 0n),
    outputTokens: countOf(message?.outputTokens ?? 0n),
    totalTokens: countOf(message?.totalTokens ?? 0n),
    reasoningTokens: countOf(message?.reasoningTokens ?? 0n),
    cachedInputTokens: countOf(message?.cachedInputTokens ?? 0n),
  };
}

/** Reads an error of a run. */
export function runErrorOf(message: pb.RunError): RunError {
  return {
    kind: message.kind,
    message: message.message,
    providerStatus: message.providerStatus,
    retryable: message.retryable,
    retryAfterMs: message.retryAfter && millisOf(message.retryAfter),
    providerCode: message.providerCode,
    raw: jsonOf(message.raw),
  };
}

/** Reads a tripwire. */
export function tripwireOf(message: pb.Tripwire): Tripwire {
  return {
    reason: message.reason,
    retry: message.retry,
    processorId: message.processorId,
    metadata: jsonOf(message.metadata),
  };
}
