/** The events around tool calls; see `chunks.ts`. */

import type { ChunkHeader } from "./chunk-base.js";
import type { DecisionVerb, PendingCallKind } from "./enums.js";
import type { Json } from "./json.js";

/** The arguments of a tool call begin to arrive. */
export interface ToolCallInputStreamingStartChunk extends ChunkHeader {
  readonly type: "tool-call-input-streaming-start";
  readonly toolCallId: string;
  readonly toolName: string;
}

/** A piece of the arguments' text, not JSON by itself. */
export interface ToolCallDeltaChunk extends ChunkHeader {
  readonly type: "tool-call-delta";
  readonly toolCallId: string;
  readonly toolName: string;
  readonly argsTextDelta: string;
}

/** The arguments are complete. */
export interface ToolCallInputStreamingEndChunk extends ChunkHeader {
  readonly type: "tool-call-input-streaming-end";
  readonly toolCallId: string;
}

interface WithArgs extends ChunkHeader {
  readonly toolCallId: string;
  readonly toolName: string;
  /** The arguments, an object; `undefined` where there are none. */
  readonly args: Json | undefined;
}

/** A complete tool call. */
export interface ToolCallChunk extends WithArgs {
  readonly type: "tool-call";
  /** What the model sent when that was not a JSON object; such a call is not executed. */
  readonly invalidArgs: string | undefined;
  readonly providerExecuted: boolean;
  /** What the provider attached. */
  readonly providerMetadata: Json | undefined;
}

/** A tool returned. */
export interface ToolResultChunk extends WithArgs {
  readonly type: "tool-result";
  /** What it returned; `null` where it returned nothing. */
  readonly result: Json;
  readonly providerExecuted: boolean;
}

/** A tool call failed; the model is told `message` and goes on. */
export interface ToolErrorChunk extends WithArgs {
  readonly type: "tool-error";
  readonly message: string;
  /**
   * The kind of failure: `invalid-args`, `unknown-tool`, `exception`, `timeout`, `not-executed`, `invalid-result`,
   * `recovery`, `cancelled`, `expired`, `hook` or `delegation`.
   */
  readonly code: string;
}

/** A running tool reports. */
export interface ToolOutputChunk extends ChunkHeader {
  readonly type: "tool-output";
  readonly toolCallId: string;
  readonly toolName: string;
  readonly output: Json | undefined;
}

/** A call was declined; its tool was not entered. */
export interface ToolOutputDeniedChunk extends WithArgs {
  readonly type: "tool-output-denied";
  /** What the model is told. */
  readonly reason: string;
  /** Why, as data. */
  readonly reasonData: Json | undefined;
}

interface Waiting extends WithArgs {
  readonly pendingCallId: string;
  /** The digest of tool name and arguments. */
  readonly argsDigest: Uint8Array;
  /** The JSON Schema of the answer. */
  readonly resumeSchema: Json | undefined;
  /** The last moment at which it can be decided; `undefined`: it waits for ever. */
  readonly expireTime: Date | undefined;
}

/** A call waits for approval. `agent.approve` and `agent.decline` take this chunk. */
export interface ToolCallApprovalChunk extends Waiting {
  readonly type: "tool-call-approval";
  readonly kind: "approval";
}

/** A call waits for something else. `agent.resume`, `agent.submitToolResult` and `agent.decline` take this chunk. */
export interface ToolCallSuspendedChunk extends Waiting {
  readonly type: "tool-call-suspended";
  readonly kind: PendingCallKind;
  /** What the tool asks. */
  readonly suspendPayload: Json | undefined;
}

/** A waiting call was decided, by whom and how. */
export interface ToolCallResolvedChunk extends ChunkHeader {
  readonly type: "tool-call-resolved";
  readonly pendingCallId: string;
  readonly toolCallId: string;
  readonly toolName: string;
  readonly verb: DecisionVerb;
  /** Who decided, as authenticated; `system` for an expiry. */
  readonly principal: string;
  readonly decisionId: string;
  /** The arguments as the reviewer edited them. */
  readonly editedArgs: Json | undefined;
}
