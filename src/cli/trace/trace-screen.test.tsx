import assert from "node:assert/strict";
import { test } from "node:test";
import { render } from "ink-testing-library";
import type { TraceEvent, TraceMessage } from "../../record/trace/record.ts";
import { createTraceStore, TraceScreen } from "./trace-screen.tsx";

const at = (eventEnd: number, message: TraceMessage, severity: TraceEvent["severity"] = "info"): TraceEvent => ({
  eventStart: null,
  eventEnd,
  severity,
  message,
});

const EVENTS: TraceEvent[] = [
  at(1, { type: "requestStarted" }),
  at(20, {
    type: "requestSnapshot",
    stage: "initial request",
    requestState: { request: { method: "GET", path: "/a" } },
  }),
  at(30, { type: "routeSelection", selectedRoute: "tools", evaluatedRoutes: ["tools"] }),
  at(40, { type: "policySelection", phase: "route", effectivePolicy: { authorization: {} } }),
  at(50, { type: "policy", phase: "route", kind: "authorization", result: "refused", details: "no role" }, "warn"),
  at(60, { type: "requestFinished", status: 403, error: "authorization failed" }, "error"),
];
const DOWN = "\u001b[B";
const UP = "\u001b[A";

function open(events = EVENTS) {
  const store = createTraceStore();
  const screen = render(<TraceScreen title="test" store={store} hasColor={false} />);
  for (const event of events) store.add(event);
  store.complete();
  const frame = async (): Promise<string> => {
    await settled();
    return screen.lastFrame() ?? "";
  };
  const press = async (...keys: string[]): Promise<string> => {
    await settled();
    for (const key of keys) {
      screen.stdin.write(key);
      await settled();
    }
    return frame();
  };
  return { store, screen, frame, press };
}

/** React and ink render in later turns of the event loop. */
async function settled(): Promise<void> {
  for (let i = 0; i < 10; i++) await new Promise((resolve) => setImmediate(resolve));
}

const selectedRow = (frame: string): string | undefined => /›\s+(\d+)/.exec(frame)?.[1];

test("events are listed with the labels of spec 6, the last one selected", async () => {
  const { frame, screen } = open();
  const shown = await frame();
  for (const label of ["Request Start", "Snapshot", "Route", "Policies", "Policy", "Request Done"])
    assert.ok(shown.includes(label), label);
  assert.equal(selectedRow(shown), "6");
  assert.match(shown, /6 events, complete/);
  screen.unmount();
});

test("severity and time show without color", async () => {
  const { frame, screen } = open();
  assert.match(await frame(), /5 ! +\+[\d.]+(?: [µm]s)? Policy/);
  assert.match(await frame(), /6 ✗ +\+[\d.]+(?: [µm]s)? Request Done/);
  screen.unmount();
});

test("arrows and j/k move, and stop at both ends", async () => {
  const { press, screen } = open();
  assert.equal(selectedRow(await press(UP)), "5");
  assert.equal(selectedRow(await press("k")), "4");
  assert.equal(selectedRow(await press(DOWN, "j", DOWN, DOWN)), "6");
  assert.equal(selectedRow(await press("g", UP)), "1");
  assert.equal(selectedRow(await press("G")), "6");
  screen.unmount();
});

test("a search goes to the next event with the text, forward and back and around, and letters are not commands while typing", async () => {
  const { press, screen } = open();
  const typing = await press("g", "/", "q", "k");
  assert.match(typing, /\/qk█/);
  assert.match(typing, /enter find {2}esc cancel/);
  // Backspace as terminals send it, then pasted text.
  const found = await press("\u007f", "\u007f", "AUTHORIZATION", "\r");
  assert.equal(selectedRow(found), "4");
  assert.match(found, /"AUTHORIZATION": 1 of 3 events/);
  assert.equal(selectedRow(await press("n")), "5");
  assert.equal(selectedRow(await press("n", "n")), "4");
  assert.equal(selectedRow(await press("N")), "6");
  // The search also covers the detail pane, and keys that arrive at once all count.
  assert.equal(selectedRow(await press("g/evaluatedRoutes\r")), "3");
  assert.match(await press("/no such thing\r"), /no event with "no such thing"/);
  const cancelled = await press("/", "x", "\u001b");
  assert.doesNotMatch(cancelled, /█|"x"/);
  assert.equal(selectedRow(await press("g")), "1");
  screen.unmount();
});

test("text pasted into a search cannot move the cursor", async () => {
  const { press, screen } = open();
  assert.match(await press("/", "a\u0007b\u0085c"), /\/abc█/);
  screen.unmount();
});

test("keys that arrive together all count", async () => {
  const { press, screen } = open();
  assert.equal(selectedRow(await press("gjj")), "3");
  screen.unmount();
});

test("the detail pane shows the event, the snapshot, the changes and the waterfall", async () => {
  const { press, screen } = open();
  assert.match(await press("g"), /type: requestStarted/);
  assert.match(await press("s"), /no snapshot yet/);
  assert.match(await press(DOWN), /method: GET/);
  assert.match(await press("d"), /the first request snapshot/);
  assert.match(await press("w"), /Waterfall/);
  assert.match(await press("e", "f"), /"type": "requestSnapshot"/);
  screen.unmount();
});

test("a new event is followed while the last one is selected, and not otherwise", async () => {
  const { press, frame, store, screen } = open();
  await press(UP, UP);
  store.add(at(70, { type: "requestStarted" }));
  assert.equal(selectedRow(await frame()), "4");
  await press("G");
  store.add(at(80, { type: "requestStarted" }));
  assert.equal(selectedRow(await frame()), "8");
  screen.unmount();
});

test("control characters in data are shown as text", async () => {
  const { frame, screen } = open([at(1, { type: "backendCallStart", target: "a\u001b]0;owned\u0007b" })]);
  const shown = await frame();
  assert.ok(shown.includes("a\\u001b]0;owned\\u0007b"));
  assert.ok(!shown.includes("\u0007"));
  screen.unmount();
});

test("before the first event the screen shows instructions", async () => {
  const { frame, screen } = open([]);
  assert.match(await frame(), /Send a request: its steps/);
  screen.unmount();
});

test("the frame fits its terminal: no line is longer than it is wide", async () => {
  const { frame, screen } = open();
  const lines = (await frame()).split("\n");
  assert.ok(lines.length <= 24, `${lines.length}`);
  assert.ok(lines.every((line) => line.length <= 100));
  screen.unmount();
});

test("q quits", async () => {
  const { press, screen } = open();
  const before = await press("q");
  screen.stdin.write("g");
  await settled();
  assert.equal(selectedRow(screen.lastFrame() ?? "") ?? "6", selectedRow(before) ?? "6");
  screen.unmount();
});
