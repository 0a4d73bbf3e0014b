/**
 * What runs come to: results, steps, pending calls, decisions, runs.
 *
 * `agent.generate`, a stream's `result()`, a decision and `client.runs.get` give the same {@link GenerateResult}.
 */

import type { PathElement } from "./chunk-base.js";
import type {
  DecisionVerb,
  ExpiryAction,
  FinishReason,
  FollowUpKind,
  FollowUpState,
  PendingCallKind,
  PendingCallState,
  RunState,
  StopCause,
} from "./enums.js";
import type { Json } from "./json.js";
import type { Message, ReasoningPart } from "./messages.js";
import type { RunError, Tripwire, Usage } from "./outcomes.js";
import type { ToolCallChunk, ToolResultChunk } from "./tool-chunks.js";

/** A person's hold on a pending call: until `expireTime` others cannot decide. */
export interface Claim {
  readonly principal: string;
  readonly expireTime: Date | undefined;
}

/** What decided a pending call: how, by whom (`system` for an expiry), when, and on what. */
export interface Decision {
  readonly decisionId: string;
  readonly pendingCallId: string;
  readonly runId: string;
  readonly toolCallId: string;
  readonly toolName: string;
  readonly verb: DecisionVerb;
  readonly principal: string;
  readonly onBehalfOf: string;
  readonly decideTime: Date | undefined;
  /** The arguments that were shown. */
  readonly args: Json | undefined;
  /** The arguments as edited by the approver. */
  readonly editedArgs: Json | undefined;
  /** The answer, or the client's result; an error's text where `isError`. */
  readonly data: Json | undefined;
  readonly isError: boolean;
  readonly reason: string;
  /** Why it was declined, as data. */
  readonly reasonData: Json | undefined;
  readonly comment: string;
  readonly requestId: string;
  readonly argsDigest: Uint8Array;
}

/**
 * A tool call that waits. Its id belongs to this round of waiting and is never used again, so a decision can only hit
 * the call that was shown.
 */
export interface PendingCall {
  readonly pendingCallId: string;
  readonly runId: string;
  readonly toolCallId: string;
  readonly agentId: string;
  readonly agentPath: readonly PathElement[];
  /**
   * Tells which verbs fit: `approval` takes `approve`; `suspension` takes `resume`; `client-tool` takes
   * `submitToolResult`; `recovery` (the server stopped while the tool ran) takes `submitToolResult`, or `approve` to
   * run it again. Each can be declined.
   */
  readonly kind: PendingCallKind;
  readonly toolName: string;
  readonly toolDescription: string;
  /** The validated arguments, an object. Its text is what is digested and executed. */
  readonly args: Json | undefined;
  readonly argsDigest: Uint8Array;
  /** What the tool asked. */
  readonly suspendPayload: Json | undefined;
  /** The JSON Schema the answer must fit; `undefined` where any answer will do. */
  readonly resumeSchema: Json | undefined;
  readonly createTime: Date | undefined;
  /** The last moment at which it can be decided; `undefined`: it waits for ever. */
  readonly expireTime: Date | undefined;
  readonly state: PendingCallState;
  readonly claim: Claim | undefined;
  readonly threadId: string;
  readonly resourceId: string;
  readonly round: number;
  readonly decision: Decision | undefined;
  /** What the server does after `expireTime`. */
  readonly onExpiry: ExpiryAction | undefined;
  /** The answer that is given then, where there is one. */
  readonly defaultAnswer: Json | undefined;
}

/** A request to a model. */
export interface RequestInfo {
  /** What was sent, with `includeRequestBody`. */
  readonly body: Json | undefined;
}

/** A limit of the provider, as it was when an answer began; `undefined` where the provider does not say. */
export interface RateLimit {
  readonly limit: number | undefined;
  readonly remaining: number | undefined;
  readonly resetMs: number | undefined;
}

/** An answer of a model. */
export interface ResponseInfo {
  readonly id: string;
  readonly timestamp: Date | undefined;
  readonly modelId: string;
  readonly headers: Readonly<Record<string, string>>;
  /** What the run added to the conversation. */
  readonly messages: readonly Message[];
  /** The same with what processors attached. */
  readonly uiMessages: readonly Message[];
  readonly requestLimit: RateLimit | undefined;
  readonly tokenLimit: RateLimit | undefined;
}

/** One step of a run. */
export interface StepResult {
  readonly step: number;
  readonly text: string;
  readonly toolCalls: readonly ToolCallChunk[];
  readonly toolResults: readonly ToolResultChunk[];
  readonly finishReason: FinishReason | undefined;
  readonly usage: Usage;
  readonly request: RequestInfo | undefined;
  readonly response: ResponseInfo | undefined;
  readonly reasoningText: string;
  readonly tripwire: Tripwire | undefined;
  /** Whether a completion check failed: then its text is not the result's. */
  readonly isDraft: boolean;
}

/** Something the model cited. */
export interface Source {
  readonly id: string;
  readonly url: string;
  readonly title: string;
  readonly providerMetadata: Json | undefined;
}

/** A file the model made: its `data`, or the `url` when the provider gave only that. */
export interface File {
  readonly mediaType: string;
  readonly data: Uint8Array;
  readonly url: string;
}

/** The first waiting call of a parked run; `GenerateResult.pendingCalls` has all of them. */
export interface SuspendPayload {
  readonly toolCallId: string;
  readonly toolName: string;
  readonly args: Json | undefined;
  readonly suspendPayload: Json | undefined;
  readonly resumeSchema: Json | undefined;
}

/** What scorers see of a run. */
export interface ScoringData {
  readonly input: Json | undefined;
  readonly output: Json | undefined;
}

/**
 * What a run has come to: its final result, or what there is so far when it is parked (`finishReason` is
 * `"suspended"`) or was cancelled (`"aborted"`). A run that failed is a result too: `"error"`, and `error` says why.
 */
export interface GenerateResult {
  readonly runId: string;
  readonly text: string;
  /** The validated structured output. */
  readonly object: Json | undefined;
  readonly toolCalls: readonly ToolCallChunk[];
  readonly toolResults: readonly ToolResultChunk[];
  /** Tokens of the whole run. */
  readonly usage: Usage;
  readonly steps: readonly StepResult[];
  readonly finishReason: FinishReason | undefined;
  readonly stopCause: StopCause | undefined;
  readonly response: ResponseInfo;
  readonly request: RequestInfo;
  readonly warnings: readonly string[];
  /** What the provider attached to the last answer. */
  readonly providerMetadata: Json | undefined;
  readonly reasoning: readonly ReasoningPart[];
  readonly reasoningText: string;
  readonly sources: readonly Source[];
  readonly files: readonly File[];
  readonly suspendPayload: SuspendPayload | undefined;
  readonly pendingCalls: readonly PendingCall[];
  readonly traceId: string;
  readonly spanId: string;
  readonly messages: readonly Message[];
  readonly rememberedMessages: readonly Message[];
  readonly error: RunError | undefined;
  readonly tripwire: Tripwire | undefined;
  readonly scoringData: ScoringData | undefined;
  readonly usedFallbackValue: boolean;
  /** Why a message of the thread did not answer a waiting call, with `autoResumeSuspendedTools`. */
  readonly autoResumeError: string;
}

/** Something that is done about a run after its end. */
export interface FollowUp {
  readonly kind: FollowUpKind;
  readonly name: string;
  /** `skipped`: the run was not among the share that is scored, or its thread had a title by then. */
  readonly state: FollowUpState;
  readonly scorer: string;
  /** From 0 to 1, once it succeeded. */
  readonly score: number | undefined;
  readonly reason: string;
  /** Why it failed, or why the last attempt did while it waits. */
  readonly error: string;
  readonly attempts: number;
  readonly samplingRatio: number | undefined;
  readonly usage: Usage;
  /** How long the last attempt took. */
  readonly durationMs: number;
  readonly createTime: Date | undefined;
  readonly finishTime: Date | undefined;
  /** The title that the run's thread was given. */
  readonly title: string | undefined;
}

/** One execution of an agent, over any number of suspensions. */
export interface Run {
  readonly runId: string;
  readonly agentId: string;
  readonly state: RunState;
  /** Where to follow it from with `client.runs.watch`. */
  readonly lastSequence: number;
  readonly step: number;
  readonly createTime: Date | undefined;
  readonly updateTime: Date | undefined;
  readonly finishTime: Date | undefined;
  readonly finishReason: FinishReason | undefined;
  readonly stopCause: StopCause | undefined;
  readonly usage: Usage;
  readonly error: RunError | undefined;
  readonly principal: string;
  readonly threadId: string;
  readonly resourceId: string;
  readonly rootRunId: string;
  readonly parentRunId: string;
  readonly pendingCalls: readonly PendingCall[];
  /** The values given as `requestContext`. */
  readonly requestContext: Json | undefined;
  /** What it has come to, where that was asked for (`client.runs.get`). */
  readonly result: GenerateResult | undefined;
  readonly followUps: readonly FollowUp[];
}

/** A page of a list. `nextPageToken` is empty on the last one. */
export interface Page<T> {
  readonly items: readonly T[];
  readonly nextPageToken: string;
}

/** A change of the open calls. */
export interface InboxChange {
  /** Calls that opened or whose claim changed. */
  readonly opened: readonly PendingCall[];
  /** Ids of calls that are no longer open. */
  readonly closed: readonly string[];
  /** True once, when all calls open at the start were sent. */
  readonly snapshotComplete: boolean;
}
