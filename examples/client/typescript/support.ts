/**
 * Talks to the support agent of `examples/support.py`: asks, shows the answer as it comes, and decides what waits for a
 * person. At a terminal you decide; without one, all is agreed to.
 *
 *     entracte serve examples.support:app                    # in one terminal
 *     node build/support.js localhost:50051 "My kettle arrived broken"
 */

import { createInterface } from "node:readline/promises";
import { Client, type PendingCall, type RunStream, ServerUnreachable } from "@entracte/client";

const [address = "localhost:50051", question = "My kettle arrived broken."] = process.argv.slice(2);

interface Question {
  readonly question: string;
  readonly options?: readonly { readonly label: string }[];
}

/** Shows a stream as it comes. */
async function show(stream: RunStream): Promise<void> {
  for await (const chunk of stream) {
    if (chunk.type === "text-delta") process.stdout.write(chunk.text);
    else if (chunk.type === "tool-call") console.log(`\n[${chunk.toolName} ${chunk.args}]`);
    else if (chunk.type === "error") console.log(`\nIt failed: ${chunk.error.message}`);
  }
  console.log();
}

/** What the person at the terminal says, or `otherwise` where there is nobody. */
async function ask(text: string, otherwise: string): Promise<string> {
  if (!process.stdin.isTTY) {
    console.log(`${text} ${otherwise}`);
    return otherwise;
  }
  const terminal = createInterface({ input: process.stdin, output: process.stdout });
  try {
    return (await terminal.question(`${text} `)) || otherwise;
  } finally {
    terminal.close();
  }
}

/** Has a person decide a call, and gives what comes of it as a stream. */
async function decide(client: Client, call: PendingCall): Promise<RunStream> {
  const agent = client.agent(call.agentId);
  if (call.kind === "approval") {
    const said = await ask(`May it call ${call.toolName} with ${call.args}?`, "yes");
    return said === "yes" ? agent.approveStream(call) : agent.declineStream(call, { reason: said });
  }
  if (call.kind === "suspension" && call.suspendPayload !== undefined) {
    const { question, options } = call.suspendPayload.as<Question>();
    if (call.toolName !== "ask_user") {
      return agent.resumeStream(call, { ok: (await ask(question, "yes")) === "yes" });
    }
    const labels = (options ?? []).map(({ label }) => label);
    return agent.resumeStream(call, await ask(`${question} (${labels.join(", ")})`, labels[0] ?? "yes"));
  }
  return agent.declineStream(call, { reason: "nobody can answer this here" });
}

await using client = new Client(address);
try {
  console.log(`> ${question}`);
  let stream = client.agent("support").stream(question);
  await show(stream);
  let result = await stream.result();
  for (let [call] = result.pendingCalls; call !== undefined; [call] = result.pendingCalls) {
    stream = await decide(client, call);
    await show(stream);
    result = await stream.result();
  }
  console.log(`(${result.finishReason}, ${result.usage.totalTokens} tokens)`);
  process.exitCode = result.finishReason === "error" ? 1 : 0;
} catch (error) {
  if (!(error instanceof ServerUnreachable)) throw error;
  console.error(`No server answers at ${address}. Start one: entracte serve examples.support:app`);
  process.exitCode = 3;
}
