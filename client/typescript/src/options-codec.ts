/** Options to the wire: one entry in ENCODERS for each field of `GenerateOptions` in the contract. */

import { create, type DescEnum, type MessageInitShape } from "@bufbuild/protobuf";
import { toClientTool } from "./client-tools.js";
import { Names } from "./enums.js";
import * as pb from "./gen/entracte/v1/options_pb.js";
import { ExpiryActionSchema } from "./gen/entracte/v1/pending_call_pb.js";
import { toMessages } from "./message-codec.js";
import type * as o from "./options.js";
import { toDuration, toJson, toOptionalJson } from "./outcomes.js";

type Fields = MessageInitShape<typeof pb.GenerateOptionsSchema>;
type Given = o.GenerateOptions;
type Encoders = { [Name in keyof Given]-?: ((value: NonNullable<Given[Name]>) => Fields) | null };

/** Writes the options that have a field in the contract. Throws `TypeError`, naming the option, for a wrong value. */
export function toOptions(options: Given): pb.GenerateOptions {
  const fields: Fields = {};
  for (const [name, value] of Object.entries(options)) {
    if (value === undefined || value === null) continue;
    const encode = ENCODERS[name as keyof Given] as ((value: unknown) => Fields) | null;
    if (encode === null) continue;
    try {
      Object.assign(fields, encode(value));
    } catch (error) {
      throw new TypeError(`option ${name}: ${error instanceof Error ? error.message : error}`, {
        cause: error,
      });
    }
  }
  return create(pb.GenerateOptionsSchema, fields);
}

/** Throws `TypeError` for an option that does not exist: a compiler does not see everything. */
export function checkGenerateOptions(options: Given): void {
  only(options, Object.keys(ENCODERS), "generate and stream have");
}

/** Throws `TypeError` for a field other than the known ones. */
export function only(value: object, known: readonly string[], what: string): void {
  const name = Object.keys(value).find((key) => !known.includes(key));
  if (name !== undefined) throw new TypeError(`${what} no option ${name}; there are ${known.join(", ")}`);
}

/** Puts a record's fields aside; throws for what is left over, which are fields it does not have. */
function none(rest: object): void {
  only(rest, [], "there is");
}

function strings(value: readonly string[]): string[] {
  if (!Array.isArray(value)) throw new TypeError(`expected a list of names, not ${typeof value}`);
  return [...value];
}

function enumNumber(schema: DescEnum, name: string | undefined, what: string): number | undefined {
  return name === undefined ? undefined : new Names(schema).number(name, what);
}

function stopCondition({ ...given }: o.StopWhen): pb.StopCondition {
  const entries = Object.entries(given).filter(([, value]) => value !== undefined);
  const [first] = entries;
  const names = ["stepCount", "toolCalled", "totalTokens", "costMicros", "textContains", "predicate"];
  only(given, names, "a condition has");
  if (entries.length !== 1 || !first)
    throw new TypeError(`a condition has exactly one of ${names.join(", ")}`);
  const [name, value] = first;
  const isBig = name === "totalTokens" || name === "costMicros";
  const condition = { case: name, value: isBig ? BigInt(value) : value };
  return create(pb.StopConditionSchema, { condition } as MessageInitShape<typeof pb.StopConditionSchema>);
}

function toolApproval(value: NonNullable<Given["requireToolApproval"]>): Fields["requireToolApproval"] {
  if (typeof value === "boolean") return { policy: { case: "all", value } };
  const rules =
    typeof value === "string" || Array.isArray(value) ? rulesOf([value].flat()) : (value as o.ToolApproval);
  const { names, patterns, predicates, toolsets, expressions, ...rest } = rules;
  none(rest);
  return {
    policy: {
      case: "rules",
      value: {
        names: strings(names ?? []),
        patterns: strings(patterns ?? []),
        predicates: strings(predicates ?? []),
        toolsets: strings(toolsets ?? []),
        expressions: Object.entries(expressions ?? {}).map(([tool, expression]) => ({ tool, expression })),
      },
    },
  };
}

function rulesOf(texts: readonly string[]): o.ToolApproval {
  const isPattern = (text: string): boolean => /[*?[]/.test(text);
  return { names: texts.filter((text) => !isPattern(text)), patterns: texts.filter(isPattern) };
}

function structuredOutput(value: NonNullable<Given["structuredOutput"]>): Fields["structuredOutput"] {
  // No JSON Schema has a keyword `schema`.
  const output = "schema" in value ? (value as o.StructuredOutput) : { schema: value };
  const {
    schema,
    model,
    errorStrategy,
    fallbackValue,
    instructions,
    jsonPromptInjection,
    providerOptions,
    ...rest
  } = output as o.StructuredOutput;
  none(rest);
  const injection =
    typeof jsonPromptInjection === "boolean" ? (jsonPromptInjection ? "system" : "off") : jsonPromptInjection;
  return {
    schema: toJson(schema),
    model,
    errorStrategy: enumNumber(pb.StructuredOutput_ErrorStrategySchema, errorStrategy, "errorStrategy"),
    fallbackValue: toOptionalJson(fallbackValue),
    instructions,
    jsonPromptInjection: enumNumber(
      pb.StructuredOutput_PromptInjectionSchema,
      injection,
      "jsonPromptInjection",
    ),
    providerOptions: toOptionalJson(providerOptions),
  };
}

function processors(value: readonly (string | o.Processor)[]): Fields["inputProcessors"] {
  return {
    processors: value.map((item) => {
      const { name, parameters, ...rest } =
        typeof item === "string" ? { name: item, parameters: undefined } : item;
      none(rest);
      return { name, parameters: toOptionalJson(parameters) };
    }),
  };
}

function memory(value: o.Memory): Fields["memory"] {
  const { thread, semanticRecall, onBusyThread, onParkedThread, queueTimeoutMs, ...plain } = value;
  const known = ["resource", "lastMessages", "saveMessages", "readOnly", "workingMemory"];
  only(plain, [...known, "filterIncompleteToolCalls", "generateTitle", "maxHistoryTokens"], "memory has");
  return {
    ...plain,
    thread:
      thread === undefined ? undefined : threadRef(typeof thread === "string" ? { id: thread } : thread),
    semanticRecall: semanticRecall && recall(semanticRecall),
    onBusyThread: enumNumber(pb.OnBusyThreadSchema, onBusyThread, "onBusyThread"),
    onParkedThread: enumNumber(pb.OnParkedThreadSchema, onParkedThread, "onParkedThread"),
    queueTimeout: queueTimeoutMs === undefined ? undefined : toDuration(queueTimeoutMs, "queueTimeoutMs"),
  };
}

function threadRef({ id, title, metadata, ...rest }: o.Thread) {
  none(rest);
  return { id, title, metadata: toOptionalJson(metadata) };
}

function recall({ topK, messageRange, scope, ...rest }: o.SemanticRecall) {
  none(rest);
  return { topK, messageRange, scope: enumNumber(pb.SemanticRecall_ScopeSchema, scope, "scope") };
}

function telemetry({ isEnabled, recordInputs, recordOutputs, functionId, ...rest }: o.Telemetry) {
  none(rest);
  return { isEnabled, recordInputs, recordOutputs, functionId };
}

function modelSettings(value: o.ModelSettings): Fields["modelSettings"] {
  const { seed, stopSequences, headers, ...plain } = value;
  const known = ["temperature", "maxOutputTokens", "maxRetries", "topP", "topK", "presencePenalty"];
  only(plain, [...known, "frequencyPenalty"], "modelSettings has");
  return {
    ...plain,
    seed: seed === undefined ? undefined : BigInt(seed),
    stopSequences: strings(stopSequences ?? []),
    headers: { ...headers },
  };
}

function toolChoice(value: o.ToolChoice): Fields["toolChoice"] {
  const choice = typeof value === "string" ? { mode: value } : value;
  const everyStep = "everyStep" in choice ? choice.everyStep : undefined;
  only(choice, ["mode", "tool", "everyStep"], "a tool choice has");
  if ("tool" in choice) {
    if ("mode" in choice) throw new TypeError("a tool is chosen with { tool: name }, without a mode");
    return { mode: pb.ToolChoice_Mode.TOOL, toolName: choice.tool, everyStep };
  }
  if ((choice.mode as string) === "tool") throw new TypeError("a tool is chosen with { tool: name }");
  return { mode: enumNumber(pb.ToolChoice_ModeSchema, choice.mode, "a tool choice"), everyStep };
}

function tracing({ metadata, requestContextKeys, traceId, parentSpanId, tags, ...rest }: o.TracingOptions) {
  none(rest);
  return {
    metadata: toOptionalJson(metadata),
    requestContextKeys: strings(requestContextKeys ?? []),
    traceId,
    parentSpanId,
    tags: strings(tags ?? []),
  };
}

function version(value: o.Version) {
  if (typeof value === "object" && value.versionId) {
    return { selector: { case: "versionId" as const, value: value.versionId } };
  }
  if (value !== "draft" && value !== "published") {
    throw new TypeError('a version is "draft", "published" or { versionId }');
  }
  return { selector: { case: "published" as const, value: value === "published" } };
}

function taskCompletion(value: o.TaskCompletion): Fields["isTaskComplete"] {
  const { scorers, strategy, parallel, timeoutMs, suppressFeedback, onComplete, ...rest } = value;
  none(rest);
  return {
    scorers: strings(scorers),
    strategy: enumNumber(pb.TaskCompletion_StrategySchema, strategy, "strategy"),
    parallel,
    timeout: timeoutMs === undefined ? undefined : toDuration(timeoutMs, "timeoutMs"),
    suppressFeedback,
    onComplete,
  };
}

function hooks({ beforeToolCall, afterToolCall, ...rest }: o.ToolHooks) {
  none(rest);
  return { beforeToolCall, afterToolCall };
}

function delegation(value: o.Delegation): Fields["delegation"] {
  const { onDelegationStart, onDelegationComplete, messageFilter, hookErrorStrategy, ...rest } = value;
  none(rest);
  const schema = pb.DelegationOptions_HookErrorStrategySchema;
  return {
    onDelegationStart,
    onDelegationComplete,
    messageFilter,
    hookErrorStrategy: enumNumber(schema, hookErrorStrategy, "hookErrorStrategy"),
  };
}

function scorers(value: NonNullable<Given["scorers"]>): Fields["scorers"] {
  if (Array.isArray(value)) return Object.fromEntries(strings(value).map((name) => [name, {}]));
  return Object.fromEntries(
    Object.entries(value).map(([name, item]: [string, o.Scorer | number | null]) => {
      const given: o.Scorer = typeof item === "number" ? { samplingRatio: item } : (item ?? {});
      const { scorer, samplingRatio, sampling, ...rest } = given;
      none(rest);
      const number = enumNumber(pb.ScorerOptions_SamplingSchema, sampling, "sampling");
      return [name, { scorer, samplingRatio, sampling: number }];
    }),
  );
}

function expiry(value: number | o.PendingCallExpiry): Fields["pendingCallExpiry"] {
  const { afterMs, action, defaultAnswers, ...rest } =
    typeof value === "number" ? { afterMs: value, action: undefined, defaultAnswers: undefined } : value;
  none(rest);
  const answers = Object.entries(defaultAnswers ?? {});
  return {
    after: toDuration(afterMs, "afterMs"),
    action: enumNumber(ExpiryActionSchema, action ?? (answers.length ? "answer" : "decline"), "action"),
    defaultAnswers: Object.fromEntries(answers.map(([name, answer]) => [name, toJson(answer)])),
  };
}

function hookName(value: string): string {
  if (typeof value === "string") return value;
  throw new TypeError(`expected the name of a hook registered on the server, not ${typeof value}`);
}

/** How each option is written; `null` for those that are not part of the contract's options. */
const ENCODERS: Encoders = {
  runId: (runId) => ({ runId }),
  maxSteps: (maxSteps) => ({ maxSteps }),
  stopWhen: (value) => ({
    stopWhen: [value].flat().map((condition) => stopCondition(condition as o.StopWhen)),
  }),
  activeTools: (value) => ({ activeTools: { names: strings(value) } }),
  requireToolApproval: (value) => ({ requireToolApproval: toolApproval(value) }),
  autoResumeSuspendedTools: (autoResumeSuspendedTools) => ({ autoResumeSuspendedTools }),
  toolCallConcurrency: (toolCallConcurrency) => ({ toolCallConcurrency }),
  context: (value) => ({ context: toMessages(value) }),
  structuredOutput: (value) => ({ structuredOutput: structuredOutput(value) }),
  output: (value) => ({ output: toJson(value) }),
  inputProcessors: (value) => ({ inputProcessors: processors(value) }),
  outputProcessors: (value) => ({ outputProcessors: processors(value) }),
  maxProcessorRetries: (maxProcessorRetries) => ({ maxProcessorRetries }),
  instructions: (value) => ({ instructions: toMessages(value, "system") }),
  system: (value) => ({ system: toMessages(value, "system") }),
  memory: (value) => ({ memory: memory(value) }),
  telemetry: (value) => ({ telemetry: telemetry(value) }),
  modelSettings: (value) => ({ modelSettings: modelSettings(value) }),
  toolChoice: (value) => ({ toolChoice: toolChoice(value) }),
  toolsets: (value) => ({ toolsets: strings(value) }),
  clientTools: (value) => ({ clientTools: value.map(toClientTool) }),
  savePerStep: (savePerStep) => ({ savePerStep }),
  providerOptions: (value) => ({ providerOptions: toJson(value) }),
  requestContext: (value) => ({ requestContext: toJson(value) }),
  tracingOptions: (value) => ({ tracingOptions: tracing(value) }),
  versions: (value) => ({
    versions: Object.fromEntries(Object.entries(value).map(([id, selector]) => [id, version(selector)])),
  }),
  includeRawChunks: (includeRawChunks) => ({ includeRawChunks }),
  isTaskComplete: (value) => ({ isTaskComplete: taskCompletion(value) }),
  scorers: (value) => ({ scorers: scorers(value) }),
  returnScorerData: (returnScorerData) => ({ returnScorerData }),
  executionTimeoutMs: (value) => ({ executionTimeout: toDuration(value, "it") }),
  cancelOnDisconnect: (cancelOnDisconnect) => ({ cancelOnDisconnect }),
  includeRequestBody: (includeRequestBody) => ({ includeRequestBody }),
  pendingCallExpiry: (value) => ({ pendingCallExpiry: expiry(value) }),
  rateLimitWaitMs: (value) => ({ rateLimitWait: toDuration(value, "it") }),
  onIterationComplete: (value) => ({ onIterationComplete: hookName(value) }),
  prepareStep: (value) => ({ prepareStep: hookName(value) }),
  hooks: (value) => ({ hooks: hooks(value) }),
  delegation: (value) => ({ delegation: delegation(value) }),
  requestId: null,
  timeoutMs: null,
  signal: null,
  traceparent: null,
  onChunk: null,
  onStepFinish: null,
  onFinish: null,
  onError: null,
  onAbort: null,
  onTitleGenerated: null,
};
