import assert from "node:assert/strict";
import { test } from "node:test";
import { finishedRequest } from "../../test/support/exchange.ts";
import { ERRORS, type FailureCode, RECORDED } from "../core/errors.ts";
import { Exchange, NO_BODY } from "../core/exchange.ts";
import { HeaderList } from "../http/headers.ts";
import {
  createRequestHistory,
  findOlder,
  RECORDED_REQUESTS,
  type RecordedRequest,
  type RequestHistory,
  readTraffic,
  recordedLines,
} from "./recorded-request.ts";
import { resultOf } from "./trace/record.ts";
import { createRedaction } from "./trace/redact.ts";

const outcome = { status: 200, end: "complete", responseBytes: 2 } as const;

function recordsIn(history: RequestHistory): RecordedRequest[] {
  return [...readTraffic([recordedLines(history)])];
}

function exchangeOf(id: string, headers: string[], query = ""): Exchange {
  return new Exchange({
    id,
    listener: "default",
    source: { address: "192.0.2.1", port: 7, identity: "CN=a\nO=b" },
    request: {
      method: "GET",
      scheme: "http",
      namesHttps: false,
      host: "a.test",
      path: "/x",
      rawPath: "/x",
      query,
      version: "1.1",
      headers: new HeaderList(headers),
      body: NO_BODY,
    },
    startedAt: 1000,
    startedMs: 0,
  });
}

test("each record has the attributes of its own call, even if calls differ in one field", () => {
  const ring = createRequestHistory(createRedaction());
  const calls = [
    { methodName: "tools/call", target: "a", tool: { name: "x", target: "a" } },
    { methodName: "tools/call", target: "a", tool: { name: "x", target: "a" } },
    { methodName: "tools/call", target: "a", tool: { name: "y", target: "a" } },
    { methodName: "tools/call", target: "a", tool: { name: "y", target: "b" } },
    { methodName: "tools/call", target: "b", tool: { name: "y", target: "b" } },
    { methodName: "tools/list", target: "b", tool: { name: "y", target: "b" } },
    { methodName: "tools/list", target: "b" },
    { methodName: "prompts/get", prompt: { name: "y", target: "b" } },
  ];
  for (const mcp of calls) {
    const exchange = exchangeOf("one", []);
    exchange.attributes.mcp = mcp;
    ring.note(finishedRequest(exchange, outcome, 1));
  }
  assert.deepEqual(
    recordsIn(ring).map(({ mcp }) => mcp),
    calls,
  );
});

test("a record survives serialization", () => {
  const ring = createRequestHistory(createRedaction());
  const exchange = exchangeOf("one", ["accept", "*/*", "x-empty", "", "x-utf8", "\u00e9"], "a=1");
  exchange.route = "api";
  exchange.attributes.jwt = { sub: "alice", name: "Älice\n2", roles: ["a"] };
  exchange.attributes.apiKey = { user_id: "k" };
  exchange.authenticated('jwt:["i","alice"]');
  exchange.authenticated("key:12345678\0abcdef");
  exchange.attributes.mcp = {
    methodName: "tools/call",
    sessionId: "secret-session",
    tool: { name: "read", target: "files" },
  };
  exchange.attributes.llm = { requestModel: "m", inputTokens: 3 };
  exchange.steps.push(
    { phase: "route", policy: "jwtAuth", verdict: "passed", micros: 1 },
    { phase: "route", policy: "authorization", verdict: "refused", micros: 1 },
  );
  ring.note(finishedRequest(exchange, outcome, 1.5));
  const [record] = recordsIn(ring);
  assert.deepEqual(record, {
    at: 1000,
    id: "one",
    durationMs: 1.5,
    listener: "default",
    method: "GET",
    scheme: "http",
    host: "a.test",
    path: "/x",
    query: "a=1",
    source: "192.0.2.1",
    identity: "CN=a O=b",
    route: "api",
    status: 200,
    code: null,
    subject: "alice",
    policies: ["jwtAuth", "authorization=refused"],
    principals: ['jwt:["i","alice"]', "key:12345678"],
    claims: { sub: "alice", name: "Älice\n2", roles: ["a"] },
    apiKey: { user_id: "k" },
    mcp: { methodName: "tools/call", tool: { name: "read", target: "files" } },
    llm: { requestModel: "m", inputTokens: 3 },
    headers: ["accept", "*/*", "x-empty", "", "x-utf8", "é"],
  });
});

test("neither credentials nor copies of them are recorded", () => {
  const redaction = createRedaction(["x-own-secret"]);
  redaction.hideAlso({ headers: ["x-place"], parameters: ["token_of"] });
  const ring = createRequestHistory(redaction);
  const planted = "planted-secret-0123456789";
  const exchange = exchangeOf(
    "one",
    [
      ...["authorization", `Bearer ${planted}`, "cookie", `a=1; sid=${planted}2`, "x-copy", `got ${planted}`],
      ...["x-own-secret", `${planted}3`, "x-place", "short", "x-short", "short", "x_api_key", `${planted}4`],
    ],
    `api_key=${planted}5&token_of=${planted}6&q=${planted}`,
  );
  exchange.credentials.secrets = [`${planted}7`];
  ring.note(finishedRequest(exchange, outcome, 1));
  const text = JSON.stringify(recordsIn(ring));
  assert.doesNotMatch(text, /planted|"short"/);
  assert.match(text, /"x-copy","got <redacted>"/);
});

test("keeps the last records in bounded memory and skips records that are too long", () => {
  const ring = createRequestHistory(createRedaction(), Number.POSITIVE_INFINITY);
  for (let i = 0; i < 2 * RECORDED_REQUESTS + 5; i++)
    ring.note(finishedRequest(exchangeOf(`r${i}`, ["x-a", "b".repeat(60)]), outcome, 1));
  const records = recordsIn(ring);
  assert.equal(records.length, RECORDED_REQUESTS);
  assert.deepEqual(
    [records[0]?.id, records.at(-1)?.id],
    [`r${RECORDED_REQUESTS + 5}`, `r${2 * RECORDED_REQUESTS + 4}`],
  );
  ring.note(finishedRequest(exchangeOf("long", ["x-a", "b".repeat(40_000)]), outcome, 1));
  assert.deepEqual([ring.counts.requests, ring.counts.leftOut], [RECORDED_REQUESTS, 1]);
  for (let i = 0; i < 1000; i++)
    ring.note(finishedRequest(exchangeOf(`l${i}`, ["x-a", "b".repeat(30_000)]), outcome, 1));
  assert.ok(ring.counts.chars <= 16 * 1024 * 1024, String(ring.counts.chars));
  assert.equal(recordsIn(ring).at(-1)?.id, "l999");
});

test("a follower receives each record until it unsubscribes", () => {
  const ring = createRequestHistory(createRedaction(), Number.POSITIVE_INFINITY);
  const heard: string[] = [];
  const withdraw = ring.follow((text) => heard.push((JSON.parse(text) as RecordedRequest).id));
  ring.note(finishedRequest(exchangeOf("one", []), outcome, 1));
  withdraw();
  ring.note(finishedRequest(exchangeOf("two", []), outcome, 1));
  assert.deepEqual(heard, ["one"]);
});

test("samples requests above the rate, but records all for a follower", () => {
  const ring = createRequestHistory(createRedaction(), 50);
  for (let i = 0; i < 100; i++) ring.note(finishedRequest(exchangeOf(`r${i}`, []), outcome, 0));
  assert.equal(ring.counts.requests, 5);
  // 100 ms later.
  ring.note(finishedRequest(exchangeOf("later", []), outcome, 100));
  assert.equal(ring.counts.requests, 6);
  const heard: string[] = [];
  const stop = ring.follow((text) => heard.push(text));
  for (let i = 0; i < 100; i++) ring.note(finishedRequest(exchangeOf(`f${i}`, []), outcome, 100));
  stop();
  assert.equal(heard.length, 100);
});

test("traffic is read in order of arrival, not of completion", () => {
  const ring = createRequestHistory(createRedaction());
  for (const [id, startedAt] of [
    ["slow", 5],
    ["first", 1],
    ["second", 3],
  ] as const)
    ring.note(finishedRequest(Object.assign(exchangeOf(id, []), { startedAt }), outcome, 1));
  const traffic = readTraffic([recordedLines(ring)]);
  assert.equal(traffic.firstAt, 1);
  assert.deepEqual(
    [...traffic].map(({ id }) => id),
    ["first", "second", "slow"],
  );
  assert.equal(readTraffic([]).firstAt, undefined);
  const none = readTraffic([Buffer.from("no record\n")]);
  assert.deepEqual([none.firstAt, ...none], [undefined]);
});

test("an older request shows headers of every name", () => {
  const ring = createRequestHistory(createRedaction());
  const names = Object.getOwnPropertyNames(Object.prototype).map((name) => name.toLowerCase());
  const sent = [...names, ...names].flatMap((name) => [name, `of ${name}`]);
  ring.note(finishedRequest(exchangeOf("one", sent), outcome, 1.5));
  const [found] = findOlder(ring, "one");
  const headers = (found?.requestState?.request as { headers?: Record<string, string[]> } | undefined)?.headers ?? {};
  for (const name of names) assert.deepEqual(headers[name], [`of ${name}`, `of ${name}`]);
  assert.equal(Object.keys(headers).length, names.length);
});

test("an older request has the result that it had when it was recent, for each reason of a failure", () => {
  const codes = { ...ERRORS, ...RECORDED };
  for (const [code, { source }] of Object.entries(codes))
    for (const status of [200, 404, 503]) {
      // A ring of its own, because many requests in one second are sampled.
      const ring = createRequestHistory(createRedaction());
      const failure = { code: code as FailureCode, source, message: "no", detail: undefined };
      const exchange = exchangeOf(`${code}-${status}`, []);
      exchange.failure = failure;
      ring.note(finishedRequest(exchange, { ...outcome, status }, 1));
      const [older] = findOlder(ring, `${code}-${status}`);
      assert.ok(older);
      assert.equal(resultOf(older), resultOf({ status, end: "complete", failure }), `${code} with ${status}`);
    }
});
