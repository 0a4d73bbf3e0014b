/** Chunks from the wire. */

import type { ChunkHeader, PathElement } from "./chunk-base.js";
import type { Chunk, FinishChunk, IsTaskCompleteChunk, StepFinishChunk } from "./chunks.js";
import { FINISH_REASONS, KINDS, SOURCES, STOP_CAUSES, VERBS } from "./enums.js";
import type * as pb from "./gen/entracte/v1/chunk_pb.js";
import { Json } from "./json.js";
import { countOf, jsonOf, runErrorOf, timeOf, tripwireOf, usageOf } from "./outcomes.js";
import type { ToolCallChunk, ToolResultChunk } from "./tool-chunks.js";

/** Reads a path of delegations. */
export function pathOf(elements: readonly pb.PathElement[]): PathElement[] {
  return elements.map(({ agentId, toolCallId }) => ({ agentId, toolCallId }));
}

/** The tool calls among chunks from the wire. */
export function toolCallsOf(messages: readonly pb.Chunk[]): ToolCallChunk[] {
  return messages.map(chunkOf).filter((chunk) => chunk?.type === "tool-call");
}

/** The tool results among chunks from the wire. */
export function toolResultsOf(messages: readonly pb.Chunk[]): ToolResultChunk[] {
  return messages.map(chunkOf).filter((chunk) => chunk?.type === "tool-result");
}

/** Reads a chunk; `undefined` when this version does not know its payload. */
export function chunkOf(message: pb.Chunk): Chunk | undefined {
  if (message.payload.case === undefined) return undefined;
  const header: ChunkHeader = {
    runId: message.runId,
    sequence: countOf(message.sequence),
    emitTime: timeOf(message.emitTime),
    source: SOURCES.of(message.source),
    step: message.step,
    attempt: message.attempt,
    agentPath: pathOf(message.agentPath),
    ignorable: message.ignorable,
  };
  return talkOf(header, message.payload) ?? toolOf(header, message.payload) ?? endOf(header, message.payload);
}

type Payload = pb.Chunk["payload"];

/** What the model says. */
function talkOf(h: ChunkHeader, { case: name, value: p }: Payload): Chunk | undefined {
  switch (name) {
    case "start":
      return { ...h, type: "start", agentId: p.agentId, messageId: p.messageId };
    case "stepStart":
      return { ...h, type: "step-start", messageId: p.messageId, model: p.model, warnings: p.warnings };
    case "textStart":
      return { ...h, type: "text-start", ...boundaryOf(p) };
    case "textDelta":
      return { ...h, type: "text-delta", id: p.id, text: p.text };
    case "textEnd":
      return { ...h, type: "text-end", ...boundaryOf(p) };
    case "reasoningStart":
      return { ...h, type: "reasoning-start", ...boundaryOf(p) };
    case "reasoningDelta":
      return { ...h, type: "reasoning-delta", id: p.id, text: p.text };
    case "reasoningEnd":
      return { ...h, type: "reasoning-end", ...boundaryOf(p) };
    case "reasoningSignature":
      return { ...h, type: "reasoning-signature", id: p.id, signature: p.signature };
    case "redactedReasoning":
      return { ...h, type: "redacted-reasoning", id: p.id, data: p.data };
    case "sourceReference":
      return { ...h, type: "source", ...boundaryOf(p), url: p.url, title: p.title };
    case "file":
      return { ...h, type: "file", mediaType: p.mediaType, data: p.data, url: p.url };
    case "object":
      return { ...h, type: "object", object: jsonOf(p.object), structuringModel: p.structuringModel };
    case "objectResult":
      return {
        ...h,
        type: "object-result",
        object: jsonOf(p.object),
        structuringModel: p.structuringModel,
        isFallback: p.isFallback,
      };
    case "raw":
      return { ...h, type: "raw", value: jsonOf(p.value) };
    default:
      return undefined;
  }
}

/** What happens to tool calls. */
function toolOf(h: ChunkHeader, { case: name, value: p }: Payload): Chunk | undefined {
  switch (name) {
    case "toolCallInputStreamingStart":
      return {
        ...h,
        type: "tool-call-input-streaming-start",
        toolCallId: p.toolCallId,
        toolName: p.toolName,
      };
    case "toolCallDelta":
      return { ...h, type: "tool-call-delta", ...callOf(p), argsTextDelta: p.argsTextDelta };
    case "toolCallInputStreamingEnd":
      return { ...h, type: "tool-call-input-streaming-end", toolCallId: p.toolCallId };
    case "toolCall":
      return {
        ...h,
        type: "tool-call",
        ...callOf(p),
        args: jsonOf(p.args),
        invalidArgs: p.invalidArgs,
        providerExecuted: p.providerExecuted,
        providerMetadata: jsonOf(p.providerMetadata),
      };
    case "toolResult":
      return {
        ...h,
        type: "tool-result",
        ...callOf(p),
        args: jsonOf(p.args),
        result: jsonOf(p.result) ?? new Json("null"),
        providerExecuted: p.providerExecuted,
      };
    case "toolError":
      return {
        ...h,
        type: "tool-error",
        ...callOf(p),
        args: jsonOf(p.args),
        message: p.message,
        code: p.code,
      };
    case "toolOutput":
      return { ...h, type: "tool-output", ...callOf(p), output: jsonOf(p.output) };
    case "toolOutputDenied":
      return {
        ...h,
        type: "tool-output-denied",
        ...callOf(p),
        args: jsonOf(p.args),
        reason: p.reason,
        reasonData: jsonOf(p.reasonJson),
      };
    case "toolCallApproval":
      return { ...h, type: "tool-call-approval", kind: "approval", ...waitingOf(p) };
    case "toolCallSuspended":
      return {
        ...h,
        type: "tool-call-suspended",
        kind: KINDS.of(p.kind),
        ...waitingOf(p),
        suspendPayload: jsonOf(p.suspendPayload),
      };
    case "toolCallResolved":
      return {
        ...h,
        type: "tool-call-resolved",
        pendingCallId: p.pendingCallId,
        ...callOf(p),
        verb: VERBS.of(p.verb),
        principal: p.principal,
        decisionId: p.decisionId,
        editedArgs: jsonOf(p.editedArgs),
      };
    case "custom":
      return { ...h, type: "custom", name: p.name, data: jsonOf(p.data), id: p.id, transient: p.transient };
    default:
      return undefined;
  }
}

/** How steps and runs end. */
function endOf(h: ChunkHeader, { case: name, value: p }: Payload): Chunk | undefined {
  switch (name) {
    case "isTaskComplete":
      return taskCompleteOf(h, p);
    case "tripwire":
      return p.tripwire && { ...h, type: "tripwire", tripwire: tripwireOf(p.tripwire) };
    case "stepFinish":
      return stepFinishOf(h, p);
    case "finish":
      return finishOf(h, p);
    case "error":
      return p.error && { ...h, type: "error", error: runErrorOf(p.error) };
    case "abort":
      return { ...h, type: "abort", reason: p.reason };
    default:
      return undefined;
  }
}

function callOf({ toolCallId, toolName }: { toolCallId: string; toolName: string }) {
  return { toolCallId, toolName };
}

function boundaryOf(p: Pick<pb.TextStartChunk, "id" | "providerMetadata">) {
  return { id: p.id, providerMetadata: jsonOf(p.providerMetadata) };
}

function waitingOf(p: pb.ToolCallApprovalChunk | pb.ToolCallSuspendedChunk) {
  return {
    ...callOf(p),
    args: jsonOf(p.args),
    pendingCallId: p.pendingCallId,
    argsDigest: p.argsDigest,
    resumeSchema: jsonOf(p.resumeSchema),
    expireTime: timeOf(p.expireTime),
  };
}

function taskCompleteOf(h: ChunkHeader, p: pb.IsTaskCompleteChunk): IsTaskCompleteChunk {
  return {
    ...h,
    type: "is-task-complete",
    iteration: p.iteration,
    passed: p.passed,
    results: p.results.map(({ scorer, score, passed, reason }) => ({ scorer, score, passed, reason })),
    timedOut: p.timedOut,
    reason: p.reason,
    maxIterationReached: p.maxIterationReached,
    suppressFeedback: p.suppressFeedback,
    endsRun: p.endsRun,
  };
}

function stepFinishOf(h: ChunkHeader, p: pb.StepFinishChunk): StepFinishChunk {
  return {
    ...h,
    type: "step-finish",
    messageId: p.messageId,
    reason: FINISH_REASONS.ofSet(p.reason),
    isContinued: p.isContinued,
    usage: usageOf(p.usage),
    totalUsage: usageOf(p.totalUsage),
    rawReason: p.rawReason,
    responseId: p.responseId,
    responseModel: p.responseModel,
    warnings: p.warnings,
  };
}

function finishOf(h: ChunkHeader, p: pb.FinishChunk): FinishChunk {
  return {
    ...h,
    type: "finish",
    reason: FINISH_REASONS.ofSet(p.reason),
    stopCause: STOP_CAUSES.ofSet(p.stopCause),
    usage: usageOf(p.usage),
    openCalls: p.openCalls.map((call) => ({
      pendingCallId: call.pendingCallId,
      toolCallId: call.toolCallId,
      toolName: call.toolName,
      kind: KINDS.of(call.kind),
      agentPath: pathOf(call.agentPath),
    })),
  };
}
