/**
 * The engine's tests again with fast reads off (`GATEWAY_FAST_READS=off`): both ways of reading sockets behave the same.
 */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const SCENARIOS = [
  "edge-connections",
  "edge-pipelining",
  "edge-requests",
  "http-bodies",
  "http-client-contract",
  "http-websocket",
];

for (const name of SCENARIOS) {
  test(`fast reads off: ${name}`, async () => {
    const { NODE_TEST_CONTEXT: _, ...env } = process.env;
    const child = spawn(
      process.execPath,
      [
        "--import",
        new URL("../support/plain-reads.js", import.meta.url).href,
        fileURLToPath(new URL(`./${name}.test.js`, import.meta.url)),
      ],
      { env, stdio: ["ignore", "pipe", "inherit"] },
    );
    let output = "";
    child.stdout.setEncoding("utf8").on("data", (text: string) => {
      output += text;
    });
    const [code] = (await once(child, "close")) as [number | null];
    assert.equal(code, 0, output);
    // A file without tests would pass as well.
    assert.match(output, /^# pass [1-9]|ℹ pass [1-9]/m);
  });
}
