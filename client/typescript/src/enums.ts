/**
 * The enumerations of the contract as strings, named as in the chunks' types.
 *
 * A value that this version does not know reads as `"unknown"`, a value that is not set as `undefined`.
 */

import type { DescEnum } from "@bufbuild/protobuf";
import { ChunkSourceSchema, DecisionVerbSchema, PendingCallKindSchema } from "./gen/entracte/v1/chunk_pb.js";
import { FollowUpKindSchema, FollowUpStateSchema } from "./gen/entracte/v1/follow_up_pb.js";
import { RoleSchema } from "./gen/entracte/v1/message_pb.js";
import { ExpiryActionSchema, PendingCallStateSchema } from "./gen/entracte/v1/pending_call_pb.js";
import { FinishReasonSchema, StopCauseSchema } from "./gen/entracte/v1/result_pb.js";
import { RunStateSchema } from "./gen/entracte/v1/run_pb.js";
import { ToolInvocationStateSchema } from "./gen/entracte/v1/thread_pb.js";

/** How a step or a run ended. */
export type FinishReason =
  | "stop"
  | "tool-calls"
  | "suspended"
  | "error"
  | "length"
  | "content-filter"
  | "aborted"
  | "tripwire"
  | "other"
  | "unknown";

/** What ended a run or made it pause. */
export type StopCause =
  | "model-finished"
  | "max-steps"
  | "stop-when"
  | "hook"
  | "bail"
  | "task-incomplete"
  | "check-unavailable"
  | "client-tool"
  | "suspended"
  | "timeout"
  | "budget"
  | "cancelled"
  | "tripwire"
  | "error"
  | "unknown";

/** What makes a call wait. */
export type PendingCallKind = "approval" | "suspension" | "client-tool" | "recovery" | "unknown";

/** What happens to a call that nobody decides in time. */
export type ExpiryAction = "decline" | "fail" | "answer" | "unknown";

/** Whether a call still waits. */
export type PendingCallState = "open" | "decided" | "unknown";

/** How a waiting call was decided. */
export type DecisionVerb = "approve" | "decline" | "resume" | "submit" | "cancel" | "expire" | "unknown";

/** Where a run stands. */
export type RunState = "queued" | "running" | "suspended" | "succeeded" | "failed" | "cancelled" | "unknown";

/** What is done about a run after its end. */
export type FollowUpKind = "score" | "title" | "unknown";

/** Where that stands. */
export type FollowUpState = "waiting" | "succeeded" | "failed" | "skipped" | "unknown";

/** Who made a chunk: the agent, a tool (`user`), or the server. */
export type ChunkSource = "agent" | "user" | "system" | "unknown";

/** Who speaks in a message. */
export type Role = "system" | "user" | "assistant" | "tool" | "unknown";

/** What came of a tool call on a thread. */
export type ToolInvocationState = "pending" | "result" | "error" | "denied" | "cancelled" | "unknown";

/** The names of an enumeration, both ways. */
export class Names<Name extends string> {
  readonly #names = new Map<number, Name>();
  readonly #numbers = new Map<string, number>();

  constructor(schema: DescEnum) {
    for (const { number, localName } of schema.values) {
      if (number === 0) continue;
      const name = localName.toLowerCase().replaceAll("_", "-") as Name;
      this.#names.set(number, name);
      this.#numbers.set(name, number);
    }
  }

  /** The name of a value: `"unknown"` for one that is new or not set. */
  of(number: number): Name | "unknown" {
    return this.#names.get(number) ?? "unknown";
  }

  /** The same, `undefined` for one that is not set. */
  ofSet(number: number): Name | "unknown" | undefined {
    return number === 0 ? undefined : this.of(number);
  }

  /** The number of a name. Throws `TypeError` naming the choices. */
  number(name: string, what: string): number {
    const number = this.#numbers.get(name);
    if (number !== undefined) return number;
    throw new TypeError(
      `${what} is one of ${[...this.#numbers.keys()].join(", ")}, not ${JSON.stringify(name)}`,
    );
  }
}

export const FINISH_REASONS = new Names<FinishReason>(FinishReasonSchema);
export const STOP_CAUSES = new Names<StopCause>(StopCauseSchema);
export const KINDS = new Names<PendingCallKind>(PendingCallKindSchema);
export const CALL_STATES = new Names<PendingCallState>(PendingCallStateSchema);
export const EXPIRY_ACTIONS = new Names<ExpiryAction>(ExpiryActionSchema);
export const VERBS = new Names<DecisionVerb>(DecisionVerbSchema);
export const RUN_STATES = new Names<RunState>(RunStateSchema);
export const FOLLOW_UP_KINDS = new Names<FollowUpKind>(FollowUpKindSchema);
export const FOLLOW_UP_STATES = new Names<FollowUpState>(FollowUpStateSchema);
export const SOURCES = new Names<ChunkSource>(ChunkSourceSchema);
export const ROLES = new Names<Role>(RoleSchema);
export const INVOCATION_STATES = new Names<ToolInvocationState>(ToolInvocationStateSchema);
