/** What needs no server: JSON, errors, and values that are refused before anything is sent. */

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { after, test } from "node:test";
import * as sdk from "@entracte/client";
import {
  Client,
  EntracteError,
  type GenerateOptions,
  InvalidArgument,
  Json,
  type MessagesInput,
  NotFound,
  parse,
  RunNotFound,
  stringify,
  VERSION,
} from "@entracte/client";
import { ErrorReasonSchema } from "@entracte/client/v1/errors_pb";

const client = new Client("127.0.0.1:1");
const agent = client.agent("nobody");
after(() => client.close());

test("JSON texts are read without loss, however large their integers are", () => {
  const big = "9".repeat(400);
  const texts: [string, unknown][] = [
    ["null", null],
    [' [1, "a" , true,false ,{}, []] ', [1, "a", true, false, {}, []]],
    ["9007199254740991", 9007199254740991],
    ["9007199254740992", 9007199254740992n],
    [`{"a":-${big},"b":[${big}]}`, { a: -BigInt(big), b: [BigInt(big)] }],
    [
      `["${big}\\"\\\\", "\\u00e9\\ud83c\\udf88", 1.50, -0.5e3, 12345678901234567890.5]`,
      [`${big}"\\`, "é🎈", 1.5, -500, 12345678901234567000],
    ],
  ];
  for (const [text, value] of texts) {
    assert.deepEqual(parse(text), value);
    assert.deepEqual(new Json(text).value, value);
  }
  const odd = parse(`{"__proto__":1,"n":${big}}`);
  assert.deepEqual(Object.keys(odd as object), ["__proto__", "n"]);
  for (const text of [
    `[${big}`,
    `[${big},]`,
    `{"a" ${big}}`,
    `${big} 1`,
    `"${big}`,
    `[01, ${big}]`,
    `["\n", ${big}]`,
    "",
  ]) {
    assert.throws(() => parse(text), SyntaxError, text);
  }
});

test("values are written without loss, and what has no JSON form is refused", () => {
  const value = {
    a: 2n ** 70n,
    b: [null, new Json("1.0"), undefined === 0],
    c: undefined,
    d: new Date(0),
    "é\n": "🎈",
  };
  assert.equal(
    stringify(value),
    '{"a":1180591620717411303424,"b":[null,1.0,false],"d":"1970-01-01T00:00:00.000Z","é\\n":"🎈"}',
  );
  assert.equal(String(Json.of({ n: 1n })), '{"n":1}');
  assert.ok(Json.of([1]).equals(new Json("[1]")));
  assert.equal(JSON.stringify({ args: new Json('{"a":1}') }), '{"args":{"a":1}}');
  const round: unknown[] = [];
  round.push(round);
  for (const wrong of [
    Number.NaN,
    1 / 0,
    undefined,
    [undefined],
    () => 1,
    Symbol("s"),
    new Map(),
    new Uint8Array(),
    round,
  ]) {
    assert.throws(() => stringify(wrong), TypeError);
  }
  const twice = { a: 1 };
  assert.equal(stringify([twice, twice]), '[{"a":1},{"a":1}]');
});

test("errors form a tree, and say what they know", () => {
  const error = new RunNotFound("there is no such run", {
    reason: "RUN_NOT_FOUND",
    metadata: { run_id: "r" },
  });
  assert.ok(error instanceof NotFound && error instanceof EntracteError);
  assert.deepEqual([error.name, error.code, error.retryable], ["RunNotFound", "NOT_FOUND", false]);
  assert.equal(String(error), "RUN_NOT_FOUND: there is no such run");
  const faulty = new InvalidArgument("no", { violations: [{ field: "a/b", description: "is missing" }] });
  assert.equal(String(faulty), "INVALID_ARGUMENT: no\n  a/b: is missing");
  assert.ok(new EntracteError("later", { retryAfterMs: 5 }).retryable);
});

test("every reason of the contract has its class", () => {
  const reasons = ErrorReasonSchema.values.filter(({ number }) => number > 0);
  assert.ok(reasons.length >= 44);
  for (const { localName } of reasons) {
    const words = localName.toLowerCase().split("_");
    const name = words.map((word) => word.charAt(0).toUpperCase() + word.slice(1)).join("");
    const cls = (sdk as unknown as Record<string, typeof EntracteError>)[name];
    assert.ok(cls !== undefined && new cls() instanceof EntracteError, name);
    assert.notEqual(cls.code, "UNKNOWN", name);
  }
});

test("what cannot be sent is refused with the name of the option", () => {
  const refused: [object, RegExp][] = [
    [{ maxStep: 3 }, /no option maxStep/],
    [{ memory: { resource: "u", tread: "t" } }, /option memory: memory has no option tread/],
    [{ memory: { resource: "u", onBusyThread: "wait" } }, /onBusyThread is one of refuse, queue, not "wait"/],
    [{ stopWhen: { stepCount: 1, toolCalled: "a" } }, /option stopWhen: a condition has exactly one of/],
    [{ toolChoice: { mode: "tool" } }, /option toolChoice: a tool is chosen with \{ tool: name \}/],
    [{ toolChoice: "some" }, /a tool choice is one of auto, none, required/],
    [{ activeTools: "one" }, /option activeTools: expected a list of names/],
    [{ executionTimeoutMs: -1 }, /option executionTimeoutMs: .* milliseconds, not -1/],
    [{ versions: { a: "newest" } }, /option versions: a version is "draft"/],
    [{ prepareStep: () => ({}) }, /option prepareStep: expected the name of a hook/],
    [
      { clientTools: [{ description: "no name" }] },
      /option clientTools: a client tool is an object with a name/,
    ],
    [{ requestContext: { f: () => 1 } }, /option requestContext: a value of type function/],
    [
      { structuredOutput: { schema: {}, errorStrategy: "ignore" } },
      /errorStrategy is one of strict, warn, fallback/,
    ],
    [{ scorers: { a: { ratio: 1 } } }, /option scorers: there is no option ratio/],
  ];
  for (const [options, message] of refused) {
    assert.throws(() => agent.stream("Hi", options as GenerateOptions), { name: "TypeError", message });
  }
  const messages: [unknown, RegExp][] = [
    [7, /a message is a text or an object/],
    [{ role: "user" }, /content is a text or a list of parts/],
    [{ role: "boss", content: "Hi" }, /a message's role is one of system, user, assistant, tool/],
    [{ role: "user", content: [{ type: "sound" }] }, /a part's type is one of .*, not "sound"/],
    [{ role: "user", content: [{ type: "image", image: "no base64" }] }, /a URL, a data URL or base64/],
    [
      { role: "user", content: [{ type: "file", file: new Uint8Array(3) }] },
      /given as bytes needs a mediaType/,
    ],
  ];
  for (const [given, message] of messages) {
    assert.throws(() => agent.stream(given as MessagesInput), { name: "TypeError", message });
  }
  assert.throws(() => agent.resumeStream("pc", undefined), /an answer is needed/);
  assert.throws(() => agent.approveStream(undefined), /name the call/);
  assert.throws(() => agent.approveStream("pc", { coment: "" } as object), /a decision has no option coment/);
  assert.throws(
    () => client.runs.watch("r", { after: -1 }),
    /after is the sequence of a chunk, or 0, not -1/,
  );
});

test("the version is that of the package", async () => {
  const text = await readFile(new URL("../../package.json", import.meta.url), "utf8");
  assert.equal(VERSION, JSON.parse(text).version);
});
