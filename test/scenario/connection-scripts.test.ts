/**
 * Short runs of `scripts/connection-scripts.mjs` and `scripts/http2-scripts.mjs`, always the same; long runs are started by hand.
 */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const GATEWAY = fileURLToPath(new URL("../../src/bin/gateway.js", import.meta.url));

function run(script: string, ...flags: string[]): string {
  const { status, stdout, stderr } = spawnSync(
    process.execPath,
    [script, "--seed", "1", "--gateway", GATEWAY, ...flags],
    {
      encoding: "utf8",
    },
  );
  assert.equal(status, 0, `${stdout.slice(-5_000)}${stderr}`);
  return stdout;
}

test("1,000 scripts of pipelined messages: no end, no hang, no answer to somebody else", { timeout: 600_000 }, () => {
  assert.match(run("scripts/connection-scripts.mjs", "--count", "1000"), /1000 scripts, [\s\S]*verdict: no faults/);
});

test("200 HTTP/2 connections with valid and broken frames: no end, no hang, no answer to somebody else", {
  timeout: 600_000,
}, () => {
  // Clients that vanish are noticed after 45 seconds: long runs wait for that.
  const printed = run("scripts/http2-scripts.mjs", "--count", "200", "--leave");
  assert.match(printed, /200 connections, [\s\S]*verdict: no faults/);
});
