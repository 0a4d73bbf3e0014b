/** Tools that the caller executes. */

import { create } from "@bufbuild/protobuf";
import {
  type SubmitToolResultRequest,
  SubmitToolResultRequestSchema,
} from "./gen/entracte/v1/agent_service_pb.js";
import { type ClientTool as ClientToolMessage, ClientToolSchema } from "./gen/entracte/v1/options_pb.js";
import { newId } from "./ids.js";
import { Json, type JsonValue } from "./json.js";
import { toOptionalJson } from "./outcomes.js";

/** What a client tool's function is told beside its arguments. */
export interface ClientToolContext {
  readonly toolCallId: string;
  readonly pendingCallId: string;
  /** The exact text of the arguments. */
  readonly argsText: string;
  /** Aborted when nobody follows the run here any more; what the function returns is then not handed in. */
  readonly signal: AbortSignal;
}

/** A tool that this process executes. */
export interface ClientTool {
  /** 1 to 64 letters, digits, `_` and `-`; not one of the agent's tools. */
  readonly name: string;
  readonly description?: string;
  /** The JSON Schema of the arguments, an object schema. Absent: no arguments. */
  readonly inputSchema?: object;
  /**
   * Does it. What it returns (or resolves to) goes to the model as JSON, `undefined` as `null`; what it throws goes
   * there as an error, its message only. Without it the caller answers the tool's calls with `agent.submitToolResult`.
   */
  // biome-ignore lint/suspicious/noExplicitAny: the schema vouches for the type of the arguments
  execute?(args: any, context: ClientToolContext): unknown;
}

/** Writes a client tool. Throws `TypeError` for one without a name. */
export function toClientTool(tool: ClientTool): ClientToolMessage {
  if (typeof tool !== "object" || tool === null || typeof tool.name !== "string") {
    throw new TypeError("a client tool is an object with a name, a description, an inputSchema and execute");
  }
  return create(ClientToolSchema, {
    name: tool.name,
    description: tool.description ?? "",
    inputSchema: toOptionalJson(tool.inputSchema),
  });
}

/** What a client tool came to: the JSON of what it returned, or why it failed. */
export type ToolOutcome = { readonly result: Json } | { readonly error: string };

/** Run a client tool's function. What it throws is an outcome: its message goes to the model. */
export async function execute(
  tool: ClientTool,
  args: JsonValue,
  context: ClientToolContext,
): Promise<ToolOutcome> {
  let value: unknown;
  try {
    value = await tool.execute?.(args ?? {}, context);
  } catch (error) {
    return {
      error: (error instanceof Error ? error.message || error.name : String(error)) || "the tool failed",
    };
  }
  try {
    return { result: Json.of(value === undefined ? null : value) };
  } catch (error) {
    return {
      error: `the tool returned something that is not JSON: ${error instanceof Error ? error.message : error}`,
    };
  }
}

/** The request that hands in what a client tool came to. */
export function submission(pendingCallId: string, outcome: ToolOutcome): SubmitToolResultRequest {
  return create(SubmitToolResultRequestSchema, {
    requestId: newId(),
    call: { pendingCallId },
    outcome:
      "result" in outcome
        ? { case: "result", value: { text: outcome.result.text } }
        : { case: "error", value: outcome.error },
  });
}
