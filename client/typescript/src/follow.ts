/** Following a run's chunks over any number of broken streams. */

import { chunkOf } from "./chunk-codec.js";
import type { Chunk } from "./chunks.js";
import { type Connection, callOptions } from "./connection.js";
import { type EntracteError, SequenceGap, StreamBroken, UnknownChunk } from "./errors.js";
import type { StreamResponse } from "./gen/entracte/v1/agent_service_pb.js";
import type { Chunk as ChunkMessage } from "./gen/entracte/v1/chunk_pb.js";
import { FinishReason } from "./gen/entracte/v1/result_pb.js";
import type { WatchRunResponse } from "./gen/entracte/v1/run_service_pb.js";
import { countOf } from "./outcomes.js";
import type { Deadline } from "./retry.js";
import { link } from "./signals.js";
import { errorOf } from "./status.js";

type Response = StreamResponse | WatchRunResponse;

/** What a follower follows. */
export interface Following {
  /** The run; empty where the server chooses it. */
  readonly runId: string;
  /** The sequence of the last chunk that is known already. */
  readonly position?: number;
  /** Whether to wait through suspensions until the run has ended. */
  readonly untilFinished?: boolean;
  /** Opens the first stream, and is used until a chunk has arrived; it must be safe to repeat. */
  readonly start?: (deadline: Deadline, signal: AbortSignal) => AsyncIterable<StreamResponse>;
  /** Whether nothing need come after the position. */
  readonly mayBeAtRest?: boolean;
  /** Chunks are left out as long as this holds. */
  readonly skip?: ((chunk: Chunk) => boolean) | undefined;
}

/**
 * Reads a run's chunks in order, each once.
 *
 * A stream that breaks is opened again after the last chunk that was handed out, and so is the next iteration after
 * one that was left.
 */
export class Follower {
  readonly #connection: Connection;
  readonly #deadline: Deadline;
  readonly #following: Following;
  #skip: ((chunk: Chunk) => boolean) | undefined;
  #atRest: boolean;
  #over = false;
  /** The run that is followed. */
  runId: string;
  /** The sequence of the last chunk that was handed out. */
  position: number;
  /** Why the message that began the stream did not answer the parked run that is followed now. */
  autoResumeError = "";

  constructor(connection: Connection, deadline: Deadline, following: Following) {
    this.#connection = connection;
    this.#deadline = deadline;
    this.#following = following;
    this.#skip = following.skip;
    this.#atRest = following.mayBeAtRest ?? false;
    this.runId = following.runId;
    this.position = following.position ?? 0;
  }

  /** Whether the run has ended and its last chunk was handed out. */
  get isOver(): boolean {
    return this.#over;
  }

  /** Say that more must come: a waiting call was decided. */
  expectMore(): void {
    this.#atRest = false;
  }

  /** The chunks from here to where the run parks or ends. Throws the signal's reason when it is aborted. */
  async *chunks(signal: AbortSignal): AsyncGenerator<Chunk, void, undefined> {
    const connection = this.#connection;
    const backoff = connection.backoff(this.#deadline);
    const controller = new AbortController();
    const unlink = link(signal, controller);
    try {
      while (!this.#over) {
        connection.checkOpen();
        signal.throwIfAborted();
        backoff.begin();
        let error: EntracteError;
        try {
          for await (const response of this.#open(controller.signal)) {
            connection.answered();
            backoff.answered();
            this.#followAnswered(response);
            const last = response.chunks.at(-1);
            if (last !== undefined && countOf(last.sequence) > this.position) backoff.progress();
            for (const message of response.chunks) {
              const chunk = this.#accept(message);
              if (chunk !== undefined) yield chunk;
            }
            if (this.#over) return;
          }
          if (this.#atRest) return;
          error = new StreamBroken("the stream ended before its finish chunk", {
            metadata: { run_id: this.runId, sequence: String(this.position) },
          });
        } catch (failure) {
          signal.throwIfAborted();
          error = errorOf(failure);
          if (connection.closed || !backoff.mayTryAgain(error)) throw error;
        }
        await backoff.pause(error, signal);
      }
    } finally {
      unlink();
      controller.abort();
    }
  }

  #open(signal: AbortSignal): AsyncIterable<Response> {
    const { start, untilFinished } = this.#following;
    if (start !== undefined && this.position === 0) return start(this.#deadline, signal);
    return this.#connection.runs.watchRun(
      { runId: this.runId, afterSequence: BigInt(this.position), untilFinished: untilFinished ?? false },
      callOptions(this.#deadline, signal),
    );
  }

  /** Follow the parked run that the message was taken as an answer to, where it was. */
  #followAnswered(response: Response): void {
    if (this.position > 0 || !("answered" in response) || response.answered === undefined) return;
    this.runId = response.answered.runId;
    this.position = countOf(response.answered.afterSequence);
    this.autoResumeError = response.answered.autoResumeError;
  }

  /** The chunk to hand out; `undefined` for one that was handed out before or is to be left out. */
  #accept(message: ChunkMessage): Chunk | undefined {
    const sequence = countOf(message.sequence);
    if (sequence <= this.position) return undefined;
    this.runId ||= message.runId; // the server chose it
    // A sub-agent's run is a part of its root's log: its numbers have gaps, and its paths are long.
    const isPart = message.runId !== this.runId;
    if (sequence !== this.position + 1 && !isPart) throw this.#gap(sequence);
    const chunk = chunkOf(message);
    if (chunk === undefined && !message.ignorable) {
      throw new UnknownChunk(
        `chunk ${sequence} of run ${this.runId} is of a type this version does not know`,
        {
          metadata: { run_id: this.runId, sequence: String(sequence) },
        },
      );
    }
    this.position = sequence;
    this.#watchForEnd(message, isPart);
    if (this.#skip !== undefined && chunk !== undefined) {
      if (this.#skip(chunk)) return undefined;
      this.#skip = undefined;
    }
    return chunk;
  }

  #watchForEnd(message: ChunkMessage, isPart: boolean): void {
    if (isPart) {
      this.#atRest = true;
    } else if (message.agentPath.length === 0) {
      const finish = message.payload.case === "finish" ? message.payload.value : undefined;
      const isParked = finish?.reason === FinishReason.SUSPENDED;
      this.#atRest = finish !== undefined && !(isParked && this.#following.untilFinished);
      this.#over = finish !== undefined && !isParked;
    }
  }

  #gap(sequence: number): SequenceGap {
    const expected = this.position + 1;
    return new SequenceGap(`chunk ${expected} of run ${this.runId} is missing: ${sequence} came instead`, {
      metadata: { run_id: this.runId, expected: String(expected), sequence: String(sequence) },
    });
  }
}
