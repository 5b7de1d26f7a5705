import assert from "node:assert/strict";
import { test } from "node:test";
import type { TraceEvent, TraceMessage } from "../../record/trace/record.ts";
import { duration, labelOf, plainLine, summaryOf } from "./trace-text.ts";

const event = (message: TraceMessage, changes: Partial<TraceEvent> = {}): TraceEvent => ({
  eventStart: null,
  eventEnd: 1500,
  severity: "info",
  message,
  ...changes,
});

/** The labels of spec 6, and one line for each. */
const cases: { message: TraceMessage; label: string; summary: string }[] = [
  { message: { type: "requestStarted" }, label: "Request Start", summary: "request started" },
  {
    message: {
      type: "requestSnapshot",
      stage: "initial request",
      requestState: { request: { method: "GET", path: "/a" } },
    },
    label: "Snapshot",
    summary: "initial request: GET /a",
  },
  {
    message: { type: "responseSnapshot", stage: "raw response", requestState: { response: { code: 200 } } },
    label: "Snapshot",
    summary: "raw response: 200",
  },
  {
    message: { type: "routeSelection", selectedRoute: "a", evaluatedRoutes: ["a", "b"] },
    label: "Route",
    summary: 'selected "a" (2 evaluated)',
  },
  {
    message: { type: "routeSelection", selectedRoute: null, evaluatedRoutes: [] },
    label: "Route",
    summary: "no route selected (0 evaluated)",
  },
  {
    message: { type: "policySelection", phase: "route", effectivePolicy: { jwt: {}, cors: {} } },
    label: "Policies",
    summary: "route: cors, jwt",
  },
  {
    message: { type: "policySelection", phase: "gateway", effectivePolicy: {} },
    label: "Policies",
    summary: "gateway: none",
  },
  { message: { type: "backendCallStart", target: "a:80" }, label: "Backend Start", summary: "a:80" },
  {
    message: { type: "backendCallResult", status: null, error: "refused" },
    label: "Backend Result",
    summary: "status=none error=refused",
  },
  {
    message: { type: "requestFinished", status: 200, error: null },
    label: "Request Done",
    summary: "request finished status=200",
  },
  {
    message: { type: "bodySnapshot", stage: "response", body: "aGVsbG8=", truncated: true },
    label: "Body Snapshot",
    summary: "response body, 5 bytes (truncated)",
  },
  {
    message: { type: "policy", phase: "route", kind: "authorization", result: "refused", details: "no role" },
    label: "Policy",
    summary: "route authorization refused: no role",
  },
  {
    message: { type: "cel", expression: "a == b", result: { value: false } },
    label: "CEL",
    summary: "a == b => false",
  },
  {
    message: { type: "cel", expression: "a", result: { error: "no such key" } },
    label: "CEL",
    summary: "a => error: no such key",
  },
  {
    message: { type: "policyEvent", kind: "mcp", details: { methodName: "tools/call" } },
    label: "Policy Event",
    summary: 'mcp {"methodName":"tools/call"}',
  },
];
for (const { message, label, summary } of cases) {
  test(`${label}: ${summary}`, () => {
    assert.equal(labelOf(event(message)), label);
    assert.equal(summaryOf(event(message)), summary);
  });
}

test("an unknown type of a newer gateway is shown by its name", () => {
  const unknown = event({ type: "somethingNew", a: 1 } as unknown as TraceMessage);
  assert.equal(labelOf(unknown), "somethingNew");
  assert.equal(summaryOf(unknown), '{"type":"somethingNew","a":1}');
});

test("long summaries are truncated, and control characters are shown as text [G3]", () => {
  const long = summaryOf(event({ type: "backendCallStart", target: "x".repeat(200) }));
  assert.equal(long.length, 120);
  assert.equal(
    summaryOf(event({ type: "backendCallStart", target: "a\u001b]0;x\u0007\nb\u009bc" })),
    "a\\u001b]0;x\\u0007 b\\u009bc",
  );
});

test("times are written in the unit that fits", () => {
  assert.deepEqual([0, 850, 12_345, 4_250_000].map(duration), ["0", "850 µs", "12.3 ms", "4.25 s"]);
});

test("a plain line carries its severity without color", () => {
  const line = plainLine(
    event({ type: "requestFinished", status: 502, error: "e" }, { severity: "error", eventStart: 500 }),
  );
  assert.equal(line, "✗    1.5 ms  Request Done   request finished status=502 error=e (1.0 ms)\n");
});
