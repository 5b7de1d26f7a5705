import assert from "node:assert/strict";
import { test } from "node:test";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import { foldRepeats } from "./fold-repeats.ts";
import { type LogFields, silentLogger } from "./logger.ts";

function folding() {
  const clock = fakeClock();
  const lines: string[] = [];
  const write =
    (level: string) =>
    (message: string, fields?: LogFields): void =>
      void lines.push(`${level} ${message}${fields ? ` ${JSON.stringify(fields)}` : ""}`);
  const logger = foldRepeats(
    { ...silentLogger, warn: write("warn"), error: write("error"), info: write("info") },
    clock,
  );
  return { clock, lines, logger };
}

test("the first line is written immediately, repeats with a count after growing pauses", async () => {
  const { clock, lines, logger } = folding();
  const written: string[] = [];
  for (let second = 0; second < 1_000; second++) {
    logger.warn("MCP server failed", { server: "a" });
    for (const line of lines.splice(0)) written.push(`${second}: ${line}`);
    await clock.advance(1_000);
  }
  assert.deepEqual(written, [
    '0: warn MCP server failed {"server":"a"}',
    '10: warn MCP server failed {"server":"a","times":10}',
    '70: warn MCP server failed {"server":"a","times":60}',
    '670: warn MCP server failed {"server":"a","times":600}',
  ]);
});

test("other lines, other fields and other levels are not folded together", () => {
  const { lines, logger } = folding();
  logger.warn("a", { server: "x" });
  logger.warn("a", { server: "y" });
  logger.error("a", { server: "x" });
  for (let i = 0; i < 3; i++) logger.info("b");
  assert.equal(lines.length, 6);
});

test("intermittent failures are folded too, and logged as new after a long silence", async () => {
  const { clock, lines, logger } = folding();
  logger.warn("a");
  for (let i = 0; i < 3; i++) {
    await clock.advance(30_000);
    logger.warn("a");
  }
  assert.deepEqual(lines.splice(0), ["warn a", 'warn a {"times":1}', 'warn a {"times":2}']);
  await clock.advance(600_000);
  logger.warn("a");
  assert.deepEqual(lines, ["warn a"]);
});

test("the number of remembered kinds is bounded", () => {
  const { lines, logger } = folding();
  for (let i = 0; i < 500; i++) logger.warn("a", { i });
  logger.warn("a", { i: 0 });
  assert.equal(lines.length, 501);
});
