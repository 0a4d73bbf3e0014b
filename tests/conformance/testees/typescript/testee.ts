/** The TypeScript SDK's testee. The protocol it speaks is in ../../README.md. */

import { readFile } from "node:fs/promises";
import { type AgentClient, Client, type PendingCall, type RunStream, VERSION } from "@entracte/client";
import { type Asked, given, native, optionsOf } from "./asked.js";
import { CANCELLED, Command } from "./command.js";
import { failure, written } from "./written.js";

type Operation = (command: Command, asked: Asked) => Promise<unknown>;

const clients = new Map<string, Client>();
const shown = new Map<string, PendingCall>();
const running = new Map<string, Command>();

function write(line: object): void {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

function clientOf(asked: Asked): Client {
  const client = clients.get(asked.client);
  if (client === undefined) throw new Error(`there is no client ${asked.client}`);
  return client;
}

function agentOf(asked: Asked): AgentClient {
  return clientOf(asked).agent(asked.agent);
}

/** What is written of a record; the pending calls in it can be decided from now on. */
function report(value: unknown): unknown {
  const record = value as { pendingCallId?: string; pendingCalls?: PendingCall[]; opened?: PendingCall[] };
  const isCall = record.pendingCallId !== undefined && "argsDigest" in record && !("decisionId" in record);
  const calls = isCall ? [value as PendingCall] : [...(record.pendingCalls ?? []), ...(record.opened ?? [])];
  for (const call of calls) shown.set(call.pendingCallId, call);
  return written(value);
}

/** Write the elements of a stream; true when it was left before its end. */
async function elements(command: Command, source: AsyncIterable<unknown>): Promise<boolean> {
  const leaveAfter: number | undefined = command.asked.leave_after ?? undefined;
  let count = 0;
  const iterator = source[Symbol.asyncIterator]();
  try {
    while (count !== leaveAfter) {
      await command.turn();
      const next = await iterator.next();
      if (next.done) return false;
      count += 1;
      command.write({ item: report(next.value) });
    }
    return true;
  } finally {
    await iterator.return?.();
  }
}

/** Read a run's stream to its end, or as far as is asked. */
async function follow(command: Command, stream: RunStream): Promise<unknown> {
  const left = await elements(command, stream);
  const result = left ? null : report(await stream.result());
  const { runId, position, text, fold, decision } = stream;
  return {
    run_id: runId,
    position,
    text,
    usage: written(fold.usage),
    result,
    left,
    decision: written(decision),
  };
}

async function decide(command: Command, asked: Asked): Promise<unknown> {
  const { call, op } = asked;
  const options = { ...optionsOf(asked), ...command.extras(), ...given(call, "run_id", "tool_call_id") };
  const target = call.shown === undefined ? call.pending_call_id : shown.get(call.shown);
  const args: unknown[] = [target];
  let verb: string = op;
  if (op === "approve") Object.assign(options, given(asked, "edited_args"));
  else if (op === "decline") Object.assign(options, given(asked, "reason", "reason_data"));
  else if (op === "resume") args.push(native(asked.answer));
  else if (typeof asked.error === "string") {
    verb = "submitToolError";
    args.push(asked.error);
  } else {
    verb = "submitToolResult";
    args.push(native(asked.result));
  }
  // biome-ignore lint/suspicious/noExplicitAny: the verb is one of the agent's methods
  const agent: any = agentOf(asked);
  if (asked.stream) return await follow(command, agent[`${verb}Stream`](...args, options));
  return report(await agent[verb](...args, options));
}

/** An operation that lists: everything, or one page. */
function listing(face: "runs" | "inbox" | "threads", method: string, ...names: string[]): Operation {
  return async (command, asked) => {
    // biome-ignore lint/suspicious/noExplicitAny: the method is one of the face's
    const lists: any = clientOf(asked)[face];
    const first = method === "messages" ? [asked.thread_id] : [];
    const { signal } = command.controller;
    const filter = { ...given(asked, "page_size", ...names), signal };
    if (typeof asked.page_token !== "string") {
      const items: unknown[] = [];
      for await (const item of lists[method](...first, filter)) items.push(report(item));
      return { items };
    }
    const page = await lists[`${method}Page`](...first, { ...filter, pageToken: asked.page_token });
    return { items: page.items.map(report), next_page_token: page.nextPageToken };
  };
}

const OPERATIONS: Readonly<Record<string, Operation>> = {
  hello: async () => ({
    protocol: 1,
    language: "typescript",
    version: VERSION,
    ops: Object.keys(OPERATIONS),
  }),
  connect: async (_, asked) => {
    const { ca_certificates: roots } = asked;
    const tls = roots && { tls: { ca: await readFile(roots) } };
    const options = given(asked, "api_key", "timeout", "reattach_timeout");
    clients.set(asked.client, new Client(asked.address, { ...options, ...tls }));
  },
  close: async (_, asked) => {
    const client = clientOf(asked);
    clients.delete(asked.client);
    client.close();
  },
  cancel: async (_, asked) => running.get(asked.target)?.cancel(),
  pull: async (_, asked) => running.get(asked.target)?.pull(asked.count),
  generate: async (command, asked) =>
    report(await agentOf(asked).generate(asked.input, { ...optionsOf(asked), ...command.extras() })),
  stream: async (command, asked) =>
    follow(command, agentOf(asked).stream(asked.input, { ...optionsOf(asked), ...command.extras() })),
  approve: decide,
  decline: decide,
  resume: decide,
  submit: decide,
  "runs.get": async ({ controller: { signal } }, asked) =>
    report(await clientOf(asked).runs.get(asked.run_id, { ...given(asked, "omit_result"), signal })),
  "runs.list": listing("runs", "list", "states", "agent_id", "thread_id", "include_children"),
  "runs.watch": async (command, asked) => {
    const options = { ...given(asked, "until_finished", "timeout"), after: asked.after ?? 0 };
    return follow(command, clientOf(asked).runs.watch(asked.run_id, { ...options, ...command.extras() }));
  },
  "runs.cancel": async ({ controller: { signal } }, asked) =>
    report(await clientOf(asked).runs.cancel(asked.run_id, { ...given(asked, "reason", "wait"), signal })),
  "runs.delete": async ({ controller: { signal } }, asked) =>
    clientOf(asked).runs.delete(asked.run_id, { ...given(asked, "force"), signal }),
  "inbox.list": listing(
    "inbox",
    "list",
    ...["run_id", "agent_id", "thread_id", "resource_id", "include_decided"],
  ),
  "inbox.get": async ({ controller: { signal } }, asked) =>
    report(await clientOf(asked).inbox.get(asked.pending_call_id, { signal })),
  "inbox.watch": async (command, asked) => {
    const options = given(asked, "run_id", "agent_id", "resource_id", "timeout");
    const { signal } = command.controller;
    return { left: await elements(command, clientOf(asked).inbox.watch({ ...options, signal })) };
  },
  "inbox.claim": async ({ controller: { signal } }, asked) =>
    report(await clientOf(asked).inbox.claim(asked.pending_call_id, { ...given(asked, "ttl"), signal })),
  "inbox.release": async ({ controller: { signal } }, asked) =>
    report(await clientOf(asked).inbox.release(asked.pending_call_id, { signal })),
  "inbox.decisions": listing("inbox", "decisions", "run_id", "pending_call_id", "principal"),
  "threads.create": async (_, asked) => {
    const options = given(asked, "thread_id", "title", "metadata", "request_id");
    return written(await clientOf(asked).threads.create(asked.resource_id, options));
  },
  "threads.get": async (_, asked) => written(await clientOf(asked).threads.get(asked.thread_id)),
  "threads.list": listing("threads", "list", "resource_id"),
  "threads.update": async (_, asked) => {
    const options = given(asked, "title", "metadata", "request_id");
    return written(await clientOf(asked).threads.update(asked.thread_id, options));
  },
  "threads.delete": async (_, asked) => ({
    cancelled_run_ids: await clientOf(asked).threads.delete(asked.thread_id, given(asked, "force")),
  }),
  "threads.messages": listing("threads", "messages", "roles", "run_id", "newest_first"),
  "threads.working_memory": async (_, asked) =>
    written(await clientOf(asked).threads.workingMemory(ownerOf(asked))),
  "threads.update_working_memory": async (_, asked) => {
    const options = given(asked, "expected_version");
    return written(await clientOf(asked).threads.updateWorkingMemory(ownerOf(asked), asked.content, options));
  },
};

function ownerOf(asked: Asked): { threadId: string } | { resourceId: string } {
  return given(asked, "thread_id", "resource_id") as { threadId: string };
}

async function carryOut(command: Command): Promise<void> {
  const { asked } = command;
  running.set(asked.id, command);
  try {
    const operation = OPERATIONS[asked.op];
    if (operation === undefined) throw new TypeError(`the testee does not know the op ${asked.op}`);
    command.write({ ok: (await operation(command, asked)) ?? {} });
  } catch (error) {
    command.write(error === CANCELLED ? { cancelled: true } : { error: failure(error) });
  } finally {
    running.delete(asked.id);
  }
}

/** The lines of standard input. Node's own reader of lines takes U+2028 for the end of one. */
async function* lines(): AsyncGenerator<string, void, undefined> {
  let pieces: string[] = [];
  for await (const text of process.stdin.setEncoding("utf8")) {
    const [first = "", ...rest] = String(text).split("\n");
    pieces.push(first);
    for (const line of rest) {
      yield pieces.join("");
      pieces = [line];
    }
  }
}

for await (const line of lines()) void carryOut(new Command(JSON.parse(line), write));
for (const command of running.values()) command.cancel();
for (const client of clients.values()) client.close();
