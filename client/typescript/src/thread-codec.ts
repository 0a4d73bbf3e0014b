/** Threads and their messages from the wire. */

import { INVOCATION_STATES, ROLES, RUN_STATES } from "./enums.js";
import type * as pb from "./gen/entracte/v1/thread_pb.js";
import type * as memory from "./gen/entracte/v1/working_memory_pb.js";
import { fileOf, imageOf, reasoningOf, textPartOf } from "./message-codec.js";
import { countOf, jsonOf, timeOf } from "./outcomes.js";
import type { ThreadInfo, ThreadMessage, ThreadPart, WorkingMemory } from "./thread-records.js";

/** Reads a thread. */
export function threadOf(message: pb.Thread): ThreadInfo {
  return {
    threadId: message.threadId,
    resourceId: message.resourceId,
    title: message.title,
    metadata: jsonOf(message.metadata),
    createTime: timeOf(message.createTime),
    updateTime: timeOf(message.updateTime),
    messageCount: countOf(message.messageCount),
    activeRunId: message.activeRunId,
    activeRunState: RUN_STATES.ofSet(message.activeRunState),
    queuedRuns: message.queuedRuns,
  };
}

/** Reads a working memory. */
export function workingMemoryOf(message: memory.WorkingMemory): WorkingMemory {
  const { owner } = message;
  return {
    threadId: owner.case === "threadId" ? owner.value : "",
    resourceId: owner.case === "resourceId" ? owner.value : "",
    content: message.content,
    version: countOf(message.version),
    updateTime: timeOf(message.updateTime),
  };
}

/** Reads a message of a thread. Parts that this version does not know are left out. */
export function threadMessageOf(message: pb.ThreadMessage): ThreadMessage {
  return {
    id: message.id,
    position: countOf(message.position),
    role: ROLES.of(message.role),
    parts: message.parts.map(partOf).filter((part) => part !== undefined),
    author: message.author,
    createTime: timeOf(message.createTime),
    runId: message.runId,
    step: message.step,
    metadata: jsonOf(message.metadata),
    aborted: message.aborted,
    omittedParts: message.omittedParts,
  };
}

function partOf({ part }: pb.ThreadPart): ThreadPart | undefined {
  switch (part.case) {
    case "text":
      return textPartOf(part.value);
    case "reasoning":
      return reasoningOf(part.value);
    case "toolInvocation":
      return {
        type: "tool-invocation",
        toolCallId: part.value.toolCallId,
        toolName: part.value.toolName,
        args: jsonOf(part.value.args),
        state: INVOCATION_STATES.of(part.value.state),
        result: jsonOf(part.value.result),
        error: part.value.error,
      };
    case "image":
      return imageOf(part.value);
    case "file":
      return fileOf(part.value);
    case "source":
      return { type: "source", id: part.value.id, url: part.value.url, title: part.value.title };
    case "error":
      return { type: "error", code: part.value.code, message: part.value.message };
    case "data":
      return { type: "data", name: part.value.name, data: jsonOf(part.value.data) };
    default:
      return undefined;
  }
}
