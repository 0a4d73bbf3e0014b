/** Every option as it goes over the wire, seen by a server that only looks on. */

import assert from "node:assert/strict";
import { createServer, type ServerHttp2Session } from "node:http2";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { toJson } from "@bufbuild/protobuf";
import { connectNodeAdapter } from "@connectrpc/connect-node";
import { Client, type GenerateOptions, Json, type MessagesInput } from "@entracte/client";
import { AgentService, type GenerateRequest } from "@entracte/client/v1/agent_service_pb";
import { MessageSchema } from "@entracte/client/v1/message_pb";
import { GenerateOptionsSchema } from "@entracte/client/v1/options_pb";

const ALL: Required<
  Omit<GenerateOptions, `on${Capitalize<string>}` | "signal" | "output" | "structuredOutput">
> &
  Pick<GenerateOptions, "onIterationComplete" | "structuredOutput"> = {
  runId: "r",
  requestId: "q",
  timeoutMs: 20_000,
  maxSteps: 3,
  stopWhen: [{ stepCount: 2 }, { totalTokens: 2 ** 40 }, { costMicros: 5n }, { textContains: "" }],
  activeTools: [],
  requireToolApproval: { names: ["a"], patterns: ["b*"], expressions: { c: "args.n > 1" } },
  autoResumeSuspendedTools: false,
  toolCallConcurrency: 1,
  context: "Before.",
  structuredOutput: {
    schema: { type: "integer" },
    model: "p/m",
    errorStrategy: "fallback",
    fallbackValue: null,
    instructions: "Count.",
    jsonPromptInjection: true,
    providerOptions: {},
  },
  inputProcessors: ["p", { name: "q", parameters: { n: 1 } }],
  outputProcessors: [],
  maxProcessorRetries: 0,
  instructions: ["Be kind."],
  system: [{ role: "system", content: "Be brief." }],
  memory: {
    thread: { id: "t", title: "T", metadata: { a: 1 } },
    resource: "u",
    lastMessages: 0,
    saveMessages: true,
    readOnly: false,
    semanticRecall: { topK: 2, messageRange: 0, scope: "resource" },
    workingMemory: false,
    filterIncompleteToolCalls: true,
    generateTitle: true,
    onBusyThread: "queue",
    onParkedThread: "cancel",
    queueTimeoutMs: 1500,
    maxHistoryTokens: 100,
  },
  telemetry: { isEnabled: true, recordInputs: false, functionId: "f" },
  modelSettings: {
    temperature: 0,
    topP: 0.5,
    seed: 2n ** 60n,
    stopSequences: ["."],
    headers: { "x-a": "b" },
  },
  toolChoice: { tool: "refund", everyStep: true },
  toolsets: ["billing"],
  clientTools: [{ name: "clock", description: "Time.", inputSchema: { type: "object" } }],
  savePerStep: true,
  providerOptions: { openai: { n: 2n ** 64n } },
  requestContext: new Json('{"n": 1.0}'),
  tracingOptions: {
    metadata: { a: 1 },
    requestContextKeys: ["n"],
    traceId: "1",
    parentSpanId: "2",
    tags: ["t"],
  },
  versions: { a: "draft", b: "published", c: { versionId: "v1" } },
  includeRawChunks: true,
  isTaskComplete: { scorers: ["s"], strategy: "any", parallel: false, timeoutMs: 10, suppressFeedback: true },
  scorers: { a: null, b: 0.5, c: { scorer: "d", samplingRatio: 1, sampling: "ratio" } },
  returnScorerData: false,
  executionTimeoutMs: 0.5,
  cancelOnDisconnect: true,
  includeRequestBody: true,
  pendingCallExpiry: { afterMs: 60_000, defaultAnswers: { ask_user: false } },
  rateLimitWaitMs: 2000,
  onIterationComplete: "h1",
  prepareStep: "h2",
  hooks: { beforeToolCall: "h3", afterToolCall: "h4" },
  delegation: { onDelegationStart: "h5", messageFilter: "h6", hookErrorStrategy: "throw" },
  traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
};

const text = (role: string, said: string) => ({ role, parts: [{ text: { text: said } }] });

const WRITTEN = {
  runId: "r",
  maxSteps: 3,
  stopWhen: [{ stepCount: 2 }, { totalTokens: "1099511627776" }, { costMicros: "5" }, { textContains: "" }],
  activeTools: {},
  requireToolApproval: {
    rules: { names: ["a"], patterns: ["b*"], expressions: [{ tool: "c", expression: "args.n > 1" }] },
  },
  autoResumeSuspendedTools: false,
  toolCallConcurrency: 1,
  context: [text("ROLE_USER", "Before.")],
  structuredOutput: {
    schema: { text: '{"type":"integer"}' },
    model: "p/m",
    errorStrategy: "ERROR_STRATEGY_FALLBACK",
    fallbackValue: { text: "null" },
    instructions: "Count.",
    jsonPromptInjection: "PROMPT_INJECTION_SYSTEM",
    providerOptions: { text: "{}" },
  },
  inputProcessors: { processors: [{ name: "p" }, { name: "q", parameters: { text: '{"n":1}' } }] },
  outputProcessors: {},
  maxProcessorRetries: 0,
  instructions: [text("ROLE_SYSTEM", "Be kind.")],
  system: [text("ROLE_SYSTEM", "Be brief.")],
  memory: {
    thread: { id: "t", title: "T", metadata: { text: '{"a":1}' } },
    resource: "u",
    lastMessages: 0,
    saveMessages: true,
    readOnly: false,
    semanticRecall: { topK: 2, messageRange: 0, scope: "SCOPE_RESOURCE" },
    workingMemory: false,
    filterIncompleteToolCalls: true,
    generateTitle: true,
    onBusyThread: "ON_BUSY_THREAD_QUEUE",
    onParkedThread: "ON_PARKED_THREAD_CANCEL",
    queueTimeout: "1.500s",
    maxHistoryTokens: 100,
  },
  telemetry: { isEnabled: true, recordInputs: false, functionId: "f" },
  modelSettings: {
    temperature: 0,
    topP: 0.5,
    seed: "1152921504606846976",
    stopSequences: ["."],
    headers: { "x-a": "b" },
  },
  toolChoice: { mode: "MODE_TOOL", toolName: "refund", everyStep: true },
  toolsets: ["billing"],
  clientTools: [{ name: "clock", description: "Time.", inputSchema: { text: '{"type":"object"}' } }],
  savePerStep: true,
  providerOptions: { text: '{"openai":{"n":18446744073709551616}}' },
  requestContext: { text: '{"n": 1.0}' },
  tracingOptions: {
    metadata: { text: '{"a":1}' },
    requestContextKeys: ["n"],
    traceId: "1",
    parentSpanId: "2",
    tags: ["t"],
  },
  versions: { a: { published: false }, b: { published: true }, c: { versionId: "v1" } },
  includeRawChunks: true,
  isTaskComplete: {
    scorers: ["s"],
    strategy: "STRATEGY_ANY",
    parallel: false,
    timeout: "0.010s",
    suppressFeedback: true,
  },
  scorers: {
    a: {},
    b: { samplingRatio: 0.5 },
    c: { scorer: "d", samplingRatio: 1, sampling: "SAMPLING_RATIO" },
  },
  returnScorerData: false,
  executionTimeout: "0.000500s",
  cancelOnDisconnect: true,
  includeRequestBody: true,
  pendingCallExpiry: {
    after: "60s",
    action: "EXPIRY_ACTION_ANSWER",
    defaultAnswers: { ask_user: { text: "false" } },
  },
  rateLimitWait: "2s",
  onIterationComplete: "h1",
  prepareStep: "h2",
  hooks: { beforeToolCall: "h3", afterToolCall: "h4" },
  delegation: {
    onDelegationStart: "h5",
    messageFilter: "h6",
    hookErrorStrategy: "HOOK_ERROR_STRATEGY_THROW",
  },
};

const PNG = new Uint8Array([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);

const SAID: MessagesInput = [
  "Hi",
  {
    role: "user",
    content: [
      "What is it?",
      { type: "image", image: PNG },
      { type: "image", image: "https://example.org/a.png" },
      { type: "file", file: "AAEC", mediaType: "text/plain", filename: "a.txt" },
    ],
    metadata: { a: 1 },
    id: "m1",
  },
  {
    role: "assistant",
    content: [
      { type: "reasoning", text: "Hm.", signature: "s" },
      { type: "tool-call", toolCallId: "c", toolName: "t", args: {}, providerMetadata: { n: 1n } },
    ],
  },
  {
    role: "tool",
    content: [{ type: "tool-result", toolCallId: "c", toolName: "t", result: null, isError: true }],
  },
];

const SAID_WRITTEN = [
  text("ROLE_USER", "Hi"),
  {
    role: "ROLE_USER",
    parts: [
      { text: { text: "What is it?" } },
      { image: { data: "iVBORw0KGgo=", mediaType: "image/png" } },
      { image: { url: "https://example.org/a.png" } },
      { file: { data: "AAEC", mediaType: "text/plain", filename: "a.txt" } },
    ],
    metadata: { text: '{"a":1}' },
    id: "m1",
  },
  {
    role: "ROLE_ASSISTANT",
    parts: [
      { reasoning: { text: "Hm.", signature: "s" } },
      {
        toolCall: {
          toolCallId: "c",
          toolName: "t",
          args: { text: "{}" },
          providerMetadata: { text: '{"n":1}' },
        },
      },
    ],
  },
  {
    role: "ROLE_TOOL",
    parts: [{ toolResult: { toolCallId: "c", toolName: "t", result: { text: "null" }, isError: true } }],
  },
];

test("every option and every kind of message goes over the wire as the contract has it", async (t) => {
  const asked: { request: GenerateRequest; headers: Headers; timeoutMs: number | undefined }[] = [];
  const server = createServer(
    connectNodeAdapter({
      routes: ({ rpc }) =>
        rpc(AgentService.method.generate, (request, context) => {
          asked.push({ request, headers: context.requestHeader, timeoutMs: context.timeoutMs() });
          return { run: { runId: "r" }, result: { runId: "r", text: "ok" } };
        }),
    }),
  );
  const sessions: ServerHttp2Session[] = [];
  server.on("session", (session) => sessions.push(session));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const client = new Client(`127.0.0.1:${(server.address() as AddressInfo).port}`, { apiKey: "k" });
  t.after(() => {
    client.close();
    for (const session of sessions) session.destroy();
    server.close();
  });

  const agent = client.agent("a");
  assert.equal((await agent.generate(SAID, ALL)).text, "ok");
  const [first] = asked;
  assert.ok(first?.request.options);
  assert.deepEqual(toJson(GenerateOptionsSchema, first.request.options), WRITTEN);
  assert.deepEqual(
    first.request.messages.map((message) => toJson(MessageSchema, message)),
    SAID_WRITTEN,
  );
  assert.deepEqual([first.request.agentId, first.request.requestId], ["a", "q"]);
  assert.equal(first.headers.get("authorization"), "Bearer k");
  assert.equal(first.headers.get("traceparent"), ALL.traceparent);
  assert.match(first.headers.get("user-agent") ?? "", /^entracte-typescript\//);
  assert.ok(first.timeoutMs !== undefined && first.timeoutMs <= 20_000);

  const short = {
    requireToolApproval: ["refund", "pay_*"],
    structuredOutput: { type: "string" },
    toolChoice: "required",
    pendingCallExpiry: 1000,
    scorers: ["a"],
    stopWhen: { toolCalled: "a" },
    memory: { thread: "t", resource: "u" },
  } as const;
  await agent.generate("Hi", short);
  const second = asked[1]?.request;
  assert.ok(second?.options);
  assert.match(second.options.runId, /^[0-9a-f]{32}$/);
  assert.match(second.requestId, /^[0-9a-f]{32}$/);
  assert.deepEqual(toJson(GenerateOptionsSchema, second.options), {
    runId: second.options.runId,
    requireToolApproval: { rules: { names: ["refund"], patterns: ["pay_*"] } },
    structuredOutput: { schema: { text: '{"type":"string"}' } },
    toolChoice: { mode: "MODE_REQUIRED" },
    pendingCallExpiry: { after: "1s", action: "EXPIRY_ACTION_DECLINE" },
    scorers: { a: {} },
    stopWhen: [{ toolCalled: "a" }],
    memory: { thread: { id: "t" }, resource: "u" },
  });
  // With a request id of the caller's, the server makes the run's id, so that the same request is the same.
  await agent.generate("Hi", { requestId: "again" });
  assert.deepEqual([asked[2]?.request.options?.runId, asked[2]?.request.requestId], ["", "again"]);
});
