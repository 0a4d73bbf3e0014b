/** A run's chunks as an async iterable. */

import { CALLBACK_NAMES, type Callbacks, Observer } from "./callbacks.js";
import type { Chunk, FinishChunk, OpenCall } from "./chunks.js";
import { ToolCalls } from "./client-tool-calls.js";
import type { ClientTool } from "./client-tools.js";
import type { Connection } from "./connection.js";
import { EntracteError } from "./errors.js";
import { Fold } from "./fold.js";
import type { Follower } from "./follow.js";
import { late } from "./late.js";
import { resultOf } from "./result-codec.js";
import type { Decision, GenerateResult } from "./results.js";
import { Deadline } from "./retry.js";
import { link } from "./signals.js";

/** How long the end of a stream waits for a title that it is to tell of. */
const TITLE_MS = 30_000;

/** Why an iteration ends that was told to. */
const CLOSED = new Error("the stream was closed");

/** How a stream began: what follows the run, and the decision it began with. */
export interface Beginning {
  readonly follower: Follower;
  readonly decision?: Decision;
}

/** What a stream is made with. */
export interface StreamOptions extends Callbacks {
  readonly runId: string;
  readonly clientTools?: readonly ClientTool[] | undefined;
  readonly signal?: AbortSignal | undefined;
}

/**
 * The chunks of a run, from where it starts or goes on to where it parks or ends.
 *
 *     for await (const chunk of agent.stream("Hello")) { ... }
 *
 * Nothing is sent before the first chunk is asked for. A broken connection, a stopping server or a reader that was too
 * slow are no end: the stream attaches again after the last chunk, so that each chunk comes once and none is left out.
 * After a broken attempt of a step the model's answer starts over, with a `step-start` of a higher `attempt`; `text`
 * and `fold` drop what it made void.
 *
 * Leaving the loop stops following and leaves the run alone. Another loop, or `result()`, goes on after the last chunk
 * that was handed out. One loop at a time may read a stream.
 *
 * Throws EntracteError when a chunk is asked for: what the server refused, DeadlineExceeded when the `timeoutMs`
 * passed, Unavailable when no server could be reached for too long, StreamError for a stream that is not what the
 * contract says. When the `signal` is aborted, its reason is thrown.
 */
export class RunStream implements AsyncIterable<Chunk> {
  readonly #connection: Connection;
  readonly #begin: (signal: AbortSignal | undefined) => Promise<Beginning>;
  readonly #options: StreamOptions;
  readonly #observer: Observer;
  readonly #calls: ToolCalls;
  #beginning: Beginning | undefined;
  #finish: FinishChunk | undefined;
  #ended = false;
  #failed = false;
  #result: GenerateResult | undefined;
  #controller: AbortController | undefined;
  #active: AsyncGenerator<Chunk, void, undefined> | undefined;
  /** What the chunks so far add up to. */
  readonly fold = new Fold();

  /** Made by `agent.stream`, the decisions' streams and `client.runs.watch`. @internal */
  constructor(
    connection: Connection,
    begin: (signal: AbortSignal | undefined) => Promise<Beginning>,
    options: StreamOptions,
  ) {
    this.#connection = connection;
    this.#begin = begin;
    this.#options = options;
    this.#observer = new Observer(Object.fromEntries(CALLBACK_NAMES.map((name) => [name, options[name]])));
    this.#calls = new ToolCalls(connection, options.clientTools ?? []);
  }

  /**
   * The run's id. Known from the start, except where only the server knows it: then it is empty until a decision by a
   * bare pending call id was made, or until the first chunk of a run that was started with a `requestId` and without a
   * `runId`.
   */
  get runId(): string {
    return this.#beginning?.follower.runId ?? this.#options.runId;
  }

  /** The text so far, void attempts and drafts left out. */
  get text(): string {
    return this.fold.text;
  }

  /** The decision this stream began with, once it was made; `undefined` for other streams. */
  get decision(): Decision | undefined {
    return this.#beginning?.decision;
  }

  /** The sequence of the last chunk that was handed out, to follow the run from elsewhere. */
  get position(): number {
    return this.#beginning?.follower.position ?? 0;
  }

  /** The pieces of the answer's text as they come, in place of the chunks. */
  get textStream(): AsyncGenerator<string, void, undefined> {
    return this.#texts();
  }

  /**
   * Make the decision this stream begins with and return at once, without following the run; a decision that was made
   * is returned as it is. Throws `TypeError` for other streams.
   */
  async commit(): Promise<Decision> {
    const { decision } = await this.#begun(this.#options.signal);
    if (decision === undefined) throw new TypeError("this stream does not begin with a decision");
    return decision;
  }

  /**
   * What the run has come to, after reading the stream to its end. Throws what reading throws, and ResultTooLarge for a
   * result beyond 16 MiB.
   */
  async result(): Promise<GenerateResult> {
    if (!this.#ended) {
      for await (const _ of this);
    }
    this.#result ??= await this.#readResult(this.#options.signal);
    return this.#result;
  }

  /** Stop following: a loop that goes on elsewhere ends. The run goes on, unless it has `cancelOnDisconnect`. */
  async close(): Promise<void> {
    this.#controller?.abort(CLOSED);
    await this.#active?.return();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  [Symbol.asyncIterator](): AsyncGenerator<Chunk, void, undefined> {
    const chunks: AsyncGenerator<Chunk, void, undefined> = this.#chunks(() => chunks);
    return chunks;
  }

  async #begun(signal: AbortSignal | undefined): Promise<Beginning> {
    this.#beginning ??= await this.#begin(signal);
    return this.#beginning;
  }

  async *#texts(): AsyncGenerator<string, void, undefined> {
    for await (const chunk of this) {
      if (chunk.type === "text-delta" && chunk.agentPath.length === 0) yield chunk.text;
    }
  }

  async *#chunks(self: () => AsyncGenerator<Chunk, void, undefined>): AsyncGenerator<Chunk, void, undefined> {
    if (this.#active !== undefined) throw new TypeError("the stream is being read already");
    this.#active = self();
    const controller = new AbortController();
    this.#controller = controller;
    const unlink = link(this.#options.signal, controller);
    try {
      const { follower } = await this.#begun(controller.signal);
      for (;;) {
        for await (const chunk of follower.chunks(controller.signal)) {
          this.#takeIn(chunk);
          yield chunk;
        }
        const calls = this.#callsToAnswer();
        if (calls.length === 0) break;
        if (await this.#calls.answerAll(calls, controller.signal)) follower.expectMore();
      }
      this.#ended = true;
      if (follower.isOver && !this.#failed) await this.#tellOfEnd(controller.signal);
    } catch (error) {
      if (error === CLOSED) return;
      if (error instanceof EntracteError) this.#observer.emit("onError", error);
      throw error;
    } finally {
      unlink();
      controller.abort(CLOSED);
      this.#controller = undefined;
      this.#active = undefined;
      await this.#observer.drain();
    }
  }

  async #tellOfEnd(signal: AbortSignal): Promise<void> {
    if (this.#observer.wants("onFinish")) {
      this.#result ??= await this.#readResult(signal);
      this.#observer.emit("onFinish", this.#result);
    }
    if (this.#observer.wants("onTitleGenerated")) await this.#waitForTitle(signal);
  }

  /** When a title cannot be heard of in time, it is not told: the run itself has been read to its end. */
  async #waitForTitle(signal: AbortSignal): Promise<void> {
    try {
      for await (const job of late(
        this.#connection,
        this.runId,
        this.position,
        new Deadline(TITLE_MS),
        signal,
      )) {
        if (job.title === undefined) continue;
        this.#observer.emit("onTitleGenerated", job.title);
        return;
      }
    } catch (error) {
      if (!(error instanceof EntracteError)) throw error;
    }
  }

  #takeIn(chunk: Chunk): void {
    const observer = this.#observer;
    observer.emit("onChunk", chunk);
    const step = this.fold.add(chunk);
    if (step !== undefined) observer.emit("onStepFinish", step);
    if (chunk.type === "tool-call-suspended") this.#calls.announce(chunk);
    if (chunk.agentPath.length > 0) return;
    this.#finish = chunk.type === "finish" ? chunk : undefined;
    if (chunk.type === "error") {
      this.#failed = true;
      observer.emit("onError", chunk.error);
    } else if (chunk.type === "abort") {
      this.#failed = true;
      observer.emit("onAbort", chunk);
    }
  }

  #callsToAnswer(): OpenCall[] {
    return (this.#finish?.openCalls ?? []).filter((call) => this.#calls.isToAnswer(call));
  }

  async #readResult(signal: AbortSignal | undefined): Promise<GenerateResult> {
    const connection = this.#connection;
    const within = { timeoutMs: connection.timeoutMs, signal };
    const { result } = await connection.call(connection.runs.getRun, { runId: this.runId }, within);
    if (result === undefined) throw new EntracteError("the server gave no result", { code: "INTERNAL" });
    return resultOf(result, this.#beginning?.follower.autoResumeError);
  }
}
