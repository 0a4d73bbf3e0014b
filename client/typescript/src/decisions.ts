/** Decisions: naming a call, and what the requests of the four verbs have in common. */

import type { CallOptions as RpcOptions } from "@connectrpc/connect";
import type { Chunk, OpenCall } from "./chunks.js";
import { type Connection, spanHeaders } from "./connection.js";
import { EntracteError } from "./errors.js";
import { Follower } from "./follow.js";
import type { GenerateResult as ResultMessage } from "./gen/entracte/v1/generate_result_pb.js";
import type { Decision as DecisionMessage } from "./gen/entracte/v1/pending_call_pb.js";
import type { Run as RunMessage } from "./gen/entracte/v1/run_pb.js";
import { newId } from "./ids.js";
import type { DecisionOptions } from "./options.js";
import { only } from "./options-codec.js";
import { countOf } from "./outcomes.js";
import { decisionOf } from "./result-codec.js";
import type { PendingCall } from "./results.js";
import { Deadline } from "./retry.js";
import type { Beginning } from "./stream.js";
import type { ToolCallApprovalChunk, ToolCallSuspendedChunk } from "./tool-chunks.js";

/**
 * A waiting call: from a result or the inbox, the chunk that announced it, or its pending call id. `undefined` where
 * the options name it by `runId`.
 */
export type CallLike =
  | PendingCall
  | ToolCallApprovalChunk
  | ToolCallSuspendedChunk
  | OpenCall
  | string
  | undefined;

/** What the answers to decisions have in common. */
export interface DecisionResponse {
  readonly run?: RunMessage | undefined;
  readonly decision?: DecisionMessage | undefined;
  readonly result?: ResultMessage | undefined;
  readonly replayed: boolean;
}

/** A decision that is ready to be sent, with or without waiting for what comes of it. */
export type Decide = (
  wait: boolean,
) => (request: undefined, options?: RpcOptions) => Promise<DecisionResponse>;

const NAMES = [
  "runId",
  "toolCallId",
  "requestId",
  "onBehalfOf",
  "comment",
  "clientTools",
  "traceparent",
  "timeoutMs",
  "signal",
  "onChunk",
  "onStepFinish",
  "onFinish",
  "onError",
  "onAbort",
  "onTitleGenerated",
];

/** The fields that all decisions have. Throws `TypeError` when nothing names the call. */
export function commonFields(call: CallLike, options: DecisionOptions) {
  only(options, NAMES, "a decision has");
  return {
    call: callRef(call, options),
    requestId: options.requestId || newId(),
    onBehalfOf: options.onBehalfOf ?? "",
    comment: options.comment ?? "",
  };
}

function callRef(call: CallLike, { runId, toolCallId }: DecisionOptions) {
  const pendingCallId = typeof call === "string" ? call : call?.pendingCallId;
  if (pendingCallId) return { pendingCallId };
  if (!runId) throw new TypeError("name the call: give the pending call, its id, or runId and toolCallId");
  return { runId, toolCallId: toolCallId ?? "" };
}

/** The digest of what was shown, where it was shown. */
export function argsDigest(call: CallLike): Uint8Array {
  return typeof call === "object" && "argsDigest" in call ? call.argsDigest : new Uint8Array();
}

/** The run of a call, empty where only the server knows it. */
export function runIdOf(call: CallLike, options: DecisionOptions): string {
  return typeof call === "object" && "runId" in call ? call.runId : (options.runId ?? "");
}

/** Begins a stream with a decision: makes it, and follows the run from there. */
export async function decideAndFollow(
  connection: Connection,
  decide: Decide,
  options: DecisionOptions,
  signal: AbortSignal | undefined,
): Promise<Beginning> {
  const deadline = new Deadline(options.timeoutMs);
  const timeoutMs = Math.min(deadline.remaining() ?? connection.timeoutMs, connection.timeoutMs);
  const within = { timeoutMs, signal, headers: spanHeaders(options) };
  const response = await connection.call(decide(false), undefined, within);
  if (response.run === undefined || response.decision === undefined) {
    throw new EntracteError("the server gave no decision", { code: "INTERNAL" });
  }
  const decision = decisionOf(response.decision);
  const { runId, lastSequence } = response.run;
  const follower = new Follower(connection, deadline, {
    runId,
    // When it was replayed, the answer to the first request was lost, and the run may have gone on since: what came of
    // the decision begins where the decision stands in the log.
    position: response.replayed ? 0 : countOf(lastSequence),
    skip: response.replayed ? isBefore(decision.decisionId) : undefined,
  });
  return { follower, decision };
}

function isBefore(decisionId: string): (chunk: Chunk) => boolean {
  return (chunk) => chunk.type !== "tool-call-resolved" || chunk.decisionId !== decisionId;
}
