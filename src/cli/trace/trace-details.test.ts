import assert from "node:assert/strict";
import { test } from "node:test";
import type { TraceEvent, TraceMessage } from "../../record/trace/record.ts";
import { barsOf, decodeBody, diffLines, drawBars, eventLines, snapshotLines } from "./trace-details.ts";

const at = (eventEnd: number, message: TraceMessage, eventStart: number | null = null): TraceEvent => ({
  eventStart,
  eventEnd,
  severity: "info",
  message,
});
const request = (stage: "initial request" | "route policies", headers: Record<string, string>): TraceMessage => ({
  type: "requestSnapshot",
  stage,
  requestState: { request: { method: "GET", headers } },
});
const text = (lines: readonly { text: string }[]): string[] => lines.map((line) => line.text);

const events = [
  at(1, { type: "requestStarted" }),
  at(2, request("initial request", { accept: "a", "x-old": "1" })),
  at(3, { type: "backendCallStart", target: "t" }),
  at(4, request("route policies", { accept: "b", "x-new": "2" })),
];

test("the difference from the previous snapshot lists added, removed and changed fields", () => {
  assert.deepEqual(text(diffLines(events, 3)), [
    "initial request → route policies",
    '- request.headers.accept: "a"',
    '+ request.headers.accept: "b"',
    '- request.headers.x-old: "1"',
    '+ request.headers.x-new: "2"',
  ]);
});

test("an event between snapshots shows the last one before it", () => {
  assert.deepEqual(text(snapshotLines(events, 2, "yaml")), [
    "request:",
    "  method: GET",
    "  headers:",
    "    accept: a",
    "    x-old: 1",
  ]);
  assert.deepEqual(text(snapshotLines(events, 0, "yaml")), ["no snapshot yet"]);
});

test("the first snapshot has no differences", () => {
  assert.deepEqual(text(diffLines(events, 1)), ["the first request snapshot"]);
});

test("equal snapshots are reported as equal, ignoring durations", () => {
  const alike = [at(1, request("initial request", {})), at(2, request("route policies", {}))];
  assert.deepEqual(text(diffLines(alike, 1)), ["initial request → route policies", "no changes"]);
});

test("an event can be read as YAML and as JSON", () => {
  const event = at(7, { type: "routeSelection", selectedRoute: "a: b", evaluatedRoutes: ["a", "true"] });
  assert.deepEqual(text(eventLines(event, "yaml")), [
    "eventStart: null",
    "eventEnd: 7",
    "severity: info",
    "message:",
    "  type: routeSelection",
    '  selectedRoute: "a: b"',
    "  evaluatedRoutes:",
    "    - a",
    "    - true",
  ]);
  assert.deepEqual(JSON.parse(text(eventLines(event, "json")).join("\n")), event);
});

test("bodies are decoded: JSON is indented, text shown, bytes counted, control characters made visible", () => {
  assert.equal(decodeBody(Buffer.from('{"a":1}')), '{\n  "a": 1\n}');
  assert.equal(decodeBody(Buffer.from("plain")), "plain");
  assert.equal(decodeBody(Buffer.from([0xff, 0xfe, 0x00])), "(3 bytes that are not text)");
  const body = Buffer.from("a\u001b[31mb").toString("base64");
  const shown = text(eventLines(at(1, { type: "bodySnapshot", stage: "response", body }), "yaml"));
  assert.equal(shown.at(-1), "a\\u001b[31mb");
});

const trace = [
  at(0, { type: "requestStarted" }),
  at(100, { type: "policySelection", phase: "gateway", effectivePolicy: {} }),
  at(200, { type: "policySelection", phase: "route", effectivePolicy: {} }),
  at(350, { type: "policy", phase: "route", kind: "cors", result: "applied" }, 250),
  at(400, { type: "policySelection", phase: "backend", effectivePolicy: {} }),
  at(450, { type: "backendCallStart", target: "t" }),
  at(900, { type: "backendCallResult", status: 200, error: null }, 450),
  at(1000, { type: "requestFinished", status: 200, error: null }),
];

test("the waterfall has one row per phase, policy and call, with its time", () => {
  assert.deepEqual(
    barsOf(trace).map(({ name, startMicros, endMicros }) => [name, startMicros, endMicros]),
    [
      ["gateway", 100, 200],
      ["route", 200, 400],
      ["  cors", 250, 350],
      ["backend", 400, 450],
      ["call", 450, 900],
      ["response", 900, 1000],
    ],
  );
});

test("bars fit the available width", () => {
  for (const width of [28, 44, 100]) {
    const drawn = drawBars(barsOf(trace), width);
    assert.ok(
      drawn.every((bar) => bar.text.length <= width),
      `${width}`,
    );
    assert.match(drawn[4]?.text ?? "", /^call +█+ +450 µs$/);
  }
});

test("a trace without phases draws nothing", () => {
  assert.deepEqual(drawBars(barsOf([at(0, { type: "requestStarted" })]), 40), []);
});
