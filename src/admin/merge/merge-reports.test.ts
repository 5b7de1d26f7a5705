import assert from "node:assert/strict";
import { test } from "node:test";
import { mergeDumps, mergeMemory, mergeMirrors, mergeRequests, mergeTasks } from "./merge-reports.ts";

test("requests come newest first, up to the requested limit", () => {
  const reports = [
    { requests: [{ seq: 5 }, { seq: 2 }], inFlight: 1, kept: 400, capacity: 500 },
    { requests: [{ seq: 4 }, { seq: 3 }], inFlight: 2, kept: 300, capacity: 500 },
  ];
  assert.deepEqual(mergeRequests(reports, 3), {
    requests: [{ seq: 5 }, { seq: 4 }, { seq: 3 }],
    inFlight: 3,
    kept: 500,
    capacity: 500,
  });
  assert.deepEqual(mergeRequests([{ requests: [{ seq: 1 }] }], 9), { requests: [{ seq: 1 }] });
});

test("a listener of all threads is one task; its port is not a sum, and its children are joined", () => {
  const task = (connections: number, child: string) => ({
    kind: "listener",
    name: "main",
    ageMs: connections,
    detail: { port: 80, connections },
    children: [{ kind: "request", name: child }],
  });
  const own = { process: { pid: 7 }, requestsInFlight: 0, tasks: [] };
  const merged = mergeTasks(own, [
    { requestsInFlight: 1, tasks: [task(3, "GET /a")] },
    { requestsInFlight: 1, tasks: [task(4, "GET /a")] },
  ]);
  assert.deepEqual(merged, {
    process: { pid: 7 },
    requestsInFlight: 2,
    tasks: [
      {
        kind: "listener",
        name: "main",
        ageMs: 4,
        detail: { port: 80, connections: 7 },
        children: [
          { kind: "request", name: "GET /a" },
          { kind: "request", name: "GET /a" },
        ],
      },
    ],
  });
});

test("memory is added by heap space and listed by thread", () => {
  const report = (used: number, connections: number) => ({
    heap: { usedBytes: used, limitBytes: 100, spaces: [{ name: "new", usedBytes: used }] },
    external: { bytes: used },
    parts: { connections: { connections }, limits: [] },
  });
  const own = { process: { rssBytes: 9 }, ...report(1, 0), parts: { limits: ["all"] } };
  const merged = mergeMemory(own, [report(10, 2), report(20, 3)]);
  assert.deepEqual(merged.heap, { usedBytes: 31, limitBytes: 100, spaces: [{ name: "new", usedBytes: 31 }] });
  assert.deepEqual(merged.parts, { connections: { connections: 5 }, limits: ["all"] });
  assert.deepEqual(
    (merged.threads as { thread: number; connections: number }[]).map(({ thread, connections }) => [
      thread,
      connections,
    ]),
    [
      [1, 2],
      [2, 3],
    ],
  );
});

test("comparisons of mirrors are added up, means weighted by their counts", () => {
  const counts = { status: 0, shape: 1, failed: 0, unread: 0, slower: 0, others: 0 };
  const of = (compared: number, mirrorMs: number, requests: number) => ({
    since: "s",
    mirrors: [
      {
        route: "r",
        mirror: "m",
        compared,
        same: compared - 1,
        ...counts,
        backendMs: 1,
        mirrorMs,
        differences: [{ difference: "$.a: missing", requests, examples: [] }],
      },
    ],
    others: 1,
  });
  assert.deepEqual(mergeMirrors([of(1, 4, 1), of(3, 8, 2)]), {
    since: "s",
    mirrors: [
      {
        route: "r",
        mirror: "m",
        compared: 4,
        same: 2,
        ...counts,
        shape: 2,
        backendMs: 1,
        mirrorMs: 7,
        differences: [{ difference: "$.a: missing", requests: 3, examples: [] }],
      },
    ],
    others: 2,
  });
});

test("the dump is the main thread's, with connections and sessions of all", () => {
  const own = {
    version: "1",
    backends: [
      { name: "a", connections: 0, weight: 1 },
      { name: "b", sessions: 0 },
    ],
  };
  const thread = (connections: number, sessions: number) => ({
    backends: [
      { name: "a", connections, weight: 1 },
      { name: "b", sessions },
    ],
  });
  assert.deepEqual(mergeDumps(own, [thread(2, 1), thread(3, 4)]), {
    version: "1",
    backends: [
      { name: "a", connections: 5, weight: 1 },
      { name: "b", sessions: 5 },
    ],
  });
});

test("a dump has the worst health of all threads, and the calls of all", () => {
  const ai = (failures: number, failed: number, agoMs?: number) => ({
    name: "models",
    targets: [
      {
        name: "main",
        failures,
        resting: failures > 1,
        recent: { calls: 4, failed },
        ...(agoMs === undefined ? {} : { lastFailureAgoMs: agoMs }),
      },
    ],
  });
  const own = {
    backends: [{ name: "models", targets: [{ name: "main", failures: 0, recent: { calls: 0, failed: 0 } }] }],
  };
  const { backends } = mergeDumps(own, [{ backends: [ai(2, 2, 900)] }, { backends: [ai(0, 1, 50)] }]);
  assert.deepEqual(backends, [
    {
      name: "models",
      targets: [{ name: "main", failures: 2, resting: true, recent: { calls: 8, failed: 3 }, lastFailureAgoMs: 50 }],
    },
  ]);
});
