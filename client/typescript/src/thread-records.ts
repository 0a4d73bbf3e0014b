/** What the server keeps of conversations: threads, their messages, and what agents noted down. */

import type { Role, RunState, ToolInvocationState } from "./enums.js";
import type { Json } from "./json.js";
import type { FilePart, ImagePart, ReasoningPart, TextPart } from "./messages.js";

/** A conversation as it is kept. */
export interface ThreadInfo {
  readonly threadId: string;
  readonly resourceId: string;
  readonly title: string;
  /** What is kept beside it, an object. */
  readonly metadata: Json | undefined;
  readonly createTime: Date | undefined;
  readonly updateTime: Date | undefined;
  readonly messageCount: number;
  /** The run that has it, which may be parked; empty: it is free. */
  readonly activeRunId: string;
  readonly activeRunState: RunState | undefined;
  /** How many runs wait for it. */
  readonly queuedRuns: number;
}

/** A tool call with what came of it. */
export interface ToolInvocationPart {
  readonly type: "tool-invocation";
  readonly toolCallId: string;
  readonly toolName: string;
  readonly args: Json | undefined;
  /** It is pending, or the tool gave a result, or failed, a person declined it, or it was cancelled with its run. */
  readonly state: ToolInvocationState;
  readonly result: Json | undefined;
  /** What the model was told where there is no result, or why it was declined. */
  readonly error: string;
}

/** Something the model cited. */
export interface SourcePart {
  readonly type: "source";
  readonly id: string;
  readonly url: string;
  readonly title: string;
}

/** Why there is no more of an answer. `code` is what a run's error calls `kind`. */
export interface ErrorPart {
  readonly type: "error";
  readonly code: string;
  readonly message: string;
}

/** Data under a name; `object` for the object of a structured answer. */
export interface DataPart {
  readonly type: "data";
  readonly name: string;
  readonly data: Json | undefined;
}

/** Any part of a message of a thread; `part.type` tells which. */
export type ThreadPart =
  | TextPart
  | ReasoningPart
  | ToolInvocationPart
  | ImagePart
  | FilePart
  | SourcePart
  | ErrorPart
  | DataPart;

/** One message of a thread. */
export interface ThreadMessage {
  readonly id: string;
  /** Counts from 1. */
  readonly position: number;
  readonly role: Role;
  readonly parts: readonly ThreadPart[];
  /** The principal who sent it, or the id of the agent that answered. */
  readonly author: string;
  readonly createTime: Date | undefined;
  readonly runId: string;
  /** 0 for what was said to the agent. */
  readonly step: number;
  readonly metadata: Json | undefined;
  /** The answer was cut off. */
  readonly aborted: boolean;
  /** So many parts are missing here, because it is larger than a response may be; the run has them. */
  readonly omittedParts: number;
}

/** The working memory of a thread or of a resource; the other id is empty. */
export interface WorkingMemory {
  readonly threadId: string;
  readonly resourceId: string;
  /** Markdown, or the text of a JSON object, as the agent's working memory says; empty where nothing was noted. */
  readonly content: string;
  /** Grows with every change, from 1; 0 where there was none. */
  readonly version: number;
  readonly updateTime: Date | undefined;
}
