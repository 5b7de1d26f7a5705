/**
 * A short run of `scripts/connection-scripts.mjs`, always the same scripts; long runs are started by hand.
 */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const GATEWAY = fileURLToPath(new URL("../../src/bin/gateway.js", import.meta.url));

test("2,000 scripts of pipelined messages: no end, no hang, no answer to somebody else", { timeout: 110_000 }, () => {
  const run = spawnSync(
    process.execPath,
    ["scripts/connection-scripts.mjs", "--count", "2000", "--seed", "1", "--gateway", GATEWAY],
    { encoding: "utf8" },
  );
  assert.equal(run.status, 0, `${run.stdout.slice(-5_000)}${run.stderr}`);
  assert.match(run.stdout, /2000 scripts, [\s\S]*verdict: no faults/);
});
