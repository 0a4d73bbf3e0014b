/**
 * The TypeScript SDK of Entracte: run LLM agents that stop and wait for people, over gRPC.
 *
 *     import { Client } from "@entracte/client";
 *
 *     const client = new Client("localhost:50051");
 *     for await (const chunk of client.agent("support").stream("Refund order 7")) {
 *       if (chunk.type === "text-delta") process.stdout.write(chunk.text);
 *     }
 *
 * Start with {@link Client}, {@link AgentClient}, {@link RunStream} and {@link GenerateResult}. What is not exported
 * here is private.
 *
 * @module
 */

export { AgentClient, type ApproveOptions, type DeclineOptions } from "./agent.js";
export type { Callback, Callbacks } from "./callbacks.js";
export type { ChunkHeader, PathElement } from "./chunk-base.js";
export type * from "./chunks.js";
export { Client } from "./client.js";
export type { ClientTool, ClientToolContext } from "./client-tools.js";
export type { ClientOptions } from "./connection.js";
export type { CallLike } from "./decisions.js";
export type {
  ChunkSource,
  DecisionVerb,
  ExpiryAction,
  FinishReason,
  FollowUpKind,
  FollowUpState,
  PendingCallKind,
  PendingCallState,
  Role,
  RunState,
  StopCause,
  ToolInvocationState,
} from "./enums.js";
export * from "./errors.js";
export { Fold } from "./fold.js";
export {
  type ClaimOptions,
  type DecisionFilter,
  InboxClient,
  type InboxFilter,
  type InboxWatchOptions,
} from "./inbox.js";
export { Json, type JsonValue, parse, stringify } from "./json.js";
export * from "./messages.js";
export type * from "./options.js";
export type { RunError, Tripwire, Usage } from "./outcomes.js";
export type * from "./results.js";
export {
  type CancelOptions,
  type DeleteRunOptions,
  type RunFilter,
  RunsClient,
  type WatchOptions,
} from "./runs.js";
export { RunStream } from "./stream.js";
export type * from "./thread-records.js";
export {
  type ChangeOptions,
  type CreateThreadOptions,
  type MemoryOwner,
  type ThreadFilter,
  type ThreadMessageFilter,
  ThreadsClient,
  type UpdateThreadOptions,
  type UpdateWorkingMemoryOptions,
} from "./threads.js";
export type * from "./tool-chunks.js";
export { VERSION } from "./version.js";
