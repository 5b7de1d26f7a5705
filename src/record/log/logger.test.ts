import assert from "node:assert/strict";
import { test } from "node:test";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import {
  createLogging,
  createUnexpectedErrors,
  describeDefect,
  foldRepeats,
  type LogFields,
  type LogFilter,
  type LogFormat,
  type Logger,
  parseLogFilter,
  silentLogger,
} from "./logger.ts";
import { createMetrics } from "./metrics.ts";

function filter(text: string): LogFilter {
  const parsed = parseLogFilter(text);
  if (!parsed.ok) throw new Error(parsed.error);
  return parsed.filter;
}

function logging(format: LogFormat, level = "info") {
  const lines: string[] = [];
  const output = { write: (line: string) => void lines.push(line), dropped: () => 0, flushSync: () => undefined };
  return { lines, ...createLogging({ clock: fakeClock(), output, filter: filter(level), format }) };
}

test("text lines: time, level, module, message, fields", () => {
  const { lines, logger } = logging("text");
  logger.for("mcp").warn("it happened", { plain: "a/b", spaced: "a b", number: 1, absent: undefined, list: ["x"] });
  assert.deepEqual(lines, [
    '2026-01-01T00:00:00.000Z warn  mcp: it happened plain=a/b spaced="a b" number=1 list=["x"]\n',
  ]);
});

test("on a terminal the level has a color, and nothing else does; JSON never has one", () => {
  const lines: string[] = [];
  const output = { write: (line: string) => void lines.push(line), dropped: () => 0, flushSync: () => undefined };
  const colored = createLogging({ clock: fakeClock(), output, filter: filter("info"), format: "text", color: true });
  colored.logger.warn("it happened", { value: "\u001b[31mred" });
  colored.setFormat("json");
  colored.logger.warn("again");
  assert.equal(lines[0], '2026-01-01T00:00:00.000Z \u001b[33mwarn \u001b[0m app: it happened value="\\u001b[31mred"\n');
  assert.ok(lines[1]?.startsWith("{") && !lines[1].includes("\u001b"));
});

test("JSON lines have the same content", () => {
  const { lines, logger } = logging("json");
  logger.info("it happened", { a: "x\ny" });
  assert.deepEqual(JSON.parse(lines[0] ?? ""), {
    time: "2026-01-01T00:00:00.000Z",
    level: "info",
    module: "app",
    message: "it happened",
    a: "x\ny",
  });
});

test("no external input can begin a new line or move a terminal's cursor [P6] [N4]", () => {
  for (const format of ["text", "json"] as const) {
    const { lines, logger } = logging(format);
    logger.info("message\r\nFAKE", { value: "\x1b[2J\r\nFAKE\u2028\x9b x=y" });
    const line = (lines[0] ?? "").slice(0, -1);
    // biome-ignore lint/suspicious/noControlCharactersInRegex: asserts that there are no control characters
    assert.doesNotMatch(line, /[\x00-\x1f\x7f]/, format);
  }
});

test("the filter works per module and can be changed while running", () => {
  const { lines, logger, setFilter } = logging("text", "warn,mcp=trace");
  const mcp = logger.for("mcp");
  logger.info("no");
  mcp.trace("yes");
  assert.equal(mcp.enabled("trace"), true);
  assert.equal(logger.enabled("info"), false);
  setFilter(filter("off"));
  logger.error("no");
  mcp.error("no");
  assert.equal(lines.length, 1);
});

const filters: [text: string, shown: string][] = [
  ["info", "info"],
  ["INFO", "info"],
  ["info,mcp=trace", "info,mcp=trace"],
  ["mcp=trace", "info,mcp=trace"],
  [" warn , a = debug ", "warn,a=debug"],
];
for (const [text, shown] of filters) {
  test(`the filter ${JSON.stringify(text)} reads ${shown}`, () => assert.equal(filter(text).text, shown));
}
for (const bad of ["", "loud", "info,", "a b=info", "x\ny=info", "=info", "a=b=c", "x".repeat(1025)]) {
  test(`the filter ${JSON.stringify(bad.slice(0, 20))} is rejected`, () => assert.equal(parseLogFilter(bad).ok, false));
}

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
