import assert from "node:assert/strict";
import { test } from "node:test";
import { mergeServerStates, type ServerState, serverState } from "./server-state.ts";

const up = { target: "a", state: "up", stderr: ["hello"] };
const down = { target: "a", state: "down", lastError: "exited with code 1", stderr: ["no key"] };
const failed = { reason: "exited with code 2", stderr: ["bye"], agoMs: 60_000, times: 1, isOver: false };
const idle: ServerState = { target: "a", state: "idle", sessions: 0, lostSessions: 0, stderr: [] };

const cases: readonly [string, Parameters<typeof serverState>[1], Parameters<typeof serverState>[2], ServerState][] = [
  ["that no session uses", [], undefined, idle],
  ["whose backend has another server", [{ ...down, target: "b" }], undefined, idle],
  ["that is up", [up, up], undefined, { ...idle, state: "up", sessions: 2, stderr: ["hello"] }],
  ["that is starting", [{ ...up, state: "connecting" }], undefined, { ...idle, stderr: ["hello"] }],
  [
    "that is down in one session",
    [up, down],
    undefined,
    {
      target: "a",
      state: "failing",
      sessions: 1,
      lostSessions: 1,
      lastError: "exited with code 1",
      stderr: ["no key"],
    },
  ],
  [
    "that never came up",
    [],
    failed,
    { ...idle, state: "failing", lastError: "exited with code 2", agoMs: 60_000, stderr: ["bye"] },
  ],
  [
    "that failed and is up again",
    [{ ...up, stderr: [] }],
    { ...failed, isOver: true },
    { ...idle, state: "up", sessions: 1, lastError: "exited with code 2", agoMs: 60_000, stderr: ["bye"] },
  ],
  ["that sessions share", [up, { target: "a" }], undefined, { ...idle, state: "up", sessions: 1, stderr: ["hello"] }],
];
for (const [name, details, failure, expected] of cases)
  test(`the state of a server ${name}`, () => {
    assert.deepEqual(serverState("a", details, failure), expected);
  });

test("the states of threads merge to the state of all their connections, in any order", () => {
  const threads = [
    { details: [], failure: undefined },
    { details: [up], failure: undefined },
    { details: [up, down], failure: undefined },
    { details: [], failure: failed },
    { details: [up], failure: { ...failed, isOver: true, agoMs: 90_000 } },
  ];
  for (const one of threads)
    for (const other of threads) {
      const reports = [one, other].map(({ details, failure }) => serverState("a", details, failure));
      const [merged, ...rest] = mergeServerStates(reports);
      const open = [one.failure, other.failure].find((failure) => failure?.isOver === false);
      const whole = serverState("a", [...one.details, ...other.details], open ?? one.failure ?? other.failure);
      assert.deepEqual(rest, []);
      assert.deepEqual(
        [merged?.state, merged?.sessions, merged?.lostSessions, merged?.lastError],
        [whole.state, whole.sessions, whole.lostSessions, whole.lastError],
      );
    }
});

test("servers of different names stay apart", () => {
  const b = { ...idle, target: "b" };
  assert.deepEqual(mergeServerStates([idle, b, idle, b]), [idle, b]);
});
