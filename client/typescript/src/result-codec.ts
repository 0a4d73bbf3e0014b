/** Results, pending calls, decisions and runs from the wire. */

import { pathOf, toolCallsOf, toolResultsOf } from "./chunk-codec.js";
import {
  CALL_STATES,
  EXPIRY_ACTIONS,
  FINISH_REASONS,
  FOLLOW_UP_KINDS,
  FOLLOW_UP_STATES,
  KINDS,
  RUN_STATES,
  STOP_CAUSES,
  VERBS,
} from "./enums.js";
import type * as follow from "./gen/entracte/v1/follow_up_pb.js";
import type * as pb from "./gen/entracte/v1/generate_result_pb.js";
import type * as calls from "./gen/entracte/v1/pending_call_pb.js";
import type * as runs from "./gen/entracte/v1/run_pb.js";
import { messageOf, reasoningOf } from "./message-codec.js";
import { countOf, jsonOf, millisOf, runErrorOf, timeOf, tripwireOf, usageOf } from "./outcomes.js";
import type * as r from "./results.js";

/** Reads a decision. */
export function decisionOf(message: calls.Decision): r.Decision {
  return {
    decisionId: message.decisionId,
    pendingCallId: message.pendingCallId,
    runId: message.runId,
    toolCallId: message.toolCallId,
    toolName: message.toolName,
    verb: VERBS.of(message.verb),
    principal: message.principal,
    onBehalfOf: message.onBehalfOf,
    decideTime: timeOf(message.decideTime),
    args: jsonOf(message.args),
    editedArgs: jsonOf(message.editedArgs),
    data: jsonOf(message.data),
    isError: message.isError,
    reason: message.reason,
    reasonData: jsonOf(message.reasonJson),
    comment: message.comment,
    requestId: message.requestId,
    argsDigest: message.argsDigest,
  };
}

/** Reads a pending call. */
export function pendingCallOf(message: calls.PendingCall): r.PendingCall {
  const { claim, decision } = message;
  return {
    pendingCallId: message.pendingCallId,
    runId: message.runId,
    toolCallId: message.toolCallId,
    agentId: message.agentId,
    agentPath: pathOf(message.agentPath),
    kind: KINDS.of(message.kind),
    toolName: message.toolName,
    toolDescription: message.toolDescription,
    args: jsonOf(message.args),
    argsDigest: message.argsDigest,
    suspendPayload: jsonOf(message.suspendPayload),
    resumeSchema: jsonOf(message.resumeSchema),
    createTime: timeOf(message.createTime),
    expireTime: timeOf(message.expireTime),
    state: CALL_STATES.of(message.state),
    claim: claim && { principal: claim.principal, expireTime: timeOf(claim.expireTime) },
    threadId: message.threadId,
    resourceId: message.resourceId,
    round: message.round,
    decision: decision && decisionOf(decision),
    onExpiry: EXPIRY_ACTIONS.ofSet(message.onExpiry),
    defaultAnswer: jsonOf(message.defaultAnswer),
  };
}

/** Reads a result. */
export function resultOf(message: pb.GenerateResult, autoResumeError?: string): r.GenerateResult {
  const { suspendPayload, error, tripwire, scoringData } = message;
  return {
    runId: message.runId,
    text: message.text,
    object: jsonOf(message.object),
    toolCalls: toolCallsOf(message.toolCalls),
    toolResults: toolResultsOf(message.toolResults),
    usage: usageOf(message.usage),
    steps: message.steps.map(stepOf),
    finishReason: FINISH_REASONS.ofSet(message.finishReason),
    stopCause: STOP_CAUSES.ofSet(message.stopCause),
    response: responseOf(message.response),
    request: { body: jsonOf(message.request?.body) },
    warnings: message.warnings,
    providerMetadata: jsonOf(message.providerMetadata),
    reasoning: message.reasoning.map(reasoningOf),
    reasoningText: message.reasoningText,
    sources: message.sources.map(({ id, url, title, providerMetadata }) => ({
      id,
      url,
      title,
      providerMetadata: jsonOf(providerMetadata),
    })),
    files: message.files.map(({ mediaType, data, url }) => ({ mediaType, data, url })),
    suspendPayload: suspendPayload && {
      toolCallId: suspendPayload.toolCallId,
      toolName: suspendPayload.toolName,
      args: jsonOf(suspendPayload.args),
      suspendPayload: jsonOf(suspendPayload.suspendPayload),
      resumeSchema: jsonOf(suspendPayload.resumeSchema),
    },
    pendingCalls: message.pendingCalls.map(pendingCallOf),
    traceId: message.traceId,
    spanId: message.spanId,
    messages: message.messages.map(messageOf),
    rememberedMessages: message.rememberedMessages.map(messageOf),
    error: error && runErrorOf(error),
    tripwire: tripwire && tripwireOf(tripwire),
    scoringData: scoringData && { input: jsonOf(scoringData.input), output: jsonOf(scoringData.output) },
    usedFallbackValue: message.usedFallbackValue,
    autoResumeError: autoResumeError ?? message.autoResumeError,
  };
}

/** Reads a run. */
export function runOf(message: runs.Run, result?: pb.GenerateResult): r.Run {
  const { error } = message;
  return {
    runId: message.runId,
    agentId: message.agentId,
    state: RUN_STATES.of(message.state),
    lastSequence: countOf(message.lastSequence),
    step: message.step,
    createTime: timeOf(message.createTime),
    updateTime: timeOf(message.updateTime),
    finishTime: timeOf(message.finishTime),
    finishReason: FINISH_REASONS.ofSet(message.finishReason),
    stopCause: STOP_CAUSES.ofSet(message.stopCause),
    usage: usageOf(message.usage),
    error: error && runErrorOf(error),
    principal: message.principal,
    threadId: message.threadId,
    resourceId: message.resourceId,
    rootRunId: message.rootRunId,
    parentRunId: message.parentRunId,
    pendingCalls: message.pendingCalls.map(pendingCallOf),
    requestContext: jsonOf(message.requestContext),
    result: result && resultOf(result),
    followUps: message.followUps.map(followUpOf),
  };
}

/** Reads what is done after the end of a run. */
export function followUpOf(message: follow.FollowUp): r.FollowUp {
  const { outcome } = message;
  return {
    kind: FOLLOW_UP_KINDS.of(message.kind),
    name: message.name,
    state: FOLLOW_UP_STATES.of(message.state),
    scorer: message.scorer,
    score: outcome.case === "score" ? outcome.value.score : undefined,
    reason: outcome.case === "score" ? outcome.value.reason : "",
    error: message.error,
    attempts: message.attempts,
    samplingRatio: message.samplingRatio,
    usage: usageOf(message.usage),
    durationMs: message.duration ? millisOf(message.duration) : 0,
    createTime: timeOf(message.createTime),
    finishTime: timeOf(message.finishTime),
    title: outcome.case === "title" ? outcome.value : undefined,
  };
}

function stepOf(message: pb.StepResult): r.StepResult {
  const { request, response, tripwire } = message;
  return {
    step: message.step,
    text: message.text,
    toolCalls: toolCallsOf(message.toolCalls),
    toolResults: toolResultsOf(message.toolResults),
    finishReason: FINISH_REASONS.ofSet(message.finishReason),
    usage: usageOf(message.usage),
    request: request && { body: jsonOf(request.body) },
    response: response && responseOf(response),
    reasoningText: message.reasoningText,
    tripwire: tripwire && tripwireOf(tripwire),
    isDraft: message.isDraft,
  };
}

function responseOf(message: pb.ResponseInfo | undefined): r.ResponseInfo {
  return {
    id: message?.id ?? "",
    timestamp: timeOf(message?.timestamp),
    modelId: message?.modelId ?? "",
    headers: { ...message?.headers },
    messages: message?.messages.map(messageOf) ?? [],
    uiMessages: message?.uiMessages.map(messageOf) ?? [],
    requestLimit: limitOf(message?.requestLimit),
    tokenLimit: limitOf(message?.tokenLimit),
  };
}

function limitOf(message: pb.RateLimit | undefined): r.RateLimit | undefined {
  if (message === undefined) return undefined;
  return {
    limit: message.limit === undefined ? undefined : countOf(message.limit),
    remaining: message.remaining === undefined ? undefined : countOf(message.remaining),
    resetMs: message.reset && millisOf(message.reset),
  };
}
