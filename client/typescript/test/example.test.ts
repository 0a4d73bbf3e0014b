/** The example of `examples/client/typescript`, as a process of its own. */

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { Server } from "./server.js";

const EXAMPLE = fileURLToPath(
  new URL("../../../../examples/client/typescript/build/support.js", import.meta.url),
);
const run = promisify(execFile);

test("the example asks, streams, answers a question and approves", async () => {
  const server = await Server.start();
  try {
    const { stdout } = await run(process.execPath, [EXAMPLE, server.address], { timeout: 60_000 });
    assert.match(stdout, /Which order is it about\? \(7, 8, 9\) 7\n/);
    assert.match(stdout, /May it call refund with {"order_id":"7","amount_cents":12900}\? yes\n/);
    assert.match(stdout, /\(stop, \d+ tokens\)\n$/);
  } finally {
    await server.stop();
  }
  const left = await run(process.execPath, [EXAMPLE, server.address]).catch((error) => error);
  assert.equal(left.code, 3);
  assert.match(left.stderr, /No server answers at 127\.0\.0\.1:\d+/);
});
