/** Runs: generate, stream, decisions. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import {
  AgentNotFound,
  type Chunk,
  Client,
  EditedArgsInvalid,
  Json,
  PendingCallAlreadyDecided,
  RequestIdReused,
  ResumeDataInvalid,
  RunAlreadyExists,
  RunNotFound,
  stringify,
  VerbMismatch,
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
