/**
 * What `npm test` says at its end, for whoever reads only the last lines: each failure, then the counts.
 */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";

const RUNNER = join(process.cwd(), "scripts", "run-tests.mjs");

function run(t: TestContext, code: string, files: Readonly<Record<string, string>> = {}) {
  const folder = mkdtempSync(join(tmpdir(), "gateway-reporter-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  writeFileSync(join(folder, "some.test.mjs"), `import { describe, test } from "node:test";\n${code}`);
  for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text);
  // Inside of a test, the runner would take itself for a part of this one.
  const { NODE_TEST_CONTEXT: _, ...env } = process.env;
  const { status, stdout } = spawnSync(process.execPath, [RUNNER, "1", "some.test.mjs"], {
    cwd: folder,
    env,
    encoding: "utf8",
  });
  return { status, lines: stdout.trimEnd().split("\n") };
}

const COUNTS = [
  /^ℹ tests /,
  /^ℹ suites /,
  /^ℹ pass /,
  /^ℹ fail /,
  /^ℹ cancelled /,
  /^ℹ skipped /,
  /^ℹ todo /,
  /^ℹ duration_ms /,
];

function assertCounts(lines: string[], wanted: Record<string, number>): string[] {
  const counts = lines.splice(-COUNTS.length);
  for (const [index, pattern] of COUNTS.entries()) assert.match(counts[index] ?? "", pattern);
  for (const [name, count] of Object.entries(wanted))
    assert.ok(counts.includes(`ℹ ${name} ${count}`), counts.join("\n"));
  assert.ok(!lines.some((line) => line.startsWith("ℹ tests")), "the counts are said once");
  return lines;
}

test("a good run ends with the counts", (t) => {
  const { status, lines } = run(t, 'test("good", () => {});\n');
  assert.equal(status, 0);
  assert.ok(!assertCounts(lines, { tests: 1, pass: 1, fail: 0 }).join("\n").includes("failure"));
});

test("a bad run ends with one line for each failure, then the counts", (t) => {
  const { status, lines } = run(
    t,
    `test("good", () => {});
test("bad", () => { throw new Error("because"); });
describe("a suite", () => { test("inside", () => { throw new Error("because"); }); });
test("may fail", { todo: true }, () => { throw new Error("because"); });
`,
  );
  assert.equal(status, 1);
  assert.deepEqual(assertCounts(lines, { tests: 4, pass: 1, fail: 2, todo: 1 }).slice(-4), [
    "2 failures:",
    "✖ bad (some.test.mjs:3)",
    "✖ inside (some.test.mjs:4)",
    "",
  ]);
});

test("a file that cannot be loaded is a failure by its name", (t) => {
  const { status, lines } = run(t, 'throw new Error("because");\n');
  assert.equal(status, 1);
  assert.match(assertCounts(lines, { fail: 1 }).slice(-3).join("\n"), /^1 failure:\n✖ .*some\.test\.mjs.*\n$/);
});

test("a failure in a compiled file is told with the place in its source", (t) => {
  // A line of the compiled file for every second one of the source: `AAAA` is the first, each `AAEA` two lines further.
  const map = { version: 3, sources: ["../from/some.test.ts"], names: [], mappings: "AAAA;AAEA;AAEA;AAEA" };
  const { status, lines } = run(
    t,
    `import { bad } from "./compiled.js";
test("bad", () => bad());
`,
    {
      "package.json": '{ "type": "module" }',
      "compiled.js": `export function bad() {
  throw new Error("because", { cause: new Error("deeper") });
}
`,
      "compiled.js.map": JSON.stringify(map),
    },
  );
  assert.equal(status, 1);
  assert.equal(
    lines.filter((line) => /at bad \(.*\/from\/some\.test\.ts:3:1\)/.test(line)).length >= 2,
    true,
    lines.join("\n"),
  );
  assert.doesNotMatch(lines.join("\n"), /compiled\.js/);
});
