/**
 * How `npm test` shares processes between test files: each file keeps its hooks to itself, one that cannot be loaded
 * hides no other, what measures its process has one, and the end names the file of each failure.
 */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { type TestContext, test } from "node:test";
import { pathToFileURL } from "node:url";

interface Groups {
  groupTests(out: string, files: readonly string[]): string[];
}

/** Writes the files, groups them, and returns the entries. */
async function grouped(t: TestContext, files: Readonly<Record<string, string>>) {
  const out = mkdtempSync(join(tmpdir(), "gateway-groups-"));
  t.after(() => rmSync(out, { recursive: true, force: true }));
  const paths = Object.keys(files).map((path) => join(out, path));
  for (const [path, code] of Object.entries(files)) {
    mkdirSync(dirname(join(out, path)), { recursive: true });
    writeFileSync(join(out, path), `import { after, before, test } from "node:test";\n${code}`);
  }
  writeFileSync(join(out, "package.json"), '{ "type": "module" }');
  const script = pathToFileURL(join(process.cwd(), "scripts", "test-groups.mjs")).href;
  return { out, entries: ((await import(script)) as Groups).groupTests(out, paths) };
}

/** The names of the files that each process loads. */
function loaded(entries: readonly string[]): string[][] {
  return entries.map((entry) =>
    [...readFileSync(entry, "utf8").matchAll(/"name": "(.*)"/g)].map(([, name]) => name ?? ""),
  );
}

test("neighbours share a process, and what measures its process has its own", async (t) => {
  const { entries } = await grouped(t, {
    "src/cel/one.test.js": "",
    "src/cel/values/two.test.js": "",
    "src/cel/three.test.js": "process.memoryUsage();",
    "src/llm/four.test.js": "",
    "test/scenario/llm-a.test.js": "",
    "test/scenario/llm-b.test.js": "",
    "test/scenario/mcp-a.test.js": "",
    "test/docs.test.js": "",
  });
  assert.deepEqual(loaded(entries).sort(), [
    ["src/cel/one.test.ts", "src/cel/values/two.test.ts", "src/llm/four.test.ts"],
    ["src/cel/three.test.ts"],
    ["test/docs.test.ts"],
    ["test/scenario/llm-a.test.ts", "test/scenario/llm-b.test.ts", "test/scenario/mcp-a.test.ts"],
  ]);
});

test("a file keeps its hooks to itself, and one that cannot be loaded is named and hides no other", async (t) => {
  const withHooks = (name: string): string => `
const later = (done) => setTimeout(done, 1).unref();
let isOpen = false;
before(async () => { await new Promise(setImmediate); if (globalThis.open) throw new Error("open: " + globalThis.open); isOpen = true; globalThis.open = "${name}"; });
after(async () => { await new Promise(later); globalThis.open = undefined; });
test("${name} is open", () => { if (!isOpen || globalThis.open !== "${name}") throw new Error("not open"); });
`;
  const { out, entries } = await grouped(t, {
    "src/cel/a.test.js": withHooks("a"),
    "src/cel/b.test.js": 'throw new Error("because");',
    "src/cel/c.test.js": withHooks("c"),
    "src/cel/d.test.js": 'test("bad", () => { throw new Error("because"); });',
  });
  const { status, stdout } = runTests(out, entries);
  assert.equal(status, 1);
  const lines = stdout.trimEnd().split("\n");
  const from = lines.lastIndexOf("2 failures:");
  assert.match(lines[from + 1] ?? "", /^✖ src\/cel\/b\.test\.ts cannot be loaded/);
  assert.equal(lines[from + 2], "✖ bad (src/cel/d.test.js:2)");
  assert.ok(lines.includes("ℹ pass 2") && lines.includes("ℹ fail 2"), stdout);
});

/** As `npm test` runs the entries. Inside of a test, the runner would take itself for a part of this one. */
function runTests(cwd: string, entries: readonly string[]): { status: number | null; stdout: string } {
  const { NODE_TEST_CONTEXT: _, ...env } = process.env;
  const args = [join(process.cwd(), "scripts", "run-tests.mjs"), "2", ...entries];
  return spawnSync(process.execPath, args, { cwd, env, encoding: "utf8" });
}
