/**
 * The rows of the table of trace events (spec 6), field by field, on one traced request with a body and a policy in each scope.
 */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { TraceEvent } from "../../src/record/trace/record.ts";
import { startBackend, type TestBackend } from "../support/backend.ts";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { traceOf } from "../support/trace.ts";

/** An event's message with whatever fields it has: the point of these tests. */
type Fields = Readonly<Record<string, unknown>>;

const REQUEST_BODY = '{"q":1}';
const RESPONSE_BODY = '{"answer":42}';
let backend: TestBackend;
let gateway: TestGateway;
let events: readonly TraceEvent[];

before(async () => {
  backend = await startBackend((req, res) => {
    req.resume();
    req.on("end", () => res.writeHead(200, { "content-type": "application/json" }).end(RESPONSE_BODY));
  });
  gateway = await startGateway(`
gateways:
  default:
    port: 0
    policies: { requestHeaderModifier: { set: { x-gateway: g } } }
routes:
  - name: plain
    backends: [{ host: "${backend.host}" }]
    policies:
      requestHeaderModifier: { set: { x-route: r } }
      responseHeaderModifier: { set: { x-late: l } }
      urlRewrite: { path: { full: /rewritten } }
`);
  events = await traceOf(gateway, () =>
    fetch(`${gateway.url()}/asked?a=1`, { method: "POST", body: REQUEST_BODY }).then((response) => response.text()),
  );
});
after(async () => {
  await gateway?.close();
  await backend?.close();
});

function messages(type: string, stage?: string): Fields[] {
  return events
    .map(({ message }) => message as unknown as Fields)
    .filter((message) => message.type === type && (stage === undefined || message.stage === stage));
}

function only(type: string, stage?: string): Fields {
  const found = messages(type, stage);
  assert.equal(found.length, 1, `${type} ${stage ?? ""}`);
  return found[0] as Fields;
}

function at(fields: unknown, path: string): unknown {
  return path.split(".").reduce<unknown>((value, key) => (value as Fields | undefined)?.[key], fields);
}

function headersOf(stage: string): string {
  return JSON.stringify(at(only("requestSnapshot", stage), "requestState.request.headers"));
}

test("point events have null as eventStart, spans a whole number [S2.7-2]", () => {
  for (const { eventStart, eventEnd, message } of events) {
    if (message.type === "requestStarted" || message.type === "requestSnapshot") assert.equal(eventStart, null);
    assert.ok(Number.isInteger(eventEnd));
  }
  const result = events.find(({ message }) => message.type === "backendCallResult");
  assert.ok(Number.isInteger(result?.eventStart));
});

test("the events of a request that works are info [S2.7-3]", () => {
  assert.deepEqual([...new Set(events.map(({ severity }) => severity))], ["info"]);
});

test("requestStarted is the first event [S6-6]", () => {
  assert.equal(events[0]?.message.type, "requestStarted");
});

test("the initial request shows what arrived and from where [S6-7]", () => {
  const { requestState } = only("requestSnapshot", "initial request");
  assert.equal(at(requestState, "request.method"), "POST");
  assert.equal(at(requestState, "request.path"), "/asked");
  assert.match(String(at(requestState, "request.uri")), /\/asked\?a=1$/);
  assert.equal(at(requestState, "request.host"), new URL(gateway.url()).host);
  assert.equal(typeof at(requestState, "env"), "object");
  assert.equal(at(requestState, "source.address"), "127.0.0.1");
  assert.ok(Number.isInteger(at(requestState, "source.port")));
});

test("policySelection names each phase once, with the merged policy [S6-8]", () => {
  const selections = messages("policySelection");
  assert.deepEqual(
    selections.map(({ phase }) => phase),
    ["gateway", "route", "backend"],
  );
  assert.match(JSON.stringify(selections[0]?.effectivePolicy), /x-gateway/);
  assert.match(JSON.stringify(selections[1]?.effectivePolicy), /x-route/);
});

test("the snapshot after the gateway's policies has their changes, and none of the route's [S6-9]", () => {
  assert.doesNotMatch(headersOf("initial request"), /x-gateway/);
  assert.match(headersOf("gateway policies"), /x-gateway/);
  assert.doesNotMatch(headersOf("gateway policies"), /x-route/);
});

test("routeSelection names the route and those that were evaluated [S6-10]", () => {
  const { selectedRoute, evaluatedRoutes } = only("routeSelection");
  assert.equal(selectedRoute, "plain");
  assert.deepEqual(evaluatedRoutes, ["plain"]);
});

test("the snapshot after the route's policies has their changes [S6-11]", () => {
  assert.match(headersOf("route policies"), /x-route/);
});

test("the final request is the one sent, with its backend [S6-12]", () => {
  const { requestState } = only("requestSnapshot", "final request");
  assert.equal(at(requestState, "request.path"), "/rewritten");
  assert.deepEqual(Object.keys(at(requestState, "backend") as Fields).sort(), ["name", "protocol", "type"]);
});

test("backendCallStart has the target as host:port [S6-13]", () => {
  assert.equal(only("backendCallStart").target, backend.host);
});

test("bodies are base64 [S6-14]", () => {
  const text = (stage: string): string =>
    Buffer.from(String(only("bodySnapshot", stage).body), "base64").toString("utf8");
  assert.equal(text("final request"), REQUEST_BODY);
  assert.equal(text("response"), RESPONSE_BODY);
});

test("backendCallResult has the status and no error [S6-15]", () => {
  const { status, error } = only("backendCallResult");
  assert.equal(status, 200);
  assert.equal(error, null);
});

test("the raw response has its code and two durations in seconds [S6-16]", () => {
  const { requestState } = only("responseSnapshot", "raw response");
  assert.equal(at(requestState, "response.code"), 200);
  for (const name of ["requestProcessingDuration", "upstreamDuration"])
    assert.match(String(at(requestState, `proxy.${name}`)), /^\d+(?:\.\d+)?s$/);
});

test("response processing stands between the two last snapshots [S6-17]", () => {
  const shown = (stage: string): string => JSON.stringify(only("responseSnapshot", stage));
  assert.doesNotMatch(shown("backend response ready"), /x-late/);
  assert.match(shown("final response"), /x-late/);
});

test("requestFinished is the last event [S6-18]", () => {
  assert.equal(events.at(-1)?.message.type, "requestFinished");
});
