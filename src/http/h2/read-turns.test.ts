import assert from "node:assert/strict";
import { test } from "node:test";
import { REQUEST_COST, ReadTurn, ReadTurns } from "./read-turns.ts";

/** Iterations of an event loop that the test runs. */
function createLoop() {
  const scheduled: (() => void)[] = [];
  const turns = new ReadTurns((action) => void scheduled.push(action));
  return {
    turns,
    get isIdle() {
      return scheduled.length === 0;
    },
    iterate() {
      for (const action of scheduled.splice(0)) action();
    },
  };
}

function openConnection(turns: ReadTurns, name: string, log: string[]): ReadTurn {
  return new ReadTurn(
    { start: () => void log.push(`start ${name}`), stop: () => void log.push(`stop ${name}`) },
    turns,
  );
}

test("a connection with few requests or frames is never stopped", () => {
  const { turns, isIdle } = createLoop();
  const log: string[] = [];
  const turn = openConnection(turns, "a", log);
  for (let i = 0; i < 64; i++) turn.spend(REQUEST_COST);
  assert.deepEqual([log, isIdle], [[], true]);
});

test("a connection with many frames reads on in a later iteration", () => {
  const loop = createLoop();
  const log: string[] = [];
  const turn = openConnection(loop.turns, "a", log);
  for (let i = 0; i < 3_000; i++) turn.spend(1);
  assert.deepEqual(log, ["stop a"]);
  loop.iterate();
  turn.spend(1);
  assert.deepEqual([log, loop.isIdle], [["stop a", "start a"], true]);
});

test("two connections have their turn in one iteration, in the order in which they were stopped", () => {
  const loop = createLoop();
  const log: string[] = [];
  for (const name of ["a", "b", "c", "d", "e"]) openConnection(loop.turns, name, log).spend(10_000);
  log.length = 0;
  loop.iterate();
  assert.deepEqual(log, ["start a", "start b"]);
  loop.iterate();
  loop.iterate();
  assert.deepEqual(log.slice(2), ["start c", "start d", "start e"]);
  assert.ok(loop.isIdle);
});

test("a connection that is stopped for good reads nothing more", () => {
  const loop = createLoop();
  const log: string[] = [];
  const turn = openConnection(loop.turns, "a", log);
  turn.spend(10_000);
  turn.stop();
  turn.spend(10_000);
  turn.begin();
  loop.iterate();
  assert.deepEqual(new Set(log), new Set(["stop a"]));
});
