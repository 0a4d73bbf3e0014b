/** Runs: looking at them, following them, ending them. */

import type { Callbacks } from "./callbacks.js";
import type { ClientTool } from "./client-tools.js";
import type { Connection, Within } from "./connection.js";
import { RUN_STATES, type RunState } from "./enums.js";
import { EntracteError } from "./errors.js";
import { Follower } from "./follow.js";
import type { Run as RunMessage } from "./gen/entracte/v1/run_pb.js";
import { newId } from "./ids.js";
import { late } from "./late.js";
import type { CallOptions } from "./options.js";
import { allItems } from "./paging.js";
import { runOf } from "./result-codec.js";
import type { FollowUp, Page, Run } from "./results.js";
import { Deadline } from "./retry.js";
import { RunStream } from "./stream.js";

/** Which runs are listed; what is absent does not filter. */
export interface RunFilter extends CallOptions {
  /** Only runs in one of these states. */
  readonly states?: readonly RunState[];
  /** Only runs of this agent. */
  readonly agentId?: string;
  /** Only runs on this thread. */
  readonly threadId?: string;
  /** Whether runs of sub-agents are listed too. */
  readonly includeChildren?: boolean;
  /** How many runs one request asks for, 1 to 1000. Default 50. */
  readonly pageSize?: number;
}

/** How a run is watched. */
export interface WatchOptions extends Callbacks, CallOptions {
  /** The sequence of the last chunk that is known: what comes after it is shown. Default 0: all. */
  readonly after?: number;
  /** Whether to wait through suspensions until the run has ended. */
  readonly untilFinished?: boolean;
  /** Functions for the run's client tools, executed when it parks for them. */
  readonly clientTools?: readonly ClientTool[];
}

/** How a run is cancelled. */
export interface CancelOptions extends CallOptions {
  /** Shown in the `abort` chunk. */
  readonly reason?: string;
  /** Whether to wait until the run has ended. */
  readonly wait?: boolean;
  /** Makes the request safe to repeat; made by the SDK if absent. */
  readonly requestId?: string;
}

/** How a run is deleted. */
export interface DeleteRunOptions extends CallOptions {
  /** Whether a parked run is deleted too. */
  readonly force?: boolean;
  /** Makes the request safe to repeat; made by the SDK if absent. */
  readonly requestId?: string;
}

/** The runs of a server: `client.runs`. All methods throw EntracteError. */
export class RunsClient {
  readonly #connection: Connection;

  /** @internal */
  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /**
   * Reads a run with its `result`: final for one that has ended, else what there is so far. Throws RunNotFound, and
   * ResultTooLarge for a result beyond 16 MiB: read the run with `omitResult` and its chunks with `watch`.
   */
  async get(runId: string, options: CallOptions & { readonly omitResult?: boolean } = {}): Promise<Run> {
    const { runs } = this.#connection;
    const request = { runId, omitResult: options.omitResult ?? false };
    const response = await this.#connection.call(runs.getRun, request, this.#within(options));
    return runIn(response.run, response.result);
  }

  /** All runs that fit, newest first, without their results; asks for page after page. */
  list(filter: RunFilter = {}): AsyncGenerator<Run, void, undefined> {
    return allItems((pageToken) => this.listPage({ ...filter, pageToken }));
  }

  /**
   * One page of `list`: the first, or the one that a `nextPageToken` names. Throws PageTokenInvalid for a token of
   * another list or of other filters.
   */
  async listPage(filter: RunFilter & { readonly pageToken?: string } = {}): Promise<Page<Run>> {
    const request = {
      pageSize: filter.pageSize ?? 0,
      pageToken: filter.pageToken ?? "",
      states: (filter.states ?? []).map((state) => RUN_STATES.number(state, "a run's state")),
      agentId: filter.agentId ?? "",
      threadId: filter.threadId ?? "",
      includeChildren: filter.includeChildren ?? false,
    };
    const { runs } = this.#connection;
    const response = await this.#connection.call(runs.listRuns, request, this.#within(filter));
    return { items: response.runs.map((run) => runOf(run)), nextPageToken: response.nextPageToken };
  }

  /**
   * Follows a run from any position: what is stored after it, then what happens. Ends where the run is parked or has
   * ended. Throws RunNotFound, SequenceTrimmed and SequenceAhead from the iteration.
   */
  watch(runId: string, options: WatchOptions = {}): RunStream {
    const { after = 0, untilFinished = false } = options;
    if (!Number.isSafeInteger(after) || after < 0) {
      throw new TypeError(`after is the sequence of a chunk, or 0, not ${after}`);
    }
    const begin = async () => ({
      follower: new Follower(this.#connection, new Deadline(options.timeoutMs), {
        runId,
        position: after,
        untilFinished,
        mayBeAtRest: after > 0,
      }),
    });
    return new RunStream(this.#connection, begin, { ...options, runId });
  }

  /**
   * What is done about a run after its end, its scores and the title of its thread for example.
   *
   * Waits until the run has ended and all of it is settled; that may take minutes, so give a `timeoutMs`. With
   * `wait: false`, as it stands now. Throws RunNotFound.
   */
  async followUps(
    runId: string,
    options: CallOptions & { readonly wait?: boolean } = {},
  ): Promise<readonly FollowUp[]> {
    const { wait = true, ...call } = options;
    if (wait) {
      const run = await this.get(runId, { ...call, omitResult: true });
      const deadline = new Deadline(call.timeoutMs);
      for await (const _ of late(this.#connection, runId, run.lastSequence, deadline, call.signal));
    }
    return (await this.get(runId, { ...call, omitResult: true })).followUps;
  }

  /**
   * Cancels a run, whatever it is doing: model calls and tools are cut off, waiting calls are settled as cancelled.
   * With `wait` the run that is returned has ended. One that had ended before stays as it is. Throws RunNotFound.
   */
  async cancel(runId: string, options: CancelOptions = {}): Promise<Run> {
    const { reason = "", wait = false, requestId, ...call } = options;
    const within = wait ? { timeoutMs: call.timeoutMs, signal: call.signal } : this.#within(call);
    const request = { runId, reason, wait, requestId: requestId || newId() };
    const response = await this.#connection.call(this.#connection.runs.cancelRun, request, within);
    return runIn(response.run);
  }

  /**
   * Deletes all that is stored of a run that has ended, or of a parked one with `force`. Throws RunNotFound and
   * RunNotFinished.
   */
  async delete(runId: string, options: DeleteRunOptions = {}): Promise<void> {
    const { force = false, requestId } = options;
    const request = { runId, force, requestId: requestId || newId() };
    await this.#connection.call(this.#connection.runs.deleteRun, request, this.#within(options));
  }

  #within({ timeoutMs, signal }: CallOptions): Within {
    return { timeoutMs: timeoutMs ?? this.#connection.timeoutMs, signal };
  }
}

function runIn(run: RunMessage | undefined, result?: Parameters<typeof runOf>[1]): Run {
  if (run === undefined) throw new EntracteError("the server gave no run", { code: "INTERNAL" });
  return runOf(run, result);
}
