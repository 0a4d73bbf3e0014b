/** A real server for the tests: the Python one of this repository, as a process of its own. */

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline/promises";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("../../../../", import.meta.url));
const START_MS = 30_000;

/** How a server is started. */
export interface ServerOptions {
  /** Default: a free port of the loopback interface. */
  readonly address?: string;
  /** The file of its database. Default: a temporary one. */
  readonly store?: string;
  /** Settings, as environment variables. */
  readonly env?: Readonly<Record<string, string>>;
}

/** A server that runs until it is stopped or killed, or this process ends. */
export class Server {
  readonly #process: ChildProcess;
  /** `host:port`. */
  readonly address: string;

  private constructor(process: ChildProcess, address: string) {
    this.#process = process;
    this.address = address;
  }

  /** Starts a server and waits until it serves. Throws when it does not within 30 seconds. */
  static async start({ address = "127.0.0.1:0", store, env = {} }: ServerOptions = {}): Promise<Server> {
    const given = ["-m", "tests.sdk_server", address, ...(store === undefined ? [] : [store])];
    const child = spawn(`${ROOT}.venv/bin/python`, given, {
      cwd: ROOT,
      env: { ...process.env, GRPC_VERBOSITY: "NONE", ...env },
      stdio: ["pipe", "pipe", "inherit"],
    });
    const signal = AbortSignal.timeout(START_MS);
    const [line] = await once(createInterface({ input: child.stdout }), "line", { signal });
    return new Server(child, String(line));
  }

  /** Stops it, as an operator does. */
  async stop(): Promise<void> {
    await this.#end(() => this.#process.stdin?.end());
  }

  /** Kills it, as an accident does. */
  async kill(): Promise<void> {
    await this.#end(() => this.#process.kill("SIGKILL"));
  }

  async #end(end: () => void): Promise<void> {
    if (this.#process.exitCode !== null || this.#process.signalCode !== null) return;
    const exit = once(this.#process, "exit");
    end();
    await exit;
  }
}

/** What the agent `play` is to answer, step by step. */
export function script(...steps: readonly (readonly object[])[]): string {
  return JSON.stringify(steps);
}
