/** An agent as its callers see it. */

import type { CallOptions as RpcOptions } from "@connectrpc/connect";
import { hasCallbacks } from "./callbacks.js";
import { type Connection, callOptions, spanHeaders } from "./connection.js";
import {
  argsDigest,
  type CallLike,
  commonFields,
  type Decide,
  type DecisionResponse,
  decideAndFollow,
  runIdOf,
} from "./decisions.js";
import { EntracteError } from "./errors.js";
import { Follower } from "./follow.js";
import type { GenerateResult as ResultMessage } from "./gen/entracte/v1/generate_result_pb.js";
import { newId } from "./ids.js";
import { toMessages } from "./message-codec.js";
import type { MessagesInput } from "./messages.js";
import type { DecisionOptions, GenerateOptions } from "./options.js";
import { checkGenerateOptions, toOptions } from "./options-codec.js";
import { toJson, toOptionalJson } from "./outcomes.js";
import { resultOf } from "./result-codec.js";
import type { GenerateResult } from "./results.js";
import { Deadline } from "./retry.js";
import { RunStream } from "./stream.js";

/** How a call is approved. */
export interface ApproveOptions extends DecisionOptions {
  /** Used in place of the arguments shown. If they do not fit the tool's schema: EditedArgsInvalid. */
  readonly editedArgs?: object;
}

/** How a call is declined. */
export interface DeclineOptions extends DecisionOptions {
  /** Why, in words; the model is told. */
  readonly reason?: string;
  /** Why, as data (JSON); the model is told. */
  readonly reasonData?: unknown;
}

/**
 * One agent of a server; `client.agent(id)` makes it, without asking whether it exists.
 *
 * All methods throw EntracteError for what the server refuses, and TypeError for arguments that cannot be sent at all.
 * Each decision has a form that waits until the run next parks or ends, and one that streams what comes of it. All
 * decisions throw PendingCallNotFound, PendingCallAlreadyDecided, PendingCallExpired, PendingCallClaimed,
 * PendingCallAmbiguous, VerbMismatch, AgentUnavailable and ToolUnavailable.
 */
export class AgentClient {
  readonly #connection: Connection;
  /** The agent's id. */
  readonly id: string;

  /** @internal */
  constructor(connection: Connection, id: string) {
    this.#connection = connection;
    this.id = id;
  }

  /**
   * Start a run and wait until it parks or ends.
   *
   * Client tools with functions are executed as the run calls for them, so that it parks only for something else. A
   * run that failed is a result too. When the connection breaks, the request is made again and joins the run it had
   * started. Throws AgentNotFound, RunAlreadyExists, OptionUnsupported, ResultTooLarge, DeadlineExceeded.
   */
  async generate(messages: MessagesInput, options: GenerateOptions = {}): Promise<GenerateResult> {
    if (needsStream(options)) return await this.stream(messages, options).result();
    const connection = this.#connection;
    const { result } = await connection.call(connection.agents.generate, this.#request(messages, options), {
      timeoutMs: options.timeoutMs,
      signal: options.signal,
      headers: spanHeaders(options),
    });
    return resultIn(result);
  }

  /**
   * A run as the stream of its chunks; it starts when the first chunk is asked for. Client tools with functions are
   * executed as the run calls for them, and the iteration goes on. Throws what `generate` throws, from the iteration.
   */
  stream(messages: MessagesInput, options: GenerateOptions = {}): RunStream {
    const connection = this.#connection;
    const request = this.#request(messages, options);
    const { runId } = request.options;
    const begin = async () => ({
      follower: new Follower(connection, new Deadline(options.timeoutMs), {
        runId,
        start: (deadline, signal) =>
          connection.agents.stream(request, callOptions(deadline, signal, spanHeaders(options))),
      }),
    });
    return new RunStream(connection, begin, { ...options, runId });
  }

  /**
   * Answer a tool that asked something. Any JSON value is an answer, `null`, `false`, `0` and `""` too. It must fit the
   * call's `resumeSchema`, else ResumeDataInvalid, and the call still waits.
   */
  async resume(call: CallLike, answer: unknown, options: DecisionOptions = {}): Promise<GenerateResult> {
    return await this.#decided(this.#resume(call, answer, options), call, options);
  }

  /** Like `resume`, as the stream of what comes of it. */
  resumeStream(call: CallLike, answer: unknown, options: DecisionOptions = {}): RunStream {
    return this.#following(this.#resume(call, answer, options), call, options);
  }

  /**
   * Approve a call. The digest of what `call` showed is sent along: should the server's call differ from it,
   * ArgsDigestMismatch.
   */
  async approve(call: CallLike, { editedArgs, ...options }: ApproveOptions = {}): Promise<GenerateResult> {
    return await this.#decided(this.#approve(call, editedArgs, options), call, options);
  }

  /** Like `approve`, as the stream of what comes of it. */
  approveStream(call: CallLike, { editedArgs, ...options }: ApproveOptions = {}): RunStream {
    return this.#following(this.#approve(call, editedArgs, options), call, options);
  }

  /** Decline a call of any kind: the tool is not entered. */
  async decline(
    call: CallLike,
    { reason, reasonData, ...options }: DeclineOptions = {},
  ): Promise<GenerateResult> {
    return await this.#decided(this.#decline(call, reason, reasonData, options), call, options);
  }

  /** Like `decline`, as the stream of what comes of it. */
  declineStream(call: CallLike, { reason, reasonData, ...options }: DeclineOptions = {}): RunStream {
    return this.#following(this.#decline(call, reason, reasonData, options), call, options);
  }

  /** Hand in what a client tool returned, or what a call of kind `recovery` had come to. */
  async submitToolResult(
    call: CallLike,
    result: unknown,
    options: DecisionOptions = {},
  ): Promise<GenerateResult> {
    return await this.#decided(this.#submit(call, resultOutcome(result), options), call, options);
  }

  /** Like `submitToolResult`, as the stream of what comes of it. */
  submitToolResultStream(call: CallLike, result: unknown, options: DecisionOptions = {}): RunStream {
    return this.#following(this.#submit(call, resultOutcome(result), options), call, options);
  }

  /** Say in place of `submitToolResult` that the tool failed, and why. */
  async submitToolError(
    call: CallLike,
    error: string,
    options: DecisionOptions = {},
  ): Promise<GenerateResult> {
    return await this.#decided(this.#submit(call, { case: "error", value: error }, options), call, options);
  }

  /** Like `submitToolError`, as the stream of what comes of it. */
  submitToolErrorStream(call: CallLike, error: string, options: DecisionOptions = {}): RunStream {
    return this.#following(this.#submit(call, { case: "error", value: error }, options), call, options);
  }

  #request(messages: MessagesInput, options: GenerateOptions) {
    checkGenerateOptions(options);
    // With a request id of the caller's, the same request must have the same body each time.
    const named = options.runId || options.requestId ? options : { ...options, runId: newId() };
    return {
      agentId: this.id,
      messages: toMessages(messages),
      options: toOptions(named),
      requestId: options.requestId || newId(),
    };
  }

  #resume(call: CallLike, answer: unknown, options: DecisionOptions): Decide {
    if (answer === undefined) throw new TypeError("an answer is needed; to answer with JSON null, give null");
    const request = { ...commonFields(call, options), resumeData: toJson(answer) };
    return (wait) => (_, rpc?: RpcOptions) => this.#connection.agents.resume({ ...request, wait }, rpc);
  }

  #approve(call: CallLike, editedArgs: object | undefined, options: DecisionOptions): Decide {
    const request = {
      ...commonFields(call, options),
      argsDigest: argsDigest(call),
      editedArgs: toOptionalJson(editedArgs),
    };
    return (wait) => (_, rpc?: RpcOptions) => this.#connection.agents.approve({ ...request, wait }, rpc);
  }

  #decline(
    call: CallLike,
    reason: string | undefined,
    reasonData: unknown,
    options: DecisionOptions,
  ): Decide {
    const request = {
      ...commonFields(call, options),
      reason: reason ?? "",
      reasonJson: toOptionalJson(reasonData),
    };
    return (wait) => (_, rpc?: RpcOptions) => this.#connection.agents.decline({ ...request, wait }, rpc);
  }

  #submit(call: CallLike, outcome: Outcome, options: DecisionOptions): Decide {
    const request = { ...commonFields(call, options), outcome };
    return (wait) => (_, rpc?: RpcOptions) =>
      this.#connection.agents.submitToolResult({ ...request, wait }, rpc);
  }

  async #decided(decide: Decide, call: CallLike, options: DecisionOptions): Promise<GenerateResult> {
    if (needsStream(options)) return await this.#following(decide, call, options).result();
    const { result } = await this.#connection.call<undefined, DecisionResponse>(decide(true), undefined, {
      timeoutMs: options.timeoutMs,
      signal: options.signal,
      headers: spanHeaders(options),
    });
    return resultIn(result);
  }

  #following(decide: Decide, call: CallLike, options: DecisionOptions): RunStream {
    return new RunStream(
      this.#connection,
      (signal) => decideAndFollow(this.#connection, decide, options, signal),
      { ...options, runId: runIdOf(call, options) },
    );
  }
}

type Outcome = { case: "result"; value: ReturnType<typeof toJson> } | { case: "error"; value: string };

function resultOutcome(result: unknown): Outcome {
  if (result === undefined) throw new TypeError("a result is needed; for a result of JSON null, give null");
  return { case: "result", value: toJson(result) };
}

/** Whether something is to happen while the run goes on. */
function needsStream(options: GenerateOptions | DecisionOptions): boolean {
  return hasCallbacks(options) || (options.clientTools ?? []).some((tool) => tool.execute !== undefined);
}

function resultIn(result: ResultMessage | undefined): GenerateResult {
  if (result === undefined) throw new EntracteError("the server gave no result", { code: "INTERNAL" });
  return resultOf(result);
}
