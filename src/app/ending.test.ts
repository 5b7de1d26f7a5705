import assert from "node:assert/strict";
import { test } from "node:test";
import { fakeClock } from "../../test/support/fake-clock.ts";
import { silentLogger } from "../observe/log/logger.ts";
import { createEnding, END_STEPS } from "./ending.ts";

test("steps run in the order of the list, whatever the order in which things were opened", async () => {
  const ending = createEnding(fakeClock(), silentLogger);
  const seen: string[] = [];
  for (const step of [...END_STEPS].reverse()) ending.at(step, () => void seen.push(step));
  await ending.end(0);
  assert.deepEqual(seen, [...END_STEPS]);
  await ending.ended;
});

test("a step begins when everything of the step before it has closed", async () => {
  const ending = createEnding(fakeClock(), silentLogger);
  const seen: string[] = [];
  let requestsEnd: () => void = () => undefined;
  ending.at("listeners", () => new Promise<void>((resolve) => (requestsEnd = resolve)));
  ending.at("living", () => void seen.push("living"));
  const ended = ending.end(1_000);
  await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual(seen, []);
  requestsEnd();
  await ended;
  assert.deepEqual(seen, ["living"]);
});

test("asked for again, requests get no more time", async () => {
  const ending = createEnding(fakeClock(), silentLogger);
  const limits: number[] = [];
  let release: () => void = () => undefined;
  ending.at("listeners", (drainMs) => {
    limits.push(drainMs);
    return drainMs === 0 ? release() : new Promise<void>((resolve) => (release = resolve));
  });
  assert.equal(ending.hasBegun, false);
  const first = ending.end(30_000);
  assert.equal(ending.hasBegun, true);
  await new Promise((resolve) => setImmediate(resolve));
  await Promise.all([first, ending.end(30_000)]);
  assert.deepEqual(limits, [30_000, 0]);
});

test("what fails to close is logged and keeps nothing else open", async () => {
  const warnings: unknown[] = [];
  const logger = { ...silentLogger, warn: (_message: string, fields?: object) => void warnings.push(fields) };
  const ending = createEnding(fakeClock(), logger);
  const seen: string[] = [];
  ending.at("watch", () => {
    throw new Error("at once");
  });
  ending.at("living", () => Promise.reject(new Error("later")));
  ending.at("admin", () => void seen.push("admin"));
  await ending.end(0);
  assert.deepEqual(seen, ["admin"]);
  assert.deepEqual(warnings, [
    { what: "watch", error: "Error: at once" },
    { what: "living", error: "Error: later" },
  ]);
});

test("a child that does not end holds the process for a few seconds only", async () => {
  const clock = fakeClock();
  const ending = createEnding(clock, silentLogger);
  let isOver = false;
  ending.at("living", () => new Promise<void>(() => undefined));
  void ending.ended.then(() => {
    isOver = true;
  });
  const ended = ending.end(0);
  await clock.advance(7_999);
  assert.equal(isOver, false);
  await clock.advance(1);
  await ended;
});
