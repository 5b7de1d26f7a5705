import assert from "node:assert/strict";
import { test } from "node:test";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import { type Logger, silentLogger } from "./logger.ts";
import { createMetrics } from "./metrics.ts";
import { createUnexpectedErrors, describeDefect } from "./unexpected-errors.ts";

test("quoted text is removed from messages, and the location is kept", () => {
  let thrown: unknown;
  try {
    JSON.parse('{"password": hunter2}');
  } catch (error) {
    thrown = error;
  }
  const text = describeDefect(thrown);
  assert.doesNotMatch(text, /hunter2|password/);
  assert.match(text, /^SyntaxError: /);
  assert.match(text, /\n\s+at /);
});

test("a thrown value that is not an error is not shown", () => {
  assert.equal(describeDefect("Bearer abc"), "thrown value of type string");
  assert.equal(describeDefect(undefined), "thrown value of type undefined");
});

test("every error counts, a flood is logged in part, and the rest is logged as a number", async () => {
  const clock = fakeClock();
  const metrics = createMetrics();
  const lines: string[] = [];
  const logger: Logger = {
    ...silentLogger,
    error: (message, fields) => void lines.push(`${message} ${fields?.count ?? ""}`),
  };
  const errors = createUnexpectedErrors({ clock, logger, metrics });
  assert.match(metrics.render(), /gateway_unexpected_errors_total\{source="process"\} 0/);
  for (let i = 0; i < 50; i++) errors.report("process", new Error("x"));
  assert.match(metrics.render(), /gateway_unexpected_errors_total\{source="process"\} 50/);
  assert.equal(lines.length, 20);
  await clock.advance(10_000);
  errors.report("connection", new Error("x"));
  assert.deepEqual(lines.slice(20), ["more unexpected errors were not logged 30", "unexpected error "]);
});
