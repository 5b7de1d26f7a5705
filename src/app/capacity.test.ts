import assert from "node:assert/strict";
import { test } from "node:test";
import { LISTENER_LIMITS } from "../pipeline/listen/listener-env.ts";
import { silentLogger } from "../record/log/logger.ts";
import { fittingLimits } from "./capacity.ts";

const SETTINGS = { tunnelIdleTimeout: LISTENER_LIMITS.tunnelIdleMs };

function limitsWith(openFiles: number | undefined, wished = {}) {
  const warnings: unknown[] = [];
  const logger = { ...silentLogger, warn: (_message: string, fields?: object) => void warnings.push(fields) };
  return { limits: fittingLimits(SETTINGS, wished, logger, openFiles), warnings };
}

test("with files enough, listeners take what was wanted, silently", () => {
  const { limits, warnings } = limitsWith(1_000_000);
  assert.deepEqual(limits, LISTENER_LIMITS);
  assert.deepEqual(warnings, []);
});

test("with few, they take fewer connections and say what is needed", () => {
  const { limits, warnings } = limitsWith(1_024, { maxConnections: 10_000 });
  assert.ok(limits.maxConnections > 0 && limits.maxConnections < 1_024);
  assert.deepEqual(warnings, [{ openFiles: 1_024, connections: limits.maxConnections, wantedOpenFiles: 20_000 }]);
});

test("where memory or the heap is small, they take as many as fit", () => {
  const MIB = 1024 * 1024;
  const fitting = (memoryMib: number, heapMib: number): number =>
    fittingLimits(SETTINGS, {}, silentLogger, 1_000_000, memoryMib * MIB, heapMib * MIB).maxConnections;
  assert.deepEqual(
    [fitting(65_536, 4_096), fitting(512, 256), fitting(65_536, 128), fitting(1, 1)],
    [10_000, 4_096, 4_096, 8],
  );
});

test("what a test wishes for counts before the defaults", () => {
  assert.equal(limitsWith(1_000_000, { maxConnections: 3 }).limits.maxConnections, 3);
});
