/** Callbacks that observe a run. They cannot hold up or change what they observe. */

import { setTimeout as sleep } from "node:timers/promises";
import type { AbortChunk, Chunk } from "./chunks.js";
import type { EntracteError } from "./errors.js";
import type { RunError } from "./outcomes.js";
import type { GenerateResult, StepResult } from "./results.js";

/** A function that is told something; what it returns is not looked at, and a promise is waited for. */
export type Callback<T> = (value: T) => unknown;

/**
 * Functions that are told what happens.
 *
 * They are called in order, beside the stream: one that is slow does not slow it down, one that throws is reported
 * with `console.error`. At the end those still behind get 5 seconds.
 */
export interface Callbacks {
  /** Every chunk, sub-agents' too. */
  readonly onChunk?: Callback<Chunk> | undefined;
  /** Each step of the run's own agent, when it has ended. */
  readonly onStepFinish?: Callback<StepResult> | undefined;
  /** The result, once, when the run has ended other than by an error or a cancellation. A run that parks has not. */
  readonly onFinish?: Callback<GenerateResult> | undefined;
  /** Why the run failed, or why its stream could not be read. */
  readonly onError?: Callback<RunError | EntracteError> | undefined;
  /** The run was cancelled. */
  readonly onAbort?: Callback<AbortChunk> | undefined;
  /** The title that the run's thread was given, if any. The end of the stream waits 30 seconds for it at most. */
  readonly onTitleGenerated?: Callback<string> | undefined;
}

/** The names of all callbacks. */
export const CALLBACK_NAMES = [
  "onChunk",
  "onStepFinish",
  "onFinish",
  "onError",
  "onAbort",
  "onTitleGenerated",
] as const satisfies readonly (keyof Callbacks)[];

type Name = (typeof CALLBACK_NAMES)[number];
type Told<N extends Name> = Parameters<NonNullable<Callbacks[N]>>[0];

const GRACE_MS = 5000;

/** Whether there is any callback among options. */
export function hasCallbacks(options: Callbacks): boolean {
  return CALLBACK_NAMES.some((name) => options[name] !== undefined);
}

/** Calls callbacks, one after the other. */
export class Observer {
  readonly #callbacks: Callbacks;
  #last: Promise<void> = Promise.resolve();
  #waiting = 0;

  constructor(callbacks: Callbacks) {
    this.#callbacks = callbacks;
  }

  /** Whether there is such a callback. */
  wants(name: Name): boolean {
    return this.#callbacks[name] !== undefined;
  }

  /** Have a callback called, if there is one. */
  emit<N extends Name>(name: N, value: Told<N>): void {
    const callback = this.#callbacks[name] as Callback<Told<N>> | undefined;
    if (callback === undefined) return;
    this.#waiting += 1;
    this.#last = this.#last.then(async () => {
      try {
        await callback(value);
      } catch (error) {
        console.error(`entracte: the callback ${name} threw`, error);
      } finally {
        this.#waiting -= 1;
      }
    });
  }

  /** Wait until all were called, for five seconds at most. */
  async drain(): Promise<void> {
    if (this.#waiting === 0) return;
    const timer = new AbortController();
    const late = sleep(GRACE_MS, true, { signal: timer.signal }).catch(() => false);
    const isLate = await Promise.race([this.#last.then(() => false), late]);
    timer.abort();
    if (isLate) console.error(`entracte: callbacks did not end within ${GRACE_MS} ms and were given up`);
  }
}
