/** One command that is carried out: what it writes, and how fast it reads a stream. */

import { type ClientTool, Json } from "@entracte/client";
import { type Asked, camel, given, native } from "./asked.js";
import { jvalue, observed } from "./written.js";

/** Why a command ends that is to be cancelled. */
export const CANCELLED = new Error("cancelled");

export class Command {
  readonly controller = new AbortController();
  #allowed: number | undefined;
  #wake: () => void = () => {};

  constructor(
    readonly asked: Asked,
    private readonly out: (line: object) => void,
  ) {
    this.#allowed = asked.pull ?? undefined;
    this.controller.signal.addEventListener("abort", () => this.#wake());
  }

  write(line: object): void {
    this.out({ id: this.asked.id, ...line });
  }

  cancel(): void {
    this.controller.abort(CANCELLED);
  }

  /** Allow so many elements more; without a number all. */
  pull(count: number | null | undefined): void {
    this.#allowed =
      this.#allowed === undefined || typeof count !== "number" ? undefined : this.#allowed + count;
    this.#wake();
  }

  /** Until another element may be asked for. */
  async turn(): Promise<void> {
    while (this.#allowed === 0) {
      this.controller.signal.throwIfAborted();
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
    if (this.#allowed !== undefined) this.#allowed -= 1;
  }

  /** The signal, and the observers and client tools that are asked for. */
  extras(): Asked {
    const names: string[] = this.asked.observe ?? [];
    const tools: Asked[] = this.asked.client_tools ?? [];
    return {
      signal: this.controller.signal,
      ...Object.fromEntries(names.map((name) => [camel(name), this.#observer(name)])),
      ...(tools.length > 0 && { clientTools: tools.map((tool) => this.#clientTool(tool)) }),
    };
  }

  #observer(name: string): (value: unknown) => void {
    return (value) => {
      this.write({ event: { name, value: observed(name, value) } });
      if (this.asked.observer_raises) throw new Error("an observer that throws");
    };
  }

  #clientTool(tool: Asked): ClientTool {
    const described = given(tool, "name", "description", "input_schema") as ClientTool;
    const does: Asked | undefined = tool.function;
    if (!does) return described;
    return {
      ...described,
      execute: (args, { argsText }) => {
        const value = { tool: tool.name, args: { ...jvalue(Json.of(args)), text: argsText } };
        this.write({ event: { name: "client-tool", value } });
        if (does.raises !== undefined) throw new Error(does.raises);
        return does.echo ? args : native(does.returns);
      },
    };
  }
}
