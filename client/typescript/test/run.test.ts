/** Runs: generate, stream, decisions. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import {
  AgentNotFound,
  ArgsDigestMismatch,
  type Chunk,
  Client,
  EditedArgsInvalid,
  type EntracteError,
  type GenerateResult,
  Json,
  PageTokenInvalid,
  PendingCallAlreadyDecided,
  RequestIdReused,
  ResumeDataInvalid,
  RunAlreadyExists,
  type RunError,
  RunNotFinished,
  RunNotFound,
  type StepResult,
  stringify,
  ThreadExists,
  ThreadNotFound,
  textOf,
  VerbMismatch,
  WorkingMemoryChanged,
} from "@entracte/client";
import { Server, script } from "./server.js";

let server: Server;
let client: Client;

before(async () => {
  server = await Server.start();
  client = new Client(server.address);
});

after(async () => {
  client.close();
  await server.stop();
});

const QUESTION = {
  question: "Which?",
  options: [{ label: "Tests" }, { label: "Docs" }],
  selection_mode: "multi_select",
};

test("a conversation with all kinds of stops", async () => {
  const agent = client.agent("play");
  const located: unknown[] = [];
  const locate = {
    name: "locate",
    description: "Finds a city.",
    inputSchema: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
    execute: (args: { city: string }, { argsText }: { argsText: string }) => {
      located.push(argsText);
      return `${args.city} is north`;
    },
  };
  const stream = agent.stream(
    script(
      [{ text: "One moment. " }, { tool: "refund", args: { order_id: "7", cents: 500 } }],
      [{ tool: "ask_user", args: QUESTION }],
      [{ tool: "locate", args: { city: "Kiel" } }],
      [{ tool: "refund", args: { order_id: "8", cents: 1 } }],
      [{ text: "All done." }],
    ),
    { clientTools: [locate], maxSteps: 9 },
  );
  const chunks: Chunk[] = [];
  for await (const chunk of stream) chunks.push(chunk);
  let result = await stream.result();
  assert.equal(result.finishReason, "suspended");
  const [call] = result.pendingCalls;
  assert.ok(call);
  assert.deepEqual(
    [call.kind, call.toolName, call.args?.value],
    ["approval", "refund", { order_id: "7", cents: 500 }],
  );

  await assert.rejects(agent.approve(call, { editedArgs: { order_id: "7", cents: "many" } }), (error) => {
    assert.ok(error instanceof EditedArgsInvalid);
    assert.equal(error.violations[0]?.field, "edited_args/cents");
    assert.equal(error.code, "INVALID_ARGUMENT");
    return true;
  });
  await assert.rejects(agent.resume(call, "yes"), VerbMismatch);
  result = await agent.approve(call, { editedArgs: { order_id: "7", cents: 400 } });
  assert.deepEqual(result.toolResults[0]?.result.value, { order_id: "7", cents: 400 });

  const [question] = result.pendingCalls;
  assert.ok(question);
  assert.deepEqual(question.suspendPayload?.value, QUESTION);
  await assert.rejects(agent.resume(question, "Tests"), ResumeDataInvalid);
  const follow = agent.resumeStream(question, ["Tests", "Docs"], { clientTools: [locate] });
  for await (const chunk of follow) chunks.push(chunk);
  assert.equal(follow.decision?.verb, "resume");
  await assert.rejects(agent.resume(question, ["Docs"]), (error) => {
    assert.ok(error instanceof PendingCallAlreadyDecided);
    assert.equal(error.metadata.verb, "resume");
    return true;
  });

  result = await follow.result();
  assert.equal(result.toolResults.at(-1)?.result.value, "Kiel is north");
  assert.deepEqual(located, ['{"city":"Kiel"}']);
  const [second] = result.pendingCalls;
  result = await agent.decline(second, { reason: "too little", reasonData: { least: 5 } });
  assert.deepEqual([result.finishReason, result.text], ["stop", "One moment. All done."]);

  const run = await client.runs.get(stream.runId);
  assert.equal(run.state, "succeeded");
  assert.deepEqual(run.result, result);
  const everything: Chunk[] = [];
  for await (const chunk of client.runs.watch(stream.runId)) everything.push(chunk);
  assert.deepEqual(
    everything.map((chunk) => chunk.sequence),
    Array.from({ length: run.lastSequence }, (_, index) => index + 1),
  );
  for (const position of [0, 1, 7, run.lastSequence - 1, run.lastSequence]) {
    const rest: Chunk[] = [];
    for await (const chunk of client.runs.watch(stream.runId, { after: position })) rest.push(chunk);
    assert.deepEqual(rest, everything.slice(position));
  }
  const verbs: string[] = [];
  for await (const decision of client.inbox.decisions({ runId: stream.runId })) verbs.push(decision.verb);
  assert.deepEqual(verbs, ["decline", "submit", "resume", "approve"]);
});

test("generate, a stream's end and the run agree", async () => {
  const agent = client.agent("play");
  const said = script([{ reasoning: "Hm." }, { text: "Hello." }]);
  const generated = await agent.generate(said, { runId: "a" });
  const stream = agent.stream(said, { runId: "b" });
  const streamed = await stream.result();
  assert.deepEqual([generated.text, streamed.text, stream.text], ["Hello.", "Hello.", "Hello."]);
  assert.deepEqual([generated.reasoningText, streamed.reasoningText], ["Hm.", "Hm."]);
  assert.deepEqual(generated, (await client.runs.get("a")).result);
  assert.deepEqual(streamed, (await client.runs.get("b")).result);
  assert.deepEqual(stream.fold.usage, streamed.usage);
  assert.deepEqual(
    stream.fold.steps.map(({ text, reasoningText, usage, finishReason }) => [
      text,
      reasoningText,
      usage,
      finishReason,
    ]),
    streamed.steps.map(({ text, reasoningText, usage, finishReason }) => [
      text,
      reasoningText,
      usage,
      finishReason,
    ]),
  );
  await assert.rejects(agent.generate("Hi", { runId: "a" }), RunAlreadyExists);
  await assert.rejects(client.agent("nobody").stream("Hi").result(), AgentNotFound);
  await assert.rejects(client.runs.get("none"), (error) => {
    assert.ok(error instanceof RunNotFound);
    assert.deepEqual(
      [error.code, error.reason, error.metadata],
      ["NOT_FOUND", "RUN_NOT_FOUND", { run_id: "none" }],
    );
    return true;
  });
});

test("the same request joins the run it started", async () => {
  const agent = client.agent("play");
  const first = await agent.generate("Hi", { runId: "q1", requestId: "q" });
  assert.deepEqual(await agent.generate("Hi", { runId: "q1", requestId: "q" }), first);
  await assert.rejects(agent.generate("Ho", { runId: "q1", requestId: "q" }), RequestIdReused);
  const streams = [agent.stream("Hi", { requestId: "p" }), agent.stream("Hi", { requestId: "p" })];
  assert.deepEqual(
    streams.map((stream) => stream.runId),
    ["", ""],
  );
  const results = [];
  for (const stream of streams) results.push(await stream.result());
  assert.deepEqual(results[0], results[1]);
  assert.equal(streams[0]?.runId, results[0]?.runId);
  assert.equal(streams[1]?.runId, results[0]?.runId);
});

test("JSON keeps every digit and the exact text, both ways", async () => {
  const agent = client.agent("play");
  const args = '{"value":{"n":18446744073709551616,"m":-9007199254740993,"x":1.0,"z":0}}';
  const said = `[[{"tool":"echo","args":${args}}],[{"text":"ok"}]]`;
  const result = await agent.generate(said);
  const [called] = result.toolCalls;
  assert.deepEqual(called?.args?.value, {
    value: { n: 18446744073709551616n, m: -9007199254740993n, x: 1, z: 0 },
  });
  assert.deepEqual(result.toolResults[0]?.result.as<{ n: bigint }>().n, 18446744073709551616n);

  for (const answer of [false, 0, "", [], null, 18446744073709551616n, new Json("1.50"), { é: "🎈" }]) {
    const parked = await agent.generate(script([{ tool: "ask" }], [{ text: "ok" }]));
    const done = await agent.resume(parked.pendingCalls[0], answer);
    const text = stringify(answer);
    assert.deepEqual(done.toolResults[0]?.result.value, Json.of(answer).value);
    const [decision] = (await client.inbox.decisionsPage({ runId: parked.runId })).items;
    assert.equal(decision?.data?.text, text);
  }
});

test("texts come as they were written", async () => {
  const agent = client.agent("play");
  const text = "\ufeffa\u2028b \ufeff\ufeff é 🎈 \u0085";
  const stream = agent.stream(script([{ text }]));
  const result = await stream.result();
  assert.deepEqual([stream.text, result.text], [text, text]);
});

test("observers are told what happens, and cannot disturb it", async (t) => {
  const reported = t.mock.method(console, "error", () => {});
  const told: unknown[] = [];
  const options = {
    onChunk: async (chunk: Chunk) => {
      await new Promise((resolve) => setImmediate(resolve));
      told.push(chunk.type);
    },
    onStepFinish: (step: StepResult) => told.push(["step", step.step, step.text]),
    onFinish: ({ text }: GenerateResult) => {
      told.push(["finish", text]);
      throw new Error("an observer that throws");
    },
    onError: (error: RunError | EntracteError) =>
      told.push(["error", "kind" in error ? error.kind : error.reason]),
  };
  const said = script([{ tool: "report", args: { lines: ["one"] } }], [{ text: "Done." }]);
  assert.equal((await client.agent("play").generate(said, options)).text, "Done.");
  assert.deepEqual(
    told.filter((item) => typeof item !== "string"),
    [
      ["step", 1, ""],
      ["step", 2, "Done."],
      ["finish", "Done."],
    ],
  );
  assert.deepEqual([told[0], told.includes("custom"), told.at(-2)], ["start", true, "finish"]);
  assert.equal(reported.mock.callCount(), 1);

  told.length = 0;
  const failed = await client.agent("play").generate(script([{ throw: "no" }]), options);
  assert.deepEqual([failed.finishReason, failed.error?.message], ["error", "no"]);
  await assert.rejects(client.agent("nobody").generate("Hi", options), AgentNotFound);
  assert.deepEqual(
    told.filter((item) => Array.isArray(item) && item[0] === "error"),
    [
      ["error", failed.error?.kind],
      ["error", "AGENT_NOT_FOUND"],
    ],
  );
});

test("client tools: what they throw and return goes to the model, and those without a function wait", async () => {
  const agent = client.agent("play");
  const inputSchema = { type: "object" };
  const broken = {
    name: "broken",
    inputSchema,
    execute: () => {
      throw new Error("out of order");
    },
  };
  const odd = { name: "odd", inputSchema, execute: () => new Map() };
  const nothing = { name: "nothing", inputSchema, execute: async () => undefined };
  const asked = script(
    [{ tool: "broken" }, { tool: "odd" }, { tool: "nothing" }],
    [{ tool: "manual", args: { n: 1 } }],
    [{ tool: "manual", args: { n: 2 } }],
    [{ text: "ok" }],
  );
  const errors: string[] = [];
  const stream = agent.stream(asked, {
    clientTools: [broken, odd, nothing, { name: "manual", inputSchema }],
  });
  for await (const chunk of stream) if (chunk.type === "tool-error") errors.push(chunk.message);
  let result = await stream.result();
  assert.equal(errors.length, 2);
  assert.match(errors.join(), /out of order/);
  assert.match(errors.join(), /not JSON: a Map has no JSON form/);
  assert.equal(result.toolResults[0]?.result.text, "null");

  assert.deepEqual(
    [result.pendingCalls[0]?.kind, result.pendingCalls[0]?.args?.value],
    ["client-tool", { n: 1 }],
  );
  result = await agent.submitToolResult(result.pendingCalls[0], [1n]);
  assert.equal(result.toolResults.at(-1)?.result.text, "[1]");
  result = await agent.submitToolError(result.pendingCalls[0]?.pendingCallId, "not today");
  assert.equal(result.text, "ok");
});

test("the inbox: claims, lists, pages, and a decision that is made without waiting", async () => {
  const agent = client.agent("play");
  const asked = script([{ tool: "refund", args: { order_id: "1", cents: 1 } }], [{ text: "ok" }]);
  const parked = [await agent.generate(asked), await agent.generate(asked)];
  const runIds = parked.map(({ runId }) => runId);
  const found: string[] = [];
  for await (const call of client.inbox.list({ agentId: "play", pageSize: 1 })) found.push(call.runId);
  assert.deepEqual(found, runIds);
  const page = await client.inbox.listPage({ pageSize: 1 });
  assert.equal(page.items.length, 1);
  await assert.rejects(client.inbox.listPage({ pageToken: "no", pageSize: 1 }), PageTokenInvalid);

  const [call] = page.items;
  assert.ok(call);
  const claimed = await client.inbox.claim(call, { ttlMs: 60_000 });
  assert.ok(claimed.claim?.expireTime);
  assert.equal((await client.inbox.release(call.pendingCallId)).claim, undefined);
  assert.equal((await client.inbox.get(call.pendingCallId)).state, "open");

  const forged = { ...call, argsDigest: new Uint8Array(32) };
  await assert.rejects(agent.approve(forged), ArgsDigestMismatch);
  const stream = agent.approveStream(call, { requestId: "d1", comment: "fine", onBehalfOf: "bo" });
  const decision = await stream.commit();
  assert.deepEqual([decision.verb, decision.comment, decision.onBehalfOf], ["approve", "fine", "bo"]);
  assert.equal((await stream.result()).text, "ok");
  // Sent again, it joins what came of the first.
  const again = agent.approveStream(call, { requestId: "d1", comment: "fine", onBehalfOf: "bo" });
  const types: string[] = [];
  for await (const chunk of again) types.push(chunk.type);
  assert.deepEqual([types[0], types.at(-1)], ["tool-call-resolved", "finish"]);

  await assert.rejects(client.runs.delete(runIds[1] ?? ""), RunNotFinished);
  await client.runs.delete(runIds[1] ?? "", { force: true });
  await assert.rejects(client.runs.get(runIds[1] ?? ""), RunNotFound);
  const states: string[] = [];
  for await (const run of client.runs.list({ states: ["succeeded"], pageSize: 3 })) states.push(run.state);
  assert.ok(states.length > 3 && states.every((state) => state === "succeeded"));
});

test("threads: kept, listed, changed and deleted", async () => {
  const agent = client.agent("play");
  const memory = { thread: { id: "t1", title: "Kettles", metadata: { n: 1n } }, resource: "ada" };
  await agent.generate(script([{ tool: "echo", args: { value: [1] } }], [{ text: "Done." }]), { memory });
  await agent.generate("And again", { memory: { thread: "t1", resource: "ada", lastMessages: 0 } });
  const thread = await client.threads.get("t1");
  assert.deepEqual([thread.title, thread.metadata?.text, thread.messageCount], ["Kettles", '{"n":1}', 5]);
  const messages = [];
  for await (const message of client.threads.messages("t1", { roles: ["assistant"], newestFirst: true })) {
    messages.push(textOf(message));
  }
  assert.deepEqual(messages, ["And again", "Done.", ""]);
  await assert.rejects(client.threads.create("ada", { threadId: "t1" }), ThreadExists);
  const made = await client.threads.create("ada", { title: "Lamps" });
  const changed = await client.threads.update(made.threadId, { metadata: { a: null } });
  assert.deepEqual([changed.title, changed.metadata?.value], ["Lamps", { a: null }]);
  const ids: string[] = [];
  for await (const { threadId } of client.threads.list({ resourceId: "ada" })) ids.push(threadId);
  assert.deepEqual(ids.sort(), ["t1", made.threadId].sort());
  assert.deepEqual(await client.threads.delete("t1"), []);
  await assert.rejects(client.threads.get("t1"), ThreadNotFound);

  const noted = await client.threads.updateWorkingMemory({ resourceId: "ada" }, { likes: "tea" });
  assert.deepEqual([noted.version, noted.content, noted.threadId], [1, '{"likes":"tea"}', ""]);
  const stale = client.threads.updateWorkingMemory({ resourceId: "ada" }, "", { expectedVersion: 0 });
  await assert.rejects(stale, WorkingMemoryChanged);
  assert.equal((await client.threads.workingMemory({ resourceId: "ada" })).version, 1);
});
