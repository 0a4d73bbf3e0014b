/** The client: one connection to a server, and what can be asked of it. */

import { AgentClient } from "./agent.js";
import { type ClientOptions, Connection } from "./connection.js";
import { InboxClient } from "./inbox.js";
import { only } from "./options-codec.js";
import { RunsClient } from "./runs.js";
import { ThreadsClient } from "./threads.js";

/**
 * A connection to an Entracte server.
 *
 *     const client = new Client("localhost:50051");
 *     const result = await client.agent("support").generate("Hello");
 *     client.close();
 *
 * It keeps one connection: make one client and share it. Nothing is connected before the first call. An open connection
 * keeps the process alive: close it, or write `await using client = new Client(...)`.
 */
export class Client {
  readonly #connection: Connection;
  /** Looking at runs, following them, ending them. */
  readonly runs: RunsClient;
  /** What waits for people, and what people decided. */
  readonly inbox: InboxClient;
  /** Conversations: making, reading, changing and deleting them. */
  readonly threads: ThreadsClient;

  /** `address` is `host:port`, or a URL with `http://` or `https://`. Throws `TypeError` for what is neither. */
  constructor(address = "localhost:50051", options: ClientOptions = {}) {
    only(options, ["apiKey", "tls", "timeoutMs", "reattachTimeoutMs"], "a client has");
    this.#connection = new Connection(address, options);
    this.runs = new RunsClient(this.#connection);
    this.inbox = new InboxClient(this.#connection);
    this.threads = new ThreadsClient(this.#connection);
  }

  /** An agent by its id. Whether it exists shows when a run is started: AgentNotFound. */
  agent(agentId: string): AgentClient {
    return new AgentClient(this.#connection, agentId);
  }

  /** Close the connection. Streams and waits that are open end with an error. */
  close(): void {
    this.#connection.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }
}
