/** From statuses of the transport to errors. */

import { Code, ConnectError } from "@connectrpc/connect";
import * as errors from "./errors.js";
import { EntracteError, type FieldViolation, type StatusCode } from "./errors.js";
import { BadRequestSchema, ErrorInfoSchema, RetryInfoSchema } from "./gen/google/rpc/error_details_pb.js";
import { millisOf } from "./outcomes.js";

const DOMAIN = "entracte.dev";

/** The header that tells a run's id as soon as the run is stored. */
export const RUN_ID_KEY = "entracte-run-id";

type ErrorClass = typeof EntracteError;

const BY_NAME = new Map<string, ErrorClass>(
  Object.values(errors)
    .filter((value): value is ErrorClass => value === EntracteError || isBelow(value, EntracteError))
    .map((cls) => [cls.name, cls]),
);
const BY_CODE = new Map<StatusCode, ErrorClass>(
  [...BY_NAME.values()]
    .filter((cls) => Object.getPrototypeOf(cls) === EntracteError && cls !== errors.StreamError)
    .map((cls) => [cls.code, cls]),
);

/**
 * The error for a call that failed. What is an error of the SDK already stays what it is, and what has nothing to do
 * with the call is thrown on.
 */
export function errorOf(failure: unknown): EntracteError {
  if (failure instanceof EntracteError) return failure;
  if (!(failure instanceof ConnectError)) throw failure;
  const [info] = failure.findDetails(ErrorInfoSchema);
  const reason = info?.domain === DOMAIN ? info.reason : "";
  const code = !reason && isBroken(failure) ? "UNAVAILABLE" : nameOf(failure.code);
  const violations: FieldViolation[] = failure
    .findDetails(BadRequestSchema)
    .flatMap((detail) => detail.fieldViolations)
    .map(({ field, description }) => ({ field, description }));
  const delay = failure.findDetails(RetryInfoSchema)[0]?.retryDelay;
  return new (classOf(code, reason))(failure.rawMessage, {
    code,
    reason,
    metadata: { ...info?.metadata },
    violations,
    retryAfterMs: delay && millisOf(delay),
    cause: failure,
  });
}

/** Whether a call that failed had been taken by the server, which then told the run's id. */
export function isTaken(failure: unknown): boolean {
  return failure instanceof ConnectError && failure.metadata.has(RUN_ID_KEY);
}

/**
 * Whether the connection failed or broke, or was about to as the server stopped: then the transport says one of these,
 * or there is an error of Node.js below, which has a text for a code.
 */
function isBroken(failure: ConnectError): boolean {
  if (failure.code === Code.Aborted || failure.code === Code.Canceled) return true;
  let error: unknown = failure.cause;
  while (error instanceof Error) {
    if ("code" in error && typeof error.code === "string") return true;
    error = error.cause;
  }
  return false;
}

function classOf(code: StatusCode, reason: string): ErrorClass {
  // Every status of the server has a reason: one without was made up by the transport.
  if (!reason && code === "UNAVAILABLE") return errors.ServerUnreachable;
  const base = BY_CODE.get(code) ?? EntracteError;
  const named = BY_NAME.get(camel(reason)) ?? base;
  return named === base || isBelow(named, base) ? named : base;
}

function isBelow(value: unknown, base: ErrorClass): boolean {
  return typeof value === "function" && value.prototype instanceof base;
}

function camel(reason: string): string {
  const words = reason.toLowerCase().split("_");
  return words.map((word) => word.charAt(0).toUpperCase() + word.slice(1)).join("");
}

function nameOf(code: Code): StatusCode {
  if (code === Code.Canceled) return "CANCELLED";
  return Code[code].replace(/(?<=[a-z])(?=[A-Z])/g, "_").toUpperCase() as StatusCode;
}
