import assert from "node:assert/strict";
import { test } from "node:test";
import { fakeClock } from "../../test/support/fake-clock.ts";
import type { Topology } from "../core/topology.ts";
import { silentLogger } from "../record/log/logger.ts";
import { createShutdown, SHUTDOWN_STEPS, suspendedCallsEnded } from "./shutdown.ts";

test("steps run in the order of the list, whatever the order in which things were opened", async () => {
  const shutdown = createShutdown(fakeClock(), silentLogger);
  const seen: string[] = [];
  for (const step of [...SHUTDOWN_STEPS].reverse()) shutdown.at(step, () => void seen.push(step));
  await shutdown.run(0);
  assert.deepEqual(seen, [...SHUTDOWN_STEPS]);
  await shutdown.ended;
});

test("a step begins when everything of the step before it has closed", async () => {
  const shutdown = createShutdown(fakeClock(), silentLogger);
  const seen: string[] = [];
  let requestsEnd: () => void = () => undefined;
  shutdown.at("listeners", () => new Promise<void>((resolve) => (requestsEnd = resolve)));
  shutdown.at("resources", () => void seen.push("resources"));
  const ended = shutdown.run(1_000);
  await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual(seen, []);
  requestsEnd();
  await ended;
  assert.deepEqual(seen, ["resources"]);
});

test("asked for again, requests get no more time", async () => {
  const shutdown = createShutdown(fakeClock(), silentLogger);
  const limits: number[] = [];
  let release: () => void = () => undefined;
  shutdown.at("listeners", (drainMs) => {
    limits.push(drainMs);
    return drainMs === 0 ? release() : new Promise<void>((resolve) => (release = resolve));
  });
  assert.equal(shutdown.hasBegun, false);
  const first = shutdown.run(30_000);
  assert.equal(shutdown.hasBegun, true);
  await new Promise((resolve) => setImmediate(resolve));
  await Promise.all([first, shutdown.run(30_000)]);
  assert.deepEqual(limits, [30_000, 0]);
});

test("what fails to close is logged and keeps nothing else open", async () => {
  const warnings: unknown[] = [];
  const logger = { ...silentLogger, warn: (_message: string, fields?: object) => void warnings.push(fields) };
  const shutdown = createShutdown(fakeClock(), logger);
  const seen: string[] = [];
  shutdown.at("watch", () => {
    throw new Error("at once");
  });
  shutdown.at("resources", () => Promise.reject(new Error("later")));
  shutdown.at("admin", () => void seen.push("admin"));
  await shutdown.run(0);
  assert.deepEqual(seen, ["admin"]);
  assert.deepEqual(warnings, [
    { what: "watch", error: "Error: at once" },
    { what: "resources", error: "Error: later" },
  ]);
});

test("a child that does not end holds the process for a few seconds only", async () => {
  const clock = fakeClock();
  const shutdown = createShutdown(clock, silentLogger);
  let isOver = false;
  shutdown.at("resources", () => new Promise<void>(() => undefined));
  void shutdown.ended.then(() => {
    isOver = true;
  });
  const ended = shutdown.run(0);
  await clock.advance(7_999);
  assert.equal(isOver, false);
  await clock.advance(1);
  await ended;
});

test("suspended calls are awaited until they end or the time is over", async () => {
  const clock = fakeClock();
  let isWaiting = true;
  const backend = { mcp: { hasSuspendedCalls: () => isWaiting } };
  const topology = { listeners: [{ routes: [{ backends: [{ backend }] }] }] } as unknown as Topology;
  const seen: string[] = [];
  void suspendedCallsEnded(topology, clock, 60_000).then(() => seen.push("ended"));
  void suspendedCallsEnded(topology, clock, 5_000).then(() => seen.push("timeout"));
  await clock.advance(4_000);
  assert.deepEqual(seen, []);
  await clock.advance(2_000);
  assert.deepEqual(seen, ["timeout"]);
  isWaiting = false;
  await clock.advance(1_000);
  assert.deepEqual(seen, ["timeout", "ended"]);
});
