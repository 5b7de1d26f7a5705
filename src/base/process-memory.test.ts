import assert from "node:assert/strict";
import { test } from "node:test";
import { processMemoryUsage, processResidentBytes } from "./process-memory.ts";

const fail = (): never => {
  throw Object.assign(new Error("A system error occurred: uv_resident_set_memory returned EMFILE"), { code: "ERR" });
};

test("the memory of this process is read", () => {
  const usage = processMemoryUsage();
  assert.ok(usage.rss > 0 && usage.heapUsed > 0);
  assert.ok(processResidentBytes() > 0);
});

test("without a free file descriptor, the last resident memory counts, and the heap is read", () => {
  assert.equal(
    processResidentBytes(() => 2 ** 40),
    2 ** 40,
  );
  assert.equal(processResidentBytes(fail), 2 ** 40);
  const usage = processMemoryUsage(fail);
  assert.equal(usage.rss, 2 ** 40);
  assert.ok(usage.heapTotal >= usage.heapUsed && usage.heapUsed > 0 && usage.external > 0);
});

test("resident memory that was never read is at least the heap", () => {
  processResidentBytes(() => 0);
  const { rss, heapTotal, external } = processMemoryUsage(fail);
  assert.equal(rss, heapTotal + external);
});
