/** The inbox: what waits for people, and what people decided. */

import { isDeepStrictEqual } from "node:util";
import { type Connection, callOptions, type Within } from "./connection.js";
import type { CallLike } from "./decisions.js";
import { EntracteError, StreamBroken } from "./errors.js";
import type { WatchPendingCallsResponse } from "./gen/entracte/v1/inbox_service_pb.js";
import type { PendingCall as PendingCallMessage } from "./gen/entracte/v1/pending_call_pb.js";
import { newId } from "./ids.js";
import type { CallOptions } from "./options.js";
import { toDuration } from "./outcomes.js";
import { allItems } from "./paging.js";
import { decisionOf, pendingCallOf } from "./result-codec.js";
import type { Decision, InboxChange, Page, PendingCall } from "./results.js";
import { Deadline } from "./retry.js";
import { link } from "./signals.js";
import { errorOf } from "./status.js";

/** Which open calls are watched; what is absent does not filter. */
export interface InboxWatchOptions extends CallOptions {
  /** Only calls of this run. */
  readonly runId?: string;
  /** Only calls of this agent's runs. */
  readonly agentId?: string;
  /** Only calls of runs that use this resource's memory. */
  readonly resourceId?: string;
}

/** Which pending calls are listed; what is absent does not filter. */
export interface InboxFilter extends InboxWatchOptions {
  /** Only calls of runs on this thread. */
  readonly threadId?: string;
  /** Whether decided calls are listed too. */
  readonly includeDecided?: boolean;
  /** How many calls one request asks for, 1 to 1000. Default 50. */
  readonly pageSize?: number;
}

/** Which decisions are listed; what is absent does not filter. */
export interface DecisionFilter extends CallOptions {
  /** Only decisions on this run. */
  readonly runId?: string;
  /** Only the decision on this call. */
  readonly pendingCallId?: string;
  /** Only decisions of this principal. */
  readonly principal?: string;
  /** How many decisions one request asks for, 1 to 1000. Default 50. */
  readonly pageSize?: number;
}

/** How a call is claimed. */
export interface ClaimOptions extends CallOptions {
  /** How long the claim lasts, 1 s to 1 day. Default 5 minutes. */
  readonly ttlMs?: number;
  /** Makes the request safe to repeat; made by the SDK if absent. */
  readonly requestId?: string;
}

/**
 * What waits for people: `client.inbox`. All methods throw EntracteError.
 *
 * Decide with `client.agent(call.agentId).approve(call)` and its siblings.
 */
export class InboxClient {
  readonly #connection: Connection;

  /** @internal */
  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /** All pending calls that fit, oldest first; asks for page after page. */
  list(filter: InboxFilter = {}): AsyncGenerator<PendingCall, void, undefined> {
    return allItems((pageToken) => this.listPage({ ...filter, pageToken }));
  }

  /** One page of `list`. Throws PageTokenInvalid. */
  async listPage(filter: InboxFilter & { readonly pageToken?: string } = {}): Promise<Page<PendingCall>> {
    const request = {
      pageSize: filter.pageSize ?? 0,
      pageToken: filter.pageToken ?? "",
      runId: filter.runId ?? "",
      agentId: filter.agentId ?? "",
      threadId: filter.threadId ?? "",
      resourceId: filter.resourceId ?? "",
      includeDecided: filter.includeDecided ?? false,
    };
    const { inbox } = this.#connection;
    const response = await this.#connection.call(inbox.listPendingCalls, request, this.#within(filter));
    return { items: response.pendingCalls.map(pendingCallOf), nextPageToken: response.nextPageToken };
  }

  /** Reads a pending call, decided or not. Throws PendingCallNotFound. */
  async get(pendingCallId: string, options: CallOptions = {}): Promise<PendingCall> {
    const { inbox } = this.#connection;
    const response = await this.#connection.call(
      inbox.getPendingCall,
      { pendingCallId },
      this.#within(options),
    );
    return callIn(response.pendingCall);
  }

  /**
   * The open calls, then every change, without end.
   *
   * A broken connection is made good: after it only what changed meanwhile is told. Throws DeadlineExceeded after the
   * `timeoutMs`, Unavailable when no server is reached for too long, the signal's reason when it is aborted.
   */
  async *watch(options: InboxWatchOptions = {}): AsyncGenerator<InboxChange, void, undefined> {
    const connection = this.#connection;
    const { runId = "", agentId = "", resourceId = "", signal } = options;
    const deadline = new Deadline(options.timeoutMs);
    const backoff = connection.backoff(deadline);
    const view = new View();
    const controller = new AbortController();
    const unlink = link(signal, controller);
    try {
      for (;;) {
        connection.checkOpen();
        signal?.throwIfAborted();
        view.startOver();
        backoff.begin();
        let error: EntracteError;
        try {
          const opened = connection.inbox.watchPendingCalls(
            { runId, agentId, resourceId },
            callOptions(deadline, controller.signal),
          );
          for await (const response of opened) {
            connection.answered();
            backoff.answered();
            const change = view.change(response);
            if (change === undefined) continue;
            backoff.progress();
            yield change;
          }
          error = new StreamBroken("the server ended a watch that has no end");
        } catch (failure) {
          signal?.throwIfAborted();
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

  /**
   * Keeps others from deciding a call for a while. Claiming one's own claim again extends it. Throws PendingCallClaimed
   * for another's.
   */
  async claim(call: NonNullable<CallLike>, options: ClaimOptions = {}): Promise<PendingCall> {
    const { ttlMs, requestId } = options;
    const request = {
      pendingCallId: idOf(call),
      requestId: requestId || newId(),
      ...(ttlMs !== undefined && { ttl: toDuration(ttlMs, "ttlMs") }),
    };
    const { inbox } = this.#connection;
    const response = await this.#connection.call(inbox.claimPendingCall, request, this.#within(options));
    return callIn(response.pendingCall);
  }

  /** Gives a claim back. Throws PendingCallClaimed for another's. */
  async release(
    call: NonNullable<CallLike>,
    options: CallOptions & { readonly requestId?: string } = {},
  ): Promise<PendingCall> {
    const request = { pendingCallId: idOf(call), requestId: options.requestId || newId() };
    const { inbox } = this.#connection;
    const response = await this.#connection.call(inbox.releasePendingCall, request, this.#within(options));
    return callIn(response.pendingCall);
  }

  /** All decisions that fit, newest first; asks for page after page. */
  decisions(filter: DecisionFilter = {}): AsyncGenerator<Decision, void, undefined> {
    return allItems((pageToken) => this.decisionsPage({ ...filter, pageToken }));
  }

  /** One page of `decisions`. Throws PageTokenInvalid. */
  async decisionsPage(
    filter: DecisionFilter & { readonly pageToken?: string } = {},
  ): Promise<Page<Decision>> {
    const request = {
      pageSize: filter.pageSize ?? 0,
      pageToken: filter.pageToken ?? "",
      runId: filter.runId ?? "",
      pendingCallId: filter.pendingCallId ?? "",
      principal: filter.principal ?? "",
    };
    const { inbox } = this.#connection;
    const response = await this.#connection.call(inbox.listDecisions, request, this.#within(filter));
    return { items: response.decisions.map(decisionOf), nextPageToken: response.nextPageToken };
  }

  #within({ timeoutMs, signal }: CallOptions): Within {
    return { timeoutMs: timeoutMs ?? this.#connection.timeoutMs, signal };
  }
}

function idOf(call: NonNullable<CallLike>): string {
  return typeof call === "string" ? call : call.pendingCallId;
}

function callIn(call: PendingCallMessage | undefined): PendingCall {
  if (call === undefined) throw new EntracteError("the server gave no pending call", { code: "INTERNAL" });
  return pendingCallOf(call);
}

/** The open calls as the caller knows them, over any number of connections. */
class View {
  readonly #known = new Map<string, PendingCallMessage>();
  #seen = new Set<string>();
  #isTold = false;
  #isInSnapshot = true;

  /** A new connection begins with a snapshot. */
  startOver(): void {
    this.#seen = new Set();
    this.#isInSnapshot = true;
  }

  /** What is new to the caller; `undefined` if nothing is. */
  change(message: WatchPendingCallsResponse): InboxChange | undefined {
    const opened = message.opened.filter(
      (call) => !isDeepStrictEqual(this.#known.get(call.pendingCallId), call),
    );
    const closed = message.closedPendingCallIds.filter((id) => this.#known.has(id));
    for (const call of message.opened) {
      this.#known.set(call.pendingCallId, call);
      if (this.#isInSnapshot) this.#seen.add(call.pendingCallId);
    }
    let isFirst = false;
    if (message.snapshotComplete) {
      // What was open before and is not in the snapshot was closed in between.
      closed.push(...[...this.#known.keys()].filter((id) => !this.#seen.has(id) && !closed.includes(id)));
      isFirst = !this.#isTold;
      this.#isTold = true;
      this.#isInSnapshot = false;
    }
    for (const id of closed) this.#known.delete(id);
    if (opened.length === 0 && closed.length === 0 && !isFirst) return undefined;
    return { opened: opened.map(pendingCallOf), closed, snapshotComplete: isFirst };
  }
}
