/** The connection of a client, and how calls are made on it. */

import type { ClientHttp2Stream } from "node:http2";
import type { SecureContextOptions } from "node:tls";
import { type CallOptions, type Client, createClient, type Interceptor } from "@connectrpc/connect";
import { createGrpcTransport, Http2SessionManager } from "@connectrpc/connect-node";
import type { EntracteError } from "./errors.js";
import { AgentService } from "./gen/entracte/v1/agent_service_pb.js";
import { InboxService } from "./gen/entracte/v1/inbox_service_pb.js";
import { RunService } from "./gen/entracte/v1/run_service_pb.js";
import { ThreadService } from "./gen/entracte/v1/thread_service_pb.js";
import { Backoff, Deadline } from "./retry.js";
import { errorOf, isTaken, RUN_ID_KEY } from "./status.js";
import { keepByteOrderMarks } from "./text-encoding.js";
import { VERSION } from "./version.js";

const MESSAGE_LIMIT = 16 * 1024 * 1024;
const DEFAULT_TIMEOUT_MS = 30_000;
const DEFAULT_REATTACH_TIMEOUT_MS = 60_000;

/** How a client connects. */
export interface ClientOptions {
  /** Sent with every call. */
  readonly apiKey?: string | undefined;
  /**
   * Whether the server is reached over TLS and verified, with the root certificates of Node.js; or with others, or
   * with a certificate of the client's: `{ ca, cert, key }` as PEM. `https://` in the address means the same.
   */
  readonly tls?: boolean | (SecureContextOptions & { readonly servername?: string }) | undefined;
  /** The longest a plain request may take. Default 30,000. Waiting for a run has no limit unless a call says so. */
  readonly timeoutMs?: number | undefined;
  /**
   * How long calls and streams wait for a server that was there before and is not now, trying again without progress.
   * A call's own timeout may end that earlier. Default 60,000.
   */
  readonly reattachTimeoutMs?: number | undefined;
}

/** What a unary call takes beside its request. */
export interface Within {
  /** Bounds the call with all its repetitions. */
  readonly timeoutMs: number | undefined;
  readonly signal?: AbortSignal | undefined;
  readonly headers?: Readonly<Record<string, string>> | undefined;
}

type Unary<Request, Response> = (request: Request, options?: CallOptions) => Promise<Response>;

/** One HTTP/2 connection with the services on it. It is made when it is first used, and again when it broke. */
export class Connection {
  readonly agents: Client<typeof AgentService>;
  readonly runs: Client<typeof RunService>;
  readonly inbox: Client<typeof InboxService>;
  readonly threads: Client<typeof ThreadService>;
  readonly timeoutMs: number;
  readonly #reattachTimeoutMs: number;
  readonly #sessions: Sessions;
  #closed = false;
  #reached = false;

  constructor(address: string, options: ClientOptions) {
    keepByteOrderMarks();
    const url = urlOf(address, options.tls);
    this.timeoutMs = options.timeoutMs ?? DEFAULT_TIMEOUT_MS;
    this.#reattachTimeoutMs = options.reattachTimeoutMs ?? DEFAULT_REATTACH_TIMEOUT_MS;
    this.#sessions = new Sessions(url.href, options.tls, () => this.answered());
    const transport = createGrpcTransport({
      baseUrl: url.href.replace(/\/$/, ""),
      sessionManager: this.#sessions,
      interceptors: [headers(options.apiKey)],
      readMaxBytes: MESSAGE_LIMIT,
      writeMaxBytes: MESSAGE_LIMIT,
      acceptCompression: [],
    });
    this.agents = createClient(AgentService, transport);
    this.runs = createClient(RunService, transport);
    this.inbox = createClient(InboxService, transport);
    this.threads = createClient(ThreadService, transport);
  }

  /** Whether it was closed. */
  get closed(): boolean {
    return this.#closed;
  }

  /** Close it; calls in progress end. */
  close(): void {
    this.#closed = true;
    this.#sessions.abort(new Error("the client is closed"));
  }

  /** Throws when it was closed. */
  checkOpen(): void {
    if (this.#closed) throw new Error("the client is closed");
  }

  /** The pauses of one call with all its repetitions. */
  backoff(deadline: Deadline): Backoff {
    return new Backoff(this.#reattachTimeoutMs, deadline, () => this.#reached);
  }

  /** The server said something. From now on a call that finds it gone waits for it to come back. */
  answered(): void {
    this.#reached = true;
  }

  /**
   * Make a unary call.
   *
   * Unary calls only read or carry a request id, so that the same request may be sent again. It is while the server is
   * away, or says that it is, as long as `Backoff` allows: a server that never answered is given up quickly, one that
   * did gets the time that a restart takes.
   */
  async call<Request, Response>(
    method: Unary<Request, Response>,
    request: Request,
    { timeoutMs, signal, headers }: Within,
  ): Promise<Response> {
    const deadline = new Deadline(timeoutMs);
    const backoff = this.backoff(deadline);
    for (;;) {
      this.checkOpen();
      signal?.throwIfAborted();
      backoff.begin();
      let error: EntracteError;
      try {
        const response = await method(request, callOptions(deadline, signal, headers));
        this.answered();
        return response;
      } catch (failure) {
        signal?.throwIfAborted();
        error = errorOf(failure);
        if (isTaken(failure)) backoff.answered();
      }
      if (error.reason) this.answered(); // the transport's own statuses have none
      if (this.#closed || !backoff.mayTryAgain(error)) throw error;
      await backoff.pause(error, signal);
    }
  }
}

/** The HTTP/2 sessions of a connection, one after the other. */
class Sessions extends Http2SessionManager {
  readonly #onAnswer: () => void;
  #watched: unknown;

  constructor(url: string, tls: ClientOptions["tls"], onAnswer: () => void) {
    // Servers tolerate a ping every 10 s; a dead connection is noticed within 30 s.
    super(url, { pingIntervalMs: 20_000, pingTimeoutMs: 10_000 }, typeof tls === "object" ? tls : undefined);
    this.#onAnswer = onAnswer;
  }

  /** A run's id tells that the call was taken, even where the connection breaks before there is an answer. */
  override async request(...given: Parameters<Http2SessionManager["request"]>) {
    const stream = await super.request(...given);
    this.#watch(stream.session);
    stream.once("response", (headers) => {
      if (RUN_ID_KEY in headers) this.#onAnswer();
    });
    return stream;
  }

  /**
   * A session that a stopping server says goodbye to reports an error as it closes, and ends the process where nobody
   * listens: the base class does no longer, once another session has taken its place or the client was closed.
   */
  #watch(session: ClientHttp2Stream["session"]): void {
    if (session === this.#watched) return;
    this.#watched = session;
    session?.on("error", () => {
      // Calls on it end with errors of their own.
    });
  }
}

/** What a call is made with. */
export function callOptions(
  deadline: Deadline,
  signal: AbortSignal | undefined,
  headers?: Readonly<Record<string, string>>,
): CallOptions {
  const timeoutMs = deadline.remaining();
  return {
    ...(timeoutMs !== undefined && { timeoutMs }),
    ...(signal !== undefined && { signal }),
    ...(headers !== undefined && { headers: { ...headers } }),
  };
}

/** The caller's span as a header. */
export function spanHeaders(options: { readonly traceparent?: string }): Readonly<Record<string, string>> {
  return options.traceparent ? { traceparent: options.traceparent } : {};
}

function urlOf(address: string, tls: ClientOptions["tls"]): URL {
  const hasScheme = /^https?:\/\//.test(address);
  const isHostAndPort = /^(\[[\da-f:.]+\]|[^\s/:@?#[\]]+):\d+$/i.test(address);
  const text = hasScheme ? address : `${tls ? "https" : "http"}://${address}`;
  if ((!hasScheme && !isHostAndPort) || !URL.canParse(text)) {
    throw new TypeError(`an address is host:port, http://... or https://..., not ${JSON.stringify(address)}`);
  }
  const url = new URL(text);
  if (tls && url.protocol === "http:")
    throw new TypeError(`${address} is not reached over TLS: say https://`);
  return url;
}

function headers(apiKey: string | undefined): Interceptor {
  return (next) => (request) => {
    request.header.set("user-agent", `entracte-typescript/${VERSION}`);
    if (apiKey) request.header.set("authorization", `Bearer ${apiKey}`);
    return next(request);
  };
}
