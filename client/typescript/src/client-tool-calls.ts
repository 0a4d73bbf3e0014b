/** The calls of client tools that a stream answers by itself. */

import type { OpenCall } from "./chunks.js";
import { type ClientTool, execute, submission } from "./client-tools.js";
import type { Connection } from "./connection.js";
import { PendingCallAlreadyDecided, PendingCallExpired, RunFinished } from "./errors.js";
import type { SubmitToolResultRequest } from "./gen/entracte/v1/agent_service_pb.js";
import { Json } from "./json.js";
import type { ToolCallSuspendedChunk } from "./tool-chunks.js";

/** Runs the functions that a run calls for, each call's once, and hands in what they return. */
export class ToolCalls {
  readonly #connection: Connection;
  readonly #tools: ReadonlyMap<string, ClientTool>;
  readonly #announced = new Map<string, ToolCallSuspendedChunk>();
  readonly #submissions = new Map<string, SubmitToolResultRequest>();
  readonly #answered = new Set<string>();

  constructor(connection: Connection, tools: readonly ClientTool[]) {
    this.#connection = connection;
    this.#tools = new Map(
      tools.filter((tool) => tool.execute !== undefined).map((tool) => [tool.name, tool]),
    );
  }

  /** A call is shown, with its arguments. */
  announce(chunk: ToolCallSuspendedChunk): void {
    if (chunk.kind === "client-tool") this.#announced.set(chunk.pendingCallId, chunk);
  }

  /** Whether a waiting call is one of a function here that has not been answered. */
  isToAnswer(call: OpenCall): boolean {
    return (
      call.kind === "client-tool" && this.#tools.has(call.toolName) && !this.#answered.has(call.pendingCallId)
    );
  }

  /** Answer calls, all at the same time. False when all of them had been settled otherwise. */
  async answerAll(calls: readonly OpenCall[], signal: AbortSignal): Promise<boolean> {
    const outcomes = await Promise.allSettled(calls.map((call) => this.#answer(call, signal)));
    const failed = outcomes.find((outcome) => outcome.status === "rejected");
    if (failed !== undefined) throw failed.reason;
    return outcomes.some((outcome) => outcome.status === "fulfilled" && outcome.value);
  }

  async #answer(call: OpenCall, signal: AbortSignal): Promise<boolean> {
    const connection = this.#connection;
    const { pendingCallId } = call;
    // Kept, so that a function runs once even if handing in what it returned fails at first.
    let request = this.#submissions.get(pendingCallId);
    if (request === undefined) {
      request = submission(pendingCallId, await this.#execute(call, signal));
      this.#submissions.set(pendingCallId, request);
    }
    let isFresh = true;
    try {
      await connection.call(connection.agents.submitToolResult, request, {
        timeoutMs: connection.timeoutMs,
        signal,
      });
    } catch (error) {
      const isSettled =
        error instanceof PendingCallAlreadyDecided ||
        error instanceof PendingCallExpired ||
        error instanceof RunFinished;
      if (!isSettled) throw error;
      isFresh = false;
    }
    this.#answered.add(pendingCallId);
    return isFresh;
  }

  async #execute(call: OpenCall, signal: AbortSignal) {
    const tool = this.#tools.get(call.toolName);
    if (tool === undefined) throw new TypeError(`there is no client tool ${call.toolName}`);
    const args = await this.#argsOf(call, signal);
    const { toolCallId, pendingCallId } = call;
    return execute(tool, args.value, { toolCallId, pendingCallId, argsText: args.text, signal });
  }

  async #argsOf({ pendingCallId }: OpenCall, signal: AbortSignal): Promise<Json> {
    const announced = this.#announced.get(pendingCallId);
    if (announced !== undefined) return announced.args ?? new Json("{}");
    const connection = this.#connection;
    const within = { timeoutMs: connection.timeoutMs, signal };
    const { pendingCall } = await connection.call(connection.inbox.getPendingCall, { pendingCallId }, within);
    return new Json(pendingCall?.args?.text || "{}");
  }
}
