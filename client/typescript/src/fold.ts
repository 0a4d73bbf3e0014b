/** What the chunks of a run add up to. */

import type { Chunk, FinishChunk } from "./chunks.js";
import type { FinishReason } from "./enums.js";
import type { Json } from "./json.js";
import { type RunError, type Tripwire, type Usage, usageOf } from "./outcomes.js";
import type { StepResult } from "./results.js";
import type { ToolCallChunk, ToolResultChunk } from "./tool-chunks.js";

class Step {
  readonly texts: string[] = [];
  readonly thoughts: string[] = [];
  readonly toolCalls: ToolCallChunk[] = [];
  readonly toolResults: ToolResultChunk[] = [];
  finishReason: FinishReason | undefined;
  usage: Usage = usageOf(undefined);
  tripwire: Tripwire | undefined;
  isDraft = false;
  object: Json | undefined;
  isObjectValid = false;

  constructor(
    readonly number: number,
    readonly attempt: number,
  ) {}

  result(): StepResult {
    return {
      step: this.number,
      text: this.texts.join(""),
      toolCalls: [...this.toolCalls],
      toolResults: [...this.toolResults],
      finishReason: this.finishReason,
      usage: this.usage,
      request: undefined,
      response: undefined,
      reasoningText: this.thoughts.join(""),
      tripwire: this.tripwire,
      isDraft: this.isDraft,
    };
  }
}

/**
 * Folds chunks into text, steps and usage, for showing a run while it goes on.
 *
 * Feed it every chunk in order with `add`. It looks at the run's own agent only, and drops what a new attempt of a
 * step made void. It knows what it was fed: of a run that is followed from its middle, only that part.
 */
export class Fold {
  readonly #steps = new Map<number, Step>();
  #finish: FinishChunk | undefined;
  #error: RunError | undefined;

  /** How the run parked or ended; `undefined` while it goes on. */
  get finish(): FinishChunk | undefined {
    return this.#finish;
  }

  /** Why the run failed. */
  get error(): RunError | undefined {
    return this.#error;
  }

  /** The text of all steps so far, drafts left out. */
  get text(): string {
    const steps = [...this.#steps.values()].filter((step) => !step.isDraft);
    return steps.map((step) => step.texts.join("")).join("");
  }

  /**
   * The structured output as far as it has come: in part while the model writes it, at last validated. `undefined`
   * where the last step has none.
   */
  get object(): Json | undefined {
    const last = [...this.#steps.values()].at(-1);
    return last === undefined || last.isDraft ? undefined : last.object;
  }

  /** The steps so far, the last one perhaps in progress. */
  get steps(): StepResult[] {
    return [...this.#steps.values()].map((step) => step.result());
  }

  /** Tokens of the run, as of its last `finish`. */
  get usage(): Usage {
    return this.#finish?.usage ?? usageOf(undefined);
  }

  /** Take in the next chunk. Returns the step that it ended, if it ended one. */
  add(chunk: Chunk): StepResult | undefined {
    if (chunk.agentPath.length > 0) return undefined;
    if (chunk.type === "finish") {
      this.#finish = chunk;
      if (chunk.reason !== "suspended") this.#end();
      return undefined;
    }
    this.#finish = undefined;
    if (chunk.type === "error") this.#error = chunk.error;
    // These begin no step.
    if (chunk.step === 0 || chunk.type === "error" || chunk.type === "abort") return undefined;
    let step = this.#steps.get(chunk.step);
    if (step !== undefined && chunk.attempt < step.attempt) return undefined;
    if (step === undefined || chunk.attempt > step.attempt) {
      step = new Step(chunk.step, chunk.attempt);
      this.#steps.set(chunk.step, step);
    }
    return addTo(step, chunk);
  }

  /** What is left of an object in a step that was cut never was one. */
  #end(): void {
    for (const step of this.#steps.values()) {
      if (!step.isObjectValid) step.object = undefined;
    }
  }
}

function addTo(step: Step, chunk: Chunk): StepResult | undefined {
  switch (chunk.type) {
    case "text-delta":
      step.texts.push(chunk.text);
      break;
    case "reasoning-delta":
      step.thoughts.push(chunk.text);
      break;
    case "tool-call":
      step.toolCalls.push(chunk);
      break;
    case "tool-result":
      step.toolResults.push(chunk);
      break;
    case "object":
      step.object = chunk.object;
      break;
    case "object-result":
      step.object = chunk.object;
      step.isObjectValid = true;
      break;
    case "tripwire":
      step.tripwire = chunk.tripwire;
      break;
    case "is-task-complete":
      step.isDraft = !chunk.passed && !chunk.endsRun;
      break;
    case "step-finish":
      step.finishReason = chunk.reason;
      step.usage = chunk.usage;
      if (!step.isObjectValid) step.object = undefined;
      return step.result();
  }
  return undefined;
}
