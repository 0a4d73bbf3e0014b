/** What happens when servers, connections and readers come and go. */

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import {
  type Chunk,
  Client,
  DeadlineExceeded,
  type InboxChange,
  ServerUnreachable,
  Unauthenticated,
} from "@entracte/client";
import { Server, script } from "./server.js";

let folder: string;

before(async () => {
  folder = await mkdtemp(join(tmpdir(), "entracte-"));
});

after(async () => {
  await rm(folder, { recursive: true });
});

/** An answer that takes its time. */
function longAnswer(words = 60, delay = 20): string {
  const parts = Array.from({ length: words }, (_, index) => [{ text: `word${index} ` }, { delay }]);
  return script(parts.flat());
}

test("a stream, a wait and an inbox go on when the server is killed and replaced", async (t) => {
  const store = join(folder, "runs.db");
  let server = await Server.start({ store });
  const { address } = server;
  const client = new Client(address);
  t.after(() => client.close());
  t.after(() => server.stop());
  const agent = client.agent("play");
  const changes: InboxChange[] = [];
  const watching = (async () => {
    for await (const change of client.inbox.watch()) {
      changes.push(change);
      if (change.opened.length > 0) return;
    }
  })();
  const waiting = agent.generate(longAnswer(), { runId: "waited" });
  const stream = agent.stream(longAnswer(), { runId: "streamed" });
  const chunks: Chunk[] = [];
  for await (const chunk of stream) {
    chunks.push(chunk);
    if (chunks.length === 10) {
      await server.kill();
      server = await Server.start({ store, address });
    }
  }
  const words = Array.from({ length: 60 }, (_, index) => `word${index} `).join("");
  assert.deepEqual(
    chunks.map((chunk) => chunk.sequence),
    Array.from({ length: chunks.length }, (_, index) => index + 1),
  );
  // The answer that was cut is void: another attempt has begun.
  assert.ok(chunks.some((chunk) => chunk.type === "step-start" && chunk.attempt > 1));
  const said = chunks.map((chunk) => (chunk.type === "text-delta" ? chunk.text : "")).join("");
  assert.notEqual(said, words);
  assert.equal(stream.text, words);
  assert.equal((await stream.result()).text, words);
  assert.equal((await waiting).text, words);

  const parked = await agent.generate(script([{ tool: "refund", args: { order_id: "7", cents: 5 } }]));
  await watching;
  assert.deepEqual(
    changes.map((change) => change.snapshotComplete),
    [true, false],
  );
  assert.equal(changes[1]?.opened[0]?.runId, parked.runId);
});

test("a loop that is left, a signal and a timeout end the wait and never the run", async (t) => {
  const server = await Server.start();
  t.after(() => server.stop());
  const client = new Client(server.address);
  t.after(() => client.close());
  const agent = client.agent("play");
  const stream = agent.stream(longAnswer(), { runId: "left" });
  for await (const chunk of stream) if (chunk.type === "text-delta") break;
  assert.ok(stream.position < 20);
  const rest: Chunk[] = [];
  const from = stream.position;
  for await (const chunk of stream) rest.push(chunk);
  assert.deepEqual([rest[0]?.sequence, rest.at(-1)?.type], [from + 1, "finish"]);

  const controller = new AbortController();
  const reason = new Error("enough");
  await assert.rejects(
    async () => {
      for await (const _ of agent.stream(longAnswer(), { runId: "aborted", signal: controller.signal })) {
        controller.abort(reason);
      }
    },
    (error) => error === reason,
  );
  const said = longAnswer(100);
  await Promise.all([
    assert.rejects(agent.generate(said, { runId: "waits", signal: AbortSignal.timeout(800) }), {
      name: "TimeoutError",
    }),
    assert.rejects(agent.generate(said, { runId: "late", timeoutMs: 800 }), DeadlineExceeded),
    assert.rejects(agent.stream(said, { runId: "later", timeoutMs: 800 }).result(), DeadlineExceeded),
  ]);
  for (const runId of ["aborted", "waits", "late", "later"]) {
    const watched = await client.runs.watch(runId).result();
    assert.equal(watched.finishReason, "stop");
  }

  const closed = agent.stream(longAnswer(), { runId: "closed" });
  const reading = (async () => {
    let count = 0;
    for await (const _ of closed) {
      count += 1;
      if (count === 3) setTimeout(() => void closed.close(), 10);
    }
    return count;
  })();
  assert.ok((await reading) >= 3);
  const cancelled = await client.runs.cancel("closed", { reason: "no need", wait: true });
  assert.deepEqual([cancelled.state, cancelled.finishReason], ["cancelled", "aborted"]);
  const aborts: string[] = [];
  await client.runs.watch("closed", { onAbort: ({ reason }) => aborts.push(reason) }).result();
  assert.deepEqual(aborts, ["no need"]);
  client.close();
  await assert.rejects(client.runs.get("left"), /the client is closed/);
});

test("a server that never answered is given up quickly", async (t) => {
  const client = new Client("127.0.0.1:1");
  t.after(() => client.close());
  await assert.rejects(client.runs.get("r"), ServerUnreachable);
  await assert.rejects(client.agent("a").stream("Hi").result(), ServerUnreachable);

  // Something that is no server: it ends every connection.
  const rude = createServer((socket) => socket.destroy());
  await new Promise<void>((resolve) => rude.listen(0, "127.0.0.1", resolve));
  t.after(() => rude.close());
  const port = (rude.address() as { port: number }).port;
  const other = new Client(`127.0.0.1:${port}`);
  t.after(() => other.close());
  await assert.rejects(other.runs.get("r"), ServerUnreachable);
});

test("the key is sent, and addresses and options are checked", async (t) => {
  const keys = JSON.stringify([
    { key: "a-key-of-some-length", tenant: "t", principal: "ada", roles: ["run", "decide"] },
  ]);
  const server = await Server.start({ env: { ENTRACTE_API_KEYS: keys } });
  const known = new Client(server.address, { apiKey: "a-key-of-some-length" });
  const unknown = new Client(server.address);
  t.after(() => {
    known.close();
    unknown.close();
    return server.stop();
  });
  const { runId } = await known.agent("play").generate("Hi");
  assert.equal((await known.runs.get(runId)).principal, "ada");
  await assert.rejects(unknown.runs.get(runId), Unauthenticated);
  for (const address of ["", "localhost", "ftp://x:1", "a b:1"]) {
    assert.throws(() => new Client(address), { name: "TypeError", message: /an address is host:port/ });
  }
  assert.throws(() => new Client("http://localhost:1", { tls: true }), { name: "TypeError" });
  assert.throws(() => new Client("localhost:1", { timeout: 3 } as object), /a client has no option timeout/);
});

test("over TLS the server is verified, with the roots that are given", async (t) => {
  const [key, cert] = [join(folder, "key.pem"), join(folder, "cert.pem")];
  const names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"];
  const made = [
    "req",
    "-x509",
    "-newkey",
    "ec",
    "-pkeyopt",
    "ec_paramgen_curve:prime256v1",
    "-nodes",
    "-days",
    "2",
  ];
  await promisify(execFile)("openssl", [...made, ...names, "-keyout", key, "-out", cert]);
  const server = await Server.start({ env: { ENTRACTE_TLS_CERTIFICATE: cert, ENTRACTE_TLS_KEY: key } });
  const address = `localhost:${server.address.split(":").at(-1)}`;
  const trusting = new Client(address, { tls: { ca: await readFile(cert) } });
  const strict = new Client(address, { tls: true });
  t.after(() => {
    trusting.close();
    strict.close();
    return server.stop();
  });
  assert.equal((await trusting.agent("play").generate("Hi")).text, "Hi");
  await assert.rejects(strict.runs.get("r"), (error) => {
    assert.ok(error instanceof ServerUnreachable);
    assert.match(error.message, /self-signed certificate/);
    return true;
  });
});
