import assert from "node:assert/strict";
import { test } from "node:test";
import type { TraceEvent } from "./record.ts";
import { createKeptTraces, createTraceHub, MAX_WATCHERS, type WaitingWatcher } from "./trace.ts";

const watcher = { event: () => undefined, finished: () => undefined };
function waiting(
  matches: (subject: string) => boolean = () => true,
  count = 1,
): WaitingWatcher<string> & { got: string[] } {
  const got: string[] = [];
  return {
    got,
    count,
    matches,
    begin(subject) {
      got.push(subject);
      return watcher;
    },
  };
}

test("waiting clients are served first come, first served, one request each", () => {
  const hub = createTraceHub<string>();
  const [first, second] = [waiting(), waiting()];
  hub.wait(first);
  hub.wait(second);
  hub.take("a");
  hub.take("b");
  assert.equal(hub.take("c"), undefined);
  assert.deepEqual([first.got, second.got], [["a"], ["b"]]);
});

test("a client whose expression does not match leaves the request to the next client", () => {
  const hub = createTraceHub<string>();
  const [picky, any] = [waiting((subject) => subject === "z"), waiting()];
  hub.wait(picky);
  hub.wait(any);
  hub.take("a");
  hub.take("z");
  assert.deepEqual([picky.got, any.got], [["z"], ["a"]]);
});

test("a client may watch several requests", () => {
  const hub = createTraceHub<string>();
  const two = waiting(undefined, 2);
  hub.wait(two);
  for (const subject of ["a", "b", "c"]) hub.take(subject);
  assert.deepEqual(two.got, ["a", "b"]);
});

test("a client that disconnects gets no further events and frees one slot", () => {
  const hub = createTraceHub<string>();
  const gone = waiting();
  const withdraw = hub.wait(gone);
  withdraw?.();
  withdraw?.();
  assert.equal(hub.take("a"), undefined);
  for (let i = 0; i < MAX_WATCHERS; i++) assert.ok(hub.wait(waiting()));
  assert.equal(hub.isFull(), true);
  assert.equal(hub.wait(waiting()), undefined);
});

test("a client that is being served counts until it disconnects", () => {
  const hub = createTraceHub<string>();
  const leave = Array.from({ length: MAX_WATCHERS }, () => hub.wait(waiting()));
  hub.take("a");
  assert.equal(hub.wait(waiting()), undefined);
  leave[0]?.();
  assert.ok(hub.wait(waiting()));
});

const event = (target: string): TraceEvent => ({
  eventStart: null,
  eventEnd: 1,
  severity: "info",
  message: { type: "backendCallStart", target },
});

function keep(kept: ReturnType<typeof createKeptTraces>, id: string, ...targets: string[]): void {
  const recording = kept.record();
  for (const target of targets) recording.event(event(target));
  recording.keep(id);
}

test("a kept trace is found by the request's id, and other traces are released", () => {
  const kept = createKeptTraces(10_000);
  keep(kept, "one", "a", "b");
  kept.record().event(event("never kept"));
  assert.deepEqual(kept.find("one"), [event("a"), event("b")]);
  assert.equal(kept.find("two"), undefined);
});

test("the oldest traces are evicted when the budget is exhausted", () => {
  const size = JSON.stringify([event("x".repeat(100))]).length;
  const kept = createKeptTraces(size * 2);
  for (const id of ["one", "two", "three"]) keep(kept, id, "x".repeat(100));
  assert.equal(kept.find("one"), undefined);
  assert.ok(kept.find("two"));
  assert.deepEqual(kept.report(), { traces: 2, bytes: size * 2, maxBytes: size * 2 });
});

test("a trace larger than the whole budget is not kept and evicts nothing", () => {
  const kept = createKeptTraces(300);
  keep(kept, "small", "a");
  keep(kept, "large", "x".repeat(1000));
  assert.ok(kept.find("small"));
  assert.equal(kept.find("large"), undefined);
});

test("the same id twice keeps the newer one and counts it once", () => {
  const kept = createKeptTraces(10_000);
  keep(kept, "one", "old");
  keep(kept, "one", "new");
  assert.deepEqual(kept.find("one"), [event("new")]);
  assert.equal(kept.report().traces, 1);
});

test("a trace that is too large does not leave an older trace with the same id", () => {
  const kept = createKeptTraces(300);
  keep(kept, "one", "old");
  keep(kept, "one", "x".repeat(1000));
  assert.equal(kept.find("one"), undefined);
  assert.deepEqual(kept.report(), { traces: 0, bytes: 0, maxBytes: 300 });
});

test("beyond 500 events expressions are omitted and counted; everything else is kept", () => {
  const kept = createKeptTraces(1_000_000);
  const recording = kept.record();
  for (let i = 0; i < 600; i++)
    recording.event({ ...event(""), message: { type: "cel", expression: `${i}`, result: { value: true } } });
  recording.event(event("the end"));
  recording.keep("many");
  const events = kept.find("many") ?? [];
  assert.equal(events.length, 502);
  assert.deepEqual(events.at(-2), event("the end"));
  assert.deepEqual(events.at(-1)?.message, { type: "policyEvent", kind: "leftOut", details: { cel: 100 } });
});

test("the size of a trace is counted in bytes, not in characters", () => {
  const bytes = Buffer.byteLength(JSON.stringify([event("é".repeat(100))]));
  const kept = createKeptTraces(bytes);
  keep(kept, "fits", "é".repeat(100));
  keep(kept, "too large", "é".repeat(101));
  assert.deepEqual(kept.find("fits"), [event("é".repeat(100))]);
  assert.deepEqual(kept.report(), { traces: 1, bytes, maxBytes: bytes });
});
