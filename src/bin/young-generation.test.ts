import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";

const MIB = 1024 * 1024;

/** Allocates objects that survive, and prints the sizes of the young generation, in a process with a heap of its own. */
const PROGRAM = `
import { getHeapSpaceStatistics } from "node:v8";
import { limitYoungGeneration, releaseYoungGeneration } from "${new URL("./young-generation.js", import.meta.url)}";
const kept = [];
function youngBytes() {
  for (let index = 0; index < 400_000; index++) kept.push({ index, list: [index] });
  return getHeapSpaceStatistics().find(({ space_name }) => space_name === "new_space").space_size;
}
limitYoungGeneration();
const atStart = youngBytes();
releaseYoungGeneration();
console.log(JSON.stringify({ atStart, later: youngBytes() }));`;

test("the young generation grows only after the start", () => {
  const printed = execFileSync(process.execPath, ["--input-type=module", "-e", PROGRAM], { encoding: "utf8" });
  const { atStart, later } = JSON.parse(printed) as { atStart: number; later: number };
  assert.ok(atStart <= 4 * MIB, `${atStart} bytes at the start`);
  assert.ok(later > 4 * MIB, `${later} bytes later`);
});
