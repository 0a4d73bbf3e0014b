/** What callers may ask for: the options of `generate` and `stream`, of decisions, and of every call. */

import type { Callbacks } from "./callbacks.js";
import type { ClientTool } from "./client-tools.js";
import type { MessagesInput } from "./messages.js";

/** A JSON Schema, or anything else that is sent as JSON: native values, `bigint` for large integers, or `Json`. */
export type JsonObject = object;

/** A condition that ends a run after a step; give exactly one of the fields. */
export interface StopWhen {
  /** So many steps were made. */
  readonly stepCount?: number;
  /** A tool of this name was called in the last step. */
  readonly toolCalled?: string;
  /** So many tokens were used. */
  readonly totalTokens?: number | bigint;
  /** So many millionths of the account's currency were spent. */
  readonly costMicros?: number | bigint;
  /** The last step's text contains this. */
  readonly textContains?: string;
  /** The predicate of this name, registered on the server, holds. */
  readonly predicate?: string;
}

/** Calls that a person must approve. */
export interface ToolApproval {
  /** Of tools with these names. */
  readonly names?: readonly string[];
  /** Of tools whose names fit: `*` any characters, `?` one, `[abc]` one of these. */
  readonly patterns?: readonly string[];
  /** For which one of these predicates, registered on the server, holds. */
  readonly predicates?: readonly string[];
  /** Of tools of these toolsets. */
  readonly toolsets?: readonly string[];
  /** For which an expression in CEL holds, by pattern: `{ refund: "args.amount_cents > 5000" }`. */
  readonly expressions?: Readonly<Record<string, string>>;
}

/** An answer that fits a JSON Schema of any kind of value. */
export interface StructuredOutput {
  readonly schema: JsonObject;
  /** A second model (`provider/model`) that turns the first one's prose into the object. */
  readonly model?: string;
  /** `strict` fails the run, `warn` gives a warning and no object, `fallback` gives `fallbackValue`. */
  readonly errorStrategy?: "strict" | "warn" | "fallback";
  readonly fallbackValue?: unknown;
  /** Said to the model that makes the object. */
  readonly instructions?: string;
  /** Where the model is told the schema; `true` is `system`, `false` is `off`. */
  readonly jsonPromptInjection?: "auto" | "off" | "system" | "inline" | boolean;
  /** For the second model, as in {@link GenerateOptions.providerOptions}. */
  readonly providerOptions?: JsonObject;
}

/** A processor registered on the server, with its parameters. */
export interface Processor {
  readonly name: string;
  readonly parameters?: JsonObject;
}

/** A conversation by id, with what to create it with where it does not exist. */
export interface Thread {
  readonly id: string;
  readonly title?: string;
  readonly metadata?: JsonObject;
}

/** Search in older messages. */
export interface SemanticRecall {
  /** How many hits. Default 4. */
  readonly topK?: number;
  /** How many messages around each. Default 1. */
  readonly messageRange?: number;
  readonly scope?: "thread" | "resource";
}

/** The conversation a run belongs to. */
export interface Memory {
  /** An id, or a thread to be created with a title and metadata. */
  readonly thread?: string | Thread;
  /** Whose memory it is, for example a user's id. */
  readonly resource: string;
  /** How many of the last messages are shown to the model; 0: none. */
  readonly lastMessages?: number;
  readonly saveMessages?: boolean;
  readonly readOnly?: boolean;
  readonly semanticRecall?: SemanticRecall;
  readonly workingMemory?: boolean;
  readonly filterIncompleteToolCalls?: boolean;
  readonly generateTitle?: boolean;
  /** While another run has the thread: the run is refused (the default), or waits for it. */
  readonly onBusyThread?: "refuse" | "queue";
  /** While the run that has the thread is parked: refused (the default), `cancel` that one, or wait. */
  readonly onParkedThread?: "refuse" | "cancel" | "queue";
  readonly queueTimeoutMs?: number;
  /** About how many tokens of older messages are shown at most. */
  readonly maxHistoryTokens?: number;
}

/** What telemetry may record of a run; what is absent is as the agent says. */
export interface Telemetry {
  readonly isEnabled?: boolean;
  readonly recordInputs?: boolean;
  readonly recordOutputs?: boolean;
  readonly functionId?: string;
}

/** Sampling and limits of model calls. What is absent is left to the provider. */
export interface ModelSettings {
  /** 0 to 2. */
  readonly temperature?: number;
  readonly maxOutputTokens?: number;
  /** Of a call that failed before its answer began. Default 2. */
  readonly maxRetries?: number;
  /** 0 to 1. */
  readonly topP?: number;
  readonly topK?: number;
  /** -2 to 2. */
  readonly presencePenalty?: number;
  /** -2 to 2. */
  readonly frequencyPenalty?: number;
  readonly stopSequences?: readonly string[];
  readonly seed?: number | bigint;
  /** HTTP headers added to the call. */
  readonly headers?: Readonly<Record<string, string>>;
}

/**
 * Whether and which tool the model must call: as it likes, none, at least one, or a `tool`. What forces a call holds
 * until it was made; with `everyStep` for the whole run.
 */
export type ToolChoice =
  | "auto"
  | "none"
  | "required"
  | { readonly mode: "auto" | "none" | "required"; readonly everyStep?: boolean }
  | { readonly tool: string; readonly everyStep?: boolean };

/** How a run appears in traces. */
export interface TracingOptions {
  /** Attributes of its spans. */
  readonly metadata?: JsonObject;
  /** Keys of the request context that are attributes, too; dots reach nested ones. */
  readonly requestContextKeys?: readonly string[];
  /** 1 to 32 hexadecimal digits. */
  readonly traceId?: string;
  /** 1 to 16 hexadecimal digits. */
  readonly parentSpanId?: string;
  readonly tags?: readonly string[];
}

/** Which version of a data-defined agent: by its status, or by its id. */
export type Version = "draft" | "published" | { readonly versionId: string };

/** Checks made when the model wants to stop, by the names of scorers on the server; a score of 1 passes. */
export interface TaskCompletion {
  readonly scorers: readonly string[];
  readonly strategy?: "all" | "any";
  readonly parallel?: boolean;
  /** Bounds all of them. Default 600,000. */
  readonly timeoutMs?: number;
  /** The model is told nothing about a failed check. */
  readonly suppressFeedback?: boolean;
  /** The name of a hook on the server that is shown every score. */
  readonly onComplete?: string;
}

/** Hooks around tool calls, by the names under which they are registered on the server. */
export interface ToolHooks {
  readonly beforeToolCall?: string;
  readonly afterToolCall?: string;
}

/** Hooks around delegations to sub-agents, by the names under which they are registered on the server. */
export interface Delegation {
  readonly onDelegationStart?: string;
  readonly onDelegationComplete?: string;
  readonly messageFilter?: string;
  /** What an error of theirs means: `warn` goes on without, `throw` fails the call that delegates. */
  readonly hookErrorStrategy?: "warn" | "throw";
}

/** How a scorer is run on results. */
export interface Scorer {
  /** Its registered name; the key where absent. */
  readonly scorer?: string;
  /** The share of runs that are scored, 0 to 1. Default: all. */
  readonly samplingRatio?: number;
  /** The same in words: `none` for all of them, `ratio` for that share. */
  readonly sampling?: "none" | "ratio";
}

/** How long the run's pending calls may wait for people, and what happens to one that expires. */
export interface PendingCallExpiry {
  readonly afterMs: number;
  /** It is declined (the default), the run fails, or it is given its answer (the default with answers). */
  readonly action?: "decline" | "fail" | "answer";
  /** Answers by tool name. */
  readonly defaultAnswers?: Readonly<Record<string, unknown>>;
}

/** What every call takes. */
export interface CallOptions {
  /**
   * The longest to wait for the answer, in milliseconds; `Infinity` waits for ever. It bounds the wait and never the
   * run. Default: the client's for plain requests, for ever where a run is waited for.
   */
  readonly timeoutMs?: number | undefined;
  /** Ends the wait when it is aborted: the call throws the signal's reason. The run goes on. */
  readonly signal?: AbortSignal | undefined;
}

/**
 * The options of `generate` and `stream`. What is absent is left to the agent's own setting, then to the server's
 * default. They are stored with the run and hold over every suspension; only callbacks and functions of client tools
 * live in this process and are given again with a decision.
 */
export interface GenerateOptions extends Callbacks, CallOptions {
  /** The id of the run: letters, digits, `-`, `_`, `.`, `:`, up to 128. Made by the SDK if absent. */
  readonly runId?: string;
  /** Makes the request safe to repeat: given again with the same input and options, it joins the run it started. */
  readonly requestId?: string;
  /** The most model calls of the whole run. Default 5. */
  readonly maxSteps?: number;
  /** Conditions that end the run after a step; any is enough. */
  readonly stopWhen?: StopWhen | readonly StopWhen[];
  /** The tools the model may use; an empty list: none. Default: all of the agent's. */
  readonly activeTools?: readonly string[];
  /** Calls a person must approve first: all, or those of tools by name or pattern (`"pay_*"`). */
  readonly requireToolApproval?: boolean | string | readonly string[] | ToolApproval;
  /** Whether a new message on a thread whose run waits for an answer is taken as that answer. */
  readonly autoResumeSuspendedTools?: boolean;
  /** The most tools of one step that run at the same time. Default 10. */
  readonly toolCallConcurrency?: number;
  /** Messages added after the system messages and before the input. */
  readonly context?: MessagesInput;
  /** An answer that fits a schema, in `result.object`: the schema, or with more to say. */
  readonly structuredOutput?: StructuredOutput | JsonObject;
  /** @deprecated The same with nothing but a schema. Use `structuredOutput`. */
  readonly output?: JsonObject;
  /** Processors of what goes to the model, replacing the agent's. */
  readonly inputProcessors?: readonly (string | Processor)[];
  /** Processors of what the model says, replacing the agent's. */
  readonly outputProcessors?: readonly (string | Processor)[];
  /** How often processors may send a step back for another try. */
  readonly maxProcessorRetries?: number;
  /** System messages that replace the agent's instructions. */
  readonly instructions?: MessagesInput;
  /** System messages added after the instructions. */
  readonly system?: MessagesInput;
  /** The conversation the run belongs to. */
  readonly memory?: Memory;
  /** What telemetry may record. */
  readonly telemetry?: Telemetry;
  /** Sampling and limits of the model calls. */
  readonly modelSettings?: ModelSettings;
  /** Whether and which tool the model must call. */
  readonly toolChoice?: ToolChoice;
  /** Names of toolsets registered on the server, added to the agent's tools. */
  readonly toolsets?: readonly string[];
  /** Tools that this process executes, or whose calls are answered with `submitToolResult`. */
  readonly clientTools?: readonly ClientTool[];
  /** Whether messages are saved to the thread after each step rather than at the end. */
  readonly savePerStep?: boolean;
  /** Options by provider: `{ openai: { reasoningEffort: "low" } }`. */
  readonly providerOptions?: JsonObject;
  /** Values for tools and hooks; never part of a prompt. */
  readonly requestContext?: JsonObject;
  /** How the run appears in traces. */
  readonly tracingOptions?: TracingOptions;
  /** Which versions of data-defined agents to use, by agent id. */
  readonly versions?: Readonly<Record<string, Version>>;
  /** Whether the provider's own events are streamed as `raw` chunks. */
  readonly includeRawChunks?: boolean;
  /** Checks made when the model wants to stop. */
  readonly isTaskComplete?: TaskCompletion;
  /** Scorers that judge the result after the reply: names, or by name a share of runs (`null`: all) or more. */
  readonly scorers?: readonly string[] | Readonly<Record<string, Scorer | number | null>>;
  /** Whether the result carries what scorers see, in `result.scoringData`. */
  readonly returnScorerData?: boolean;
  /** The longest the run may execute, time spent waiting for people excluded. */
  readonly executionTimeoutMs?: number;
  /** Whether the run is cancelled when nobody has followed it for 10 seconds. */
  readonly cancelOnDisconnect?: boolean;
  /** Whether `result.request` carries the body of the last model call. */
  readonly includeRequestBody?: boolean;
  /** How long the run's pending calls may wait; just a number of milliseconds declines them then. */
  readonly pendingCallExpiry?: number | PendingCallExpiry;
  /** The longest a model call may wait in all for its provider's rate limit. */
  readonly rateLimitWaitMs?: number;
  /** The name of a hook on the server that is called after each step. */
  readonly onIterationComplete?: string;
  /** The name of a hook on the server that is called before each step. */
  readonly prepareStep?: string;
  /** Hooks around tool calls, by their names on the server. */
  readonly hooks?: ToolHooks;
  /** Hooks around delegations to sub-agents, by their names on the server. */
  readonly delegation?: Delegation;
  /** The caller's span, as a W3C `traceparent` header. */
  readonly traceparent?: string;
}

/** The options that all decisions take. */
export interface DecisionOptions extends Callbacks, CallOptions {
  /** With `toolCallId`, or alone while one call waits: names the call in place of its id. */
  readonly runId?: string;
  /** The call, together with `runId`. */
  readonly toolCallId?: string;
  /** Makes the decision safe to repeat; made by the SDK if absent. */
  readonly requestId?: string;
  /** For whom the caller decides; kept in the audit, not verified. */
  readonly onBehalfOf?: string;
  /** A note for the audit; the model does not see it. */
  readonly comment?: string;
  /** Functions for the run's client tools, should it call them next. */
  readonly clientTools?: readonly ClientTool[];
  /** The span of whoever decides, as a W3C `traceparent` header. */
  readonly traceparent?: string;
}
