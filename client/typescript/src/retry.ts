/** When to try again, and how long to wait before. */

import { setTimeout as sleep } from "node:timers/promises";
import { DeadlineExceeded, type EntracteError } from "./errors.js";

const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 5000;
/** How often a server that never answered is tried. */
const FIRST_ATTEMPTS = 4;
/** What the protocol can say: 8 digits. */
const LONGEST_TIMEOUT_MS = 99_999_999;

/** What proxies and the transport say when a connection breaks; the server's own statuses have a reason. */
const BROKEN: ReadonlySet<string> = new Set(["UNKNOWN", "INTERNAL"]);

/** The end of a wait of so many milliseconds; `undefined` or `Infinity` waits for ever. */
export class Deadline {
  readonly #end: number;

  constructor(timeoutMs: number | undefined) {
    if (timeoutMs !== undefined && timeoutMs !== Number.POSITIVE_INFINITY) {
      if (!(timeoutMs >= 0 && timeoutMs <= LONGEST_TIMEOUT_MS)) {
        throw new TypeError(`timeoutMs is from 0 to ${LONGEST_TIMEOUT_MS}, or Infinity, not ${timeoutMs}`);
      }
    }
    this.#end = performance.now() + (timeoutMs ?? Number.POSITIVE_INFINITY);
  }

  /** Whole milliseconds left, `undefined` without end. Throws DeadlineExceeded when there are none. */
  remaining(): number | undefined {
    if (this.#end === Number.POSITIVE_INFINITY) return undefined;
    const left = Math.ceil(this.#end - performance.now());
    if (left <= 0) throw new DeadlineExceeded("the timeout passed; the run goes on");
    return left;
  }

  /** Whether there is time for a pause. */
  allows(pauseMs: number): boolean {
    return performance.now() + pauseMs < this.#end;
  }
}

/**
 * Pauses between attempts: growing, with jitter, never shorter than the server asked for.
 *
 * Gives up after a few attempts where the server never answered, and after the patience ran out without progress where
 * it did, in this call or before (`reached`), or asks to come back.
 */
export class Backoff {
  readonly #patienceMs: number;
  readonly #deadline: Deadline;
  readonly #reached: () => boolean;
  #failures = 0;
  #since: number | undefined;
  #begun = performance.now();
  #attached = false;

  constructor(patienceMs: number, deadline: Deadline, reached: () => boolean) {
    this.#patienceMs = patienceMs;
    this.#deadline = deadline;
    this.#reached = reached;
  }

  /** An attempt begins. */
  begin(): void {
    this.#begun = performance.now();
  }

  /**
   * The server answered. That alone is progress only when the attempt has lasted a while, or else one that answers
   * and fails, over and over, would be tried for ever.
   */
  answered(): void {
    this.#attached = true;
    if (performance.now() - this.#begun > LONGEST_PAUSE_MS) this.progress();
  }

  /** Something new arrived: the count starts again. */
  progress(): void {
    this.#attached = true;
    this.#failures = 0;
    this.#since = undefined;
  }

  /**
   * Whether a call that failed may be made again: the server was unavailable, or the connection to one that had
   * answered broke, or one that had taken this call said when to come back.
   */
  mayTryAgain(error: EntracteError): boolean {
    if (error.code === "UNAVAILABLE") return true;
    if (!error.reason && BROKEN.has(error.code)) return this.#attached || this.#reached();
    return this.#attached && error.retryAfterMs !== undefined;
  }

  /** Wait before the next attempt. Throws `error` when there is to be none, the signal's reason when it is aborted. */
  async pause(error: EntracteError, signal: AbortSignal | undefined): Promise<void> {
    const now = performance.now();
    this.#failures += 1;
    this.#since ??= now;
    const growing = FIRST_PAUSE_MS * 2 ** Math.min(this.#failures - 1, 16);
    let pause = Math.min(LONGEST_PAUSE_MS, growing) * (0.5 + Math.random() / 2);
    if (error.retryAfterMs !== undefined) {
      pause = Math.max(pause, error.retryAfterMs);
    } else if (!(this.#attached || this.#reached()) && this.#failures >= FIRST_ATTEMPTS) {
      throw error;
    }
    if (now + pause - this.#since > this.#patienceMs || !this.#deadline.allows(pause)) throw error;
    try {
      await sleep(pause, undefined, { signal });
    } catch {
      throw signal?.reason;
    }
  }
}
