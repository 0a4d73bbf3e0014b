/**
 * The events of a run: one record per chunk type, told apart by `type`.
 *
 *     for await (const chunk of agent.stream("Hello")) {
 *       if (chunk.type === "text-delta") process.stdout.write(chunk.text);
 *     }
 *
 * Every record has what a {@link ChunkHeader} has and the fields of its own type. JSON values are {@link Json}.
 */

import type { ChunkHeader, PathElement } from "./chunk-base.js";
import type { FinishReason, PendingCallKind, StopCause } from "./enums.js";
import type { Json } from "./json.js";
import type { RunError, Tripwire, Usage } from "./outcomes.js";
import type {
  ToolCallApprovalChunk,
  ToolCallChunk,
  ToolCallDeltaChunk,
  ToolCallInputStreamingEndChunk,
  ToolCallInputStreamingStartChunk,
  ToolCallResolvedChunk,
  ToolCallSuspendedChunk,
  ToolErrorChunk,
  ToolOutputChunk,
  ToolOutputDeniedChunk,
  ToolResultChunk,
} from "./tool-chunks.js";

/** The run began. First chunk of a run, never repeated on a resume. */
export interface StartChunk extends ChunkHeader {
  readonly type: "start";
  readonly agentId: string;
  readonly messageId: string;
}

/** A model call begins. With a higher `attempt`, all earlier chunks of the step are void. */
export interface StepStartChunk extends ChunkHeader {
  readonly type: "step-start";
  readonly messageId: string;
  readonly model: string;
  readonly warnings: readonly string[];
}

interface Boundary extends ChunkHeader {
  readonly id: string;
  /** What the provider attached. */
  readonly providerMetadata: Json | undefined;
}

/** A text begins. */
export interface TextStartChunk extends Boundary {
  readonly type: "text-start";
}

/** A piece of a text. */
export interface TextDeltaChunk extends ChunkHeader {
  readonly type: "text-delta";
  readonly id: string;
  readonly text: string;
}

/** A text is complete. */
export interface TextEndChunk extends Boundary {
  readonly type: "text-end";
}

/** Thinking begins. */
export interface ReasoningStartChunk extends Boundary {
  readonly type: "reasoning-start";
}

/** A piece of thinking. */
export interface ReasoningDeltaChunk extends ChunkHeader {
  readonly type: "reasoning-delta";
  readonly id: string;
  readonly text: string;
}

/** Thinking is complete. */
export interface ReasoningEndChunk extends Boundary {
  readonly type: "reasoning-end";
}

/** The provider's signature over the thinking. */
export interface ReasoningSignatureChunk extends ChunkHeader {
  readonly type: "reasoning-signature";
  readonly id: string;
  readonly signature: string;
}

/** Thinking that the provider encrypted. */
export interface RedactedReasoningChunk extends ChunkHeader {
  readonly type: "redacted-reasoning";
  readonly id: string;
  readonly data: string;
}

/** Something the model cites. */
export interface SourceChunk extends Boundary {
  readonly type: "source";
  readonly url: string;
  readonly title: string;
}

/** A file the model made: its `data`, or the `url` when the provider gave only that. */
export interface FileChunk extends ChunkHeader {
  readonly type: "file";
  readonly mediaType: string;
  readonly data: Uint8Array;
  readonly url: string;
}

interface WithObject extends ChunkHeader {
  readonly object: Json | undefined;
  /** The second model that makes it; empty where the agent's own model does. */
  readonly structuringModel: string;
}

/** A partial structured output, not validated. It replaces the one before it. */
export interface ObjectChunk extends WithObject {
  readonly type: "object";
}

/** The validated structured output. */
export interface ObjectResultChunk extends WithObject {
  readonly type: "object-result";
  readonly isFallback: boolean;
}

/** One completion check: the scorer's name, its score (`undefined` where it could not be made), whether it passed. */
export interface CheckResult {
  readonly scorer: string;
  readonly score: number | undefined;
  readonly passed: boolean;
  readonly reason: string;
}

/** The outcome of a completion check. */
export interface IsTaskCompleteChunk extends ChunkHeader {
  readonly type: "is-task-complete";
  readonly iteration: number;
  readonly passed: boolean;
  readonly results: readonly CheckResult[];
  readonly timedOut: boolean;
  readonly reason: string;
  readonly maxIterationReached: boolean;
  readonly suppressFeedback: boolean;
  /** Whether the run ends with the step, whatever the outcome. */
  readonly endsRun: boolean;
}

/** A processor stopped the run or a step. */
export interface TripwireChunk extends ChunkHeader {
  readonly type: "tripwire";
  readonly tripwire: Tripwire;
}

/** A step ended. `usage` is the step's, `totalUsage` the run's so far. */
export interface StepFinishChunk extends ChunkHeader {
  readonly type: "step-finish";
  readonly messageId: string;
  readonly reason: FinishReason | undefined;
  readonly isContinued: boolean;
  readonly usage: Usage;
  readonly totalUsage: Usage;
  readonly rawReason: string;
  readonly responseId: string;
  readonly responseModel: string;
  readonly warnings: readonly string[];
}

/** One waiting call of a parked run, in short. Each was announced in full by its own chunk. */
export interface OpenCall {
  readonly pendingCallId: string;
  readonly toolCallId: string;
  readonly toolName: string;
  readonly kind: PendingCallKind;
  readonly agentPath: readonly PathElement[];
}

/** The run parked (`reason` is `"suspended"`) or ended. The last chunk before a stream ends. */
export interface FinishChunk extends ChunkHeader {
  readonly type: "finish";
  readonly reason: FinishReason | undefined;
  readonly stopCause: StopCause | undefined;
  readonly usage: Usage;
  readonly openCalls: readonly OpenCall[];
}

/** The run failed; `finish` follows. */
export interface ErrorChunk extends ChunkHeader {
  readonly type: "error";
  readonly error: RunError;
}

/** The run was cancelled; `finish` follows. */
export interface AbortChunk extends ChunkHeader {
  readonly type: "abort";
  readonly reason: string;
}

/** What the provider sent, with `includeRawChunks`. */
export interface RawChunk extends ChunkHeader {
  readonly type: "raw";
  readonly value: Json | undefined;
}

/** A tool's own event, `data-NAME`. */
export interface CustomChunk extends ChunkHeader {
  readonly type: "custom";
  readonly name: string;
  readonly data: Json | undefined;
  /** Events with the same id replace one another in a display. */
  readonly id: string;
  /** Whether a display need not keep it. */
  readonly transient: boolean;
}

/** Any chunk; `chunk.type` tells which. */
export type Chunk =
  | StartChunk
  | StepStartChunk
  | TextStartChunk
  | TextDeltaChunk
  | TextEndChunk
  | ReasoningStartChunk
  | ReasoningDeltaChunk
  | ReasoningEndChunk
  | ReasoningSignatureChunk
  | RedactedReasoningChunk
  | ToolCallInputStreamingStartChunk
  | ToolCallDeltaChunk
  | ToolCallInputStreamingEndChunk
  | ToolCallChunk
  | ToolResultChunk
  | ToolErrorChunk
  | ToolOutputChunk
  | ToolOutputDeniedChunk
  | ToolCallApprovalChunk
  | ToolCallSuspendedChunk
  | ToolCallResolvedChunk
  | SourceChunk
  | FileChunk
  | ObjectChunk
  | ObjectResultChunk
  | IsTaskCompleteChunk
  | TripwireChunk
  | StepFinishChunk
  | FinishChunk
  | ErrorChunk
  | AbortChunk
  | RawChunk
  | CustomChunk;
