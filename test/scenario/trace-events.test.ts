import assert from "node:assert/strict";
import { once } from "node:events";
import { request } from "node:http";
import { after, before, test } from "node:test";
import { startBackend, type TestBackend } from "../support/backend.ts";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { assertGolden, messagesOf, traceOf, typesOf } from "../support/trace.ts";

let backend: TestBackend;
let flaky: TestBackend;
let breaking: TestBackend;
let gateway: TestGateway;
let failures = 0;

before(async () => {
  backend = await startBackend((req, res) => {
    req.resume();
    req.on("end", () => {
      res.writeHead(200, { "content-type": "application/json", date: "Thu, 01 Jan 2026 00:00:00 GMT" });
      res.end('{"answer":42}');
    });
  });
  flaky = await startBackend((req, res) => {
    failures += 1;
    req.resume();
    res.writeHead(failures % 2 === 1 ? 503 : 200, { date: "Thu, 01 Jan 2026 00:00:00 GMT", "content-length": "2" });
    res.end("ok");
  });
  breaking = await startBackend((_req, res) => {
    res.writeHead(200, { "content-length": "100", date: "Thu, 01 Jan 2026 00:00:00 GMT" });
    res.write("half", () => res.destroy());
  });
  gateway = await startGateway(`
gateways:
  default:
    port: 0
    policies:
      transformations: { request: { set: { x-gateway: "'g'" } } }
routes:
  - name: plain
    matches: [{ path: { pathPrefix: /plain } }]
    backends: [{ host: "${backend.host}" }]
    policies:
      transformations: { request: { set: { x-who: "request.method + ' ' + source.address" } }, response: { set: { x-seen: "'yes'" } } }
      urlRewrite: { path: { prefix: /api } }
  - name: retried
    matches: [{ path: { exact: /retried } }]
    backends: [{ host: "${flaky.host}" }]
    policies: { retry: { attempts: 1, codes: [503] } }
  - name: down
    matches: [{ path: { exact: /down } }]
    backends: [{ host: "127.0.0.1:1" }]
  - name: breaking
    matches: [{ path: { exact: /breaking } }]
    backends: [{ host: "${breaking.host}" }]
  - name: direct
    matches: [{ path: { exact: /direct } }]
    policies: { directResponse: { status: 418, body: teapot } }
  - name: empty
    matches: [{ path: { exact: /empty } }]
`);
});
after(async () => {
  await gateway?.close();
  for (const one of [backend, flaky, breaking]) await one.close();
});

const get = (path: string, init: RequestInit = {}) =>
  fetch(`${gateway.url()}${path}`, { ...init, headers: { "user-agent": "test", ...init.headers } }).then((response) =>
    response.text(),
  );

/** Spec 6, row by row. */
const ROWS = [
  "requestStarted",
  "requestSnapshot initial request",
  "policySelection gateway",
  "requestSnapshot gateway policies",
  "routeSelection",
  "policySelection route",
  "requestSnapshot route policies",
  "policySelection backend",
  "requestSnapshot final request",
  "backendCallStart",
  "bodySnapshot final request",
  "backendCallResult",
  "responseSnapshot raw response",
  "responseSnapshot backend response ready",
  "responseSnapshot final response",
  "bodySnapshot response",
  "requestFinished",
];

test("a proxied request emits every event of spec 6, in that order [S2.1-5] [S6-1] [S6-2] [S9-5]", async () => {
  const events = await traceOf(gateway, () =>
    get("/plain/x?a=1", { method: "POST", body: '{"q":1}', headers: { "content-type": "application/json" } }),
  );
  const ofSpec = typesOf(events).filter((type) => ROWS.includes(type));
  assert.deepEqual(ofSpec, ROWS);
  assertGolden("plain", events);
});

test("every event has the four fields of spec 2.7, and offsets that never run backwards [S2.7-1]", async () => {
  const events = await traceOf(gateway, () => get("/plain"));
  let last = 0;
  for (const event of events) {
    assert.deepEqual(Object.keys(event), ["eventStart", "eventEnd", "severity", "message"]);
    assert.ok(Number.isInteger(event.eventEnd) && event.eventEnd >= last);
    assert.ok(event.eventStart === null || (Number.isInteger(event.eventStart) && event.eventStart <= event.eventEnd));
    last = event.eventEnd;
  }
});

test("a request without a body has no request body snapshot [S6-3]", async () => {
  const events = await traceOf(gateway, () => get("/plain"));
  assert.deepEqual(
    messagesOf(events, "bodySnapshot").map(({ stage }) => stage),
    ["response"],
  );
});

test("a streamed body is shown as it went to the backend, and arrives there whole", async () => {
  const size = 300_000;
  const events = await traceOf(gateway, async () => {
    const call = request(`${gateway.url()}/plain/upload`, {
      method: "POST",
      headers: { "transfer-encoding": "chunked" },
    });
    for (let sent = 0; sent < size; sent += 50_000) call.write(Buffer.alloc(50_000, "a"));
    call.end();
    const [response] = await once(call, "response");
    response.resume();
    await once(response, "end");
  });
  const body = messagesOf(events, "bodySnapshot").find(({ stage }) => stage === "final request");
  assert.equal(body?.truncated, true);
  assert.equal(Buffer.from(body?.body ?? "", "base64").toString(), "a".repeat(64 * 1024));
  const types = typesOf(events);
  assert.ok(types.indexOf("bodySnapshot final request") > types.indexOf("backendCallStart"));
  assert.equal(messagesOf(events, "requestFinished")[0]?.status, 200);
});

test("no route: the selection is null with what was evaluated, and the request ends in 404", async () => {
  const events = await traceOf(gateway, () => get("/nowhere"));
  assert.deepEqual(messagesOf(events, "routeSelection")[0]?.selectedRoute, null);
  assertGolden("no-route", events);
});

test("a retried request shows each attempt, from the backend's policies to its result", async () => {
  const events = await traceOf(gateway, () => get("/retried"));
  assert.deepEqual(
    messagesOf(events, "backendCallResult").map(({ status }) => status),
    [503, 200],
  );
  assert.equal(typesOf(events).filter((type) => type === "requestSnapshot final request").length, 2);
  assertGolden("retry", events);
});

test("a backend that cannot be reached: the transport error stands in the result [R1] [S6-4]", async () => {
  const events = await traceOf(gateway, () => get("/down"));
  const [result] = messagesOf(events, "backendCallResult");
  assert.equal(result?.status, null);
  assert.match(result?.error ?? "", /ECONNREFUSED/);
  assertGolden("backend-down", events);
});

test("an answer that breaks off ends the trace with an error and what had come", async () => {
  const events = await traceOf(gateway, () => get("/breaking").catch(() => undefined));
  const finished = messagesOf(events, "requestFinished")[0];
  assert.notEqual(finished?.error, null);
  assert.equal(events.at(-1)?.severity, "error");
  const [body] = messagesOf(events, "bodySnapshot");
  assert.equal(Buffer.from(body?.body ?? "", "base64").toString(), "half");
});

test("a policy that answers ends the request phase: no backend events follow", async () => {
  const events = await traceOf(gateway, () => get("/direct"));
  assert.deepEqual(
    messagesOf(events, "policy")
      .filter(({ result }) => result === "answered")
      .map(({ kind }) => kind),
    ["directResponse"],
  );
  assert.ok(!typesOf(events).includes("backendCallStart"));
  assertGolden("answered-by-policy", events);
});

test("a route without a backend is refused after the route phase", async () => {
  const events = await traceOf(gateway, () => get("/empty"));
  assert.equal(messagesOf(events, "requestFinished")[0]?.status, 500);
  assert.equal(messagesOf(events, "requestFinished")[0]?.error, "the route has no backend");
});

test("a client that leaves ends the trace", async () => {
  const waiting = await startBackend(() => undefined);
  const other = await startGateway(`
gateways: { default: { port: 0 } }
routes: [{ backends: [{ host: "${waiting.host}" }] }]
`);
  const events = await traceOf(other, async () => {
    const call = request(other.url());
    call.on("error", () => undefined);
    call.end();
    await once(waiting.server, "request");
    call.destroy();
  });
  assert.deepEqual(messagesOf(events, "requestFinished"), [
    { type: "requestFinished", status: null, error: "aborted" },
  ]);
  await other.close();
  await waiting.close();
});
