/** Threads: making, reading, changing and deleting conversations. */

import type { Connection, Within } from "./connection.js";
import { ROLES, type Role } from "./enums.js";
import { EntracteError } from "./errors.js";
import { newId } from "./ids.js";
import { stringify } from "./json.js";
import type { CallOptions } from "./options.js";
import { toOptionalJson } from "./outcomes.js";
import { allItems } from "./paging.js";
import type { Page } from "./results.js";
import { threadMessageOf, threadOf, workingMemoryOf } from "./thread-codec.js";
import type { ThreadInfo, ThreadMessage, WorkingMemory } from "./thread-records.js";

/** What a request that changes something takes. */
export interface ChangeOptions extends CallOptions {
  /** Makes the request safe to repeat; made by the SDK if absent. */
  readonly requestId?: string;
}

/** What a thread is made with. */
export interface CreateThreadOptions extends ChangeOptions {
  /** Made by the server if absent. */
  readonly threadId?: string;
  readonly title?: string;
  readonly metadata?: object;
}

/** What is changed of a thread; what is absent stays as it is. */
export interface UpdateThreadOptions extends ChangeOptions {
  /** Empty: takes it away. */
  readonly title?: string;
  /** Replaces what there was. */
  readonly metadata?: object;
}

/** Which threads are listed; what is absent does not filter. */
export interface ThreadFilter extends CallOptions {
  /** Only threads of this resource. */
  readonly resourceId?: string;
  /** How many threads one request asks for, 1 to 1000. Default 50. */
  readonly pageSize?: number;
}

/** Which messages of a thread are listed, and how. */
export interface ThreadMessageFilter extends CallOptions {
  /** Only messages of these roles: `user`, `assistant`, `system`. */
  readonly roles?: readonly Role[];
  /** Only messages of this run. */
  readonly runId?: string;
  /** Whether the newest come first. */
  readonly newestFirst?: boolean;
  /** How many messages one request asks for, 1 to 1000. Default 50. A page has fewer where they are large. */
  readonly pageSize?: number;
}

/** Whose working memory is meant. */
export type MemoryOwner =
  | { readonly threadId: string; readonly resourceId?: undefined }
  | { readonly resourceId: string; readonly threadId?: undefined };

/** How a working memory is replaced. */
export interface UpdateWorkingMemoryOptions extends ChangeOptions {
  /** The version that was read (0: there was none): only if it has not changed since. */
  readonly expectedVersion?: number;
}

/**
 * The conversations of a server: `client.threads`. All methods throw EntracteError.
 *
 * Runs make threads, too: `agent.generate("Hi", { memory: { thread: "t1", resource: "u1" } })`.
 */
export class ThreadsClient {
  readonly #connection: Connection;

  /** @internal */
  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /** Makes a thread of a resource, for example a user's id. Throws ThreadExists. */
  async create(resourceId: string, options: CreateThreadOptions = {}): Promise<ThreadInfo> {
    const request = {
      resourceId,
      threadId: options.threadId ?? "",
      title: options.title ?? "",
      metadata: toOptionalJson(options.metadata),
      requestId: options.requestId || newId(),
    };
    const { threads } = this.#connection;
    const { thread } = await this.#connection.call(threads.createThread, request, this.#within(options));
    return threadOf(given(thread));
  }

  /** Reads a thread. Throws ThreadNotFound. */
  async get(threadId: string, options: CallOptions = {}): Promise<ThreadInfo> {
    const { threads } = this.#connection;
    const { thread } = await this.#connection.call(threads.getThread, { threadId }, this.#within(options));
    return threadOf(given(thread));
  }

  /** All threads that fit, newest first; asks for page after page. */
  list(filter: ThreadFilter = {}): AsyncGenerator<ThreadInfo, void, undefined> {
    return allItems((pageToken) => this.listPage({ ...filter, pageToken }));
  }

  /** One page of `list`: the first, or the one that a `nextPageToken` names. Throws PageTokenInvalid. */
  async listPage(filter: ThreadFilter & { readonly pageToken?: string } = {}): Promise<Page<ThreadInfo>> {
    const { pageSize = 0, pageToken = "", resourceId = "" } = filter;
    const { threads } = this.#connection;
    const request = { pageSize, pageToken, resourceId };
    const response = await this.#connection.call(threads.listThreads, request, this.#within(filter));
    return { items: response.threads.map(threadOf), nextPageToken: response.nextPageToken };
  }

  /** Changes the title, or replaces the metadata. Throws ThreadNotFound. */
  async update(threadId: string, options: UpdateThreadOptions): Promise<ThreadInfo> {
    const request = {
      threadId,
      title: options.title,
      metadata: toOptionalJson(options.metadata),
      requestId: options.requestId || newId(),
    };
    const { threads } = this.#connection;
    const { thread } = await this.#connection.call(threads.updateThread, request, this.#within(options));
    return threadOf(given(thread));
  }

  /**
   * Deletes a thread with its messages and its runs. While a run has it or waits for it, only with `force`, which
   * cancels these runs: their ids are returned. Throws ThreadNotFound, ThreadBusy and ThreadParked.
   */
  async delete(
    threadId: string,
    options: ChangeOptions & { readonly force?: boolean } = {},
  ): Promise<readonly string[]> {
    const request = { threadId, force: options.force ?? false, requestId: options.requestId || newId() };
    const { threads } = this.#connection;
    const response = await this.#connection.call(threads.deleteThread, request, this.#within(options));
    return response.cancelledRunIds;
  }

  /** All messages of a thread that fit, in its order or from the newest on; asks for page after page. */
  messages(
    threadId: string,
    filter: ThreadMessageFilter = {},
  ): AsyncGenerator<ThreadMessage, void, undefined> {
    return allItems((pageToken) => this.messagesPage(threadId, { ...filter, pageToken }));
  }

  /** One page of `messages`. Throws ThreadNotFound and PageTokenInvalid. */
  async messagesPage(
    threadId: string,
    filter: ThreadMessageFilter & { readonly pageToken?: string } = {},
  ): Promise<Page<ThreadMessage>> {
    const request = {
      threadId,
      pageSize: filter.pageSize ?? 0,
      pageToken: filter.pageToken ?? "",
      roles: (filter.roles ?? []).map((role) => ROLES.number(role, "a role")),
      runId: filter.runId ?? "",
      newestFirst: filter.newestFirst ?? false,
    };
    const { threads } = this.#connection;
    const response = await this.#connection.call(threads.listThreadMessages, request, this.#within(filter));
    return { items: response.messages.map(threadMessageOf), nextPageToken: response.nextPageToken };
  }

  /** What agents noted down of a thread, or of a resource. Throws ThreadNotFound. */
  async workingMemory(owner: MemoryOwner, options: CallOptions = {}): Promise<WorkingMemory> {
    const { threads } = this.#connection;
    const request = { owner: ownerOf(owner) };
    const response = await this.#connection.call(threads.getWorkingMemory, request, this.#within(options));
    return workingMemoryOf(given(response.workingMemory));
  }

  /**
   * Replaces what agents noted down of a thread, or of a resource: with markdown, with an object, or with nothing where
   * it is empty. Throws ThreadNotFound, and WorkingMemoryChanged where it has another version than was expected.
   */
  async updateWorkingMemory(
    owner: MemoryOwner,
    content: string | object,
    options: UpdateWorkingMemoryOptions = {},
  ): Promise<WorkingMemory> {
    const { expectedVersion } = options;
    const request = {
      owner: ownerOf(owner),
      content: typeof content === "string" ? content : stringify(content),
      expectedVersion: expectedVersion === undefined ? undefined : BigInt(expectedVersion),
      requestId: options.requestId || newId(),
    };
    const { threads } = this.#connection;
    const response = await this.#connection.call(threads.updateWorkingMemory, request, this.#within(options));
    return workingMemoryOf(given(response.workingMemory));
  }

  #within({ timeoutMs, signal }: CallOptions): Within {
    return { timeoutMs: timeoutMs ?? this.#connection.timeoutMs, signal };
  }
}

function ownerOf({ threadId, resourceId }: MemoryOwner) {
  if (threadId && !resourceId) return { case: "threadId" as const, value: threadId };
  if (resourceId && !threadId) return { case: "resourceId" as const, value: resourceId };
  throw new TypeError("a working memory is that of a thread or of a resource: give one of the two");
}

function given<T>(message: T | undefined): T {
  if (message === undefined) throw new EntracteError("the server's answer is empty", { code: "INTERNAL" });
  return message;
}
