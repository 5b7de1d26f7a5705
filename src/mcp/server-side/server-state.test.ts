import assert from "node:assert/strict";
import { test } from "node:test";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import { ServerFailures } from "./server-state.ts";

test("a server that never failed has nothing to tell", () => {
  assert.equal(new ServerFailures(fakeClock()).last(), undefined);
});

test("the last failure is kept, with its age and how often it happened, also when the server is up again", async () => {
  const clock = fakeClock();
  const failures = new ServerFailures(clock);
  failures.add("exited with code 1", ["first"]);
  failures.add("exited with code 2", ["no key", "bye"]);
  await clock.advance(5_000);
  const told = { reason: "exited with code 2", stderr: ["no key", "bye"], agoMs: 5_000, times: 2 };
  assert.deepEqual(failures.last(), { ...told, isOver: false });
  failures.over();
  assert.deepEqual(failures.last(), { ...told, isOver: true });
});

test("a reason that quotes a long line is cut", () => {
  const failures = new ServerFailures(fakeClock());
  failures.add("x".repeat(10_000), []);
  assert.equal(failures.last()?.reason.length, 500);
});
