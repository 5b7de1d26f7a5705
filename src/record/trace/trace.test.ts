import assert from "node:assert/strict";
import { test } from "node:test";
import { createTraceHub, MAX_WATCHERS, type WaitingWatcher } from "./trace.ts";

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
