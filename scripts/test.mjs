/**
 * `npm test`: installs, checks types and lint, builds, and runs every test on Node's test runner. `npm test -- src/cel
 * test/scenario/x` runs only the tests below these paths, without the other checks, in its own build folder, so that
 * several runs do not interfere. With `--compiled` as the first argument it uses what the last `npm test` compiled.
 */
import { spawnSync } from "node:child_process";
import { readdirSync, rmSync } from "node:fs";
import { join, relative } from "node:path";
import { bin, installIfMissing, root, stepsTogether } from "./steps.mjs";
import { groupTests } from "./test-groups.mjs";

/** Test processes at once: most wait for something a part of their time, and two cores shall have no pause. */
const CONCURRENCY = 6;

const isCompiled = process.argv[2] === "--compiled";
const only = process.argv.slice(isCompiled ? 3 : 2);
const isWhole = only.length === 0;
installIfMissing();

const out = isWhole || isCompiled ? "build" : `build-${process.pid}`;
const folder = join(root, out);
if (isWhole && !isCompiled) {
  rmSync(folder, { recursive: true, force: true });
  await stepsTogether([
    ["types", bin("tsc"), ["-p", ".", "--outDir", out, "--tsBuildInfoFile", `${out}/.tsbuildinfo`]],
    ["types of the web UI", bin("tsc"), ["-p", "ui", "--noEmit"]],
    ["lint", bin("biome"), ["check", "."]],
    ["bundle", process.execPath, ["scripts/build.mjs"]],
  ]);
} else if (!isCompiled) {
  const compiled = spawnSync(bin("tsc"), ["-p", ".", "--outDir", out, "--noCheck", "--incremental", "false"], {
    cwd: root,
    stdio: "inherit",
  });
  if (compiled.status !== 0) process.exit(compiled.status ?? 1);
}

const files = testFiles(folder).filter(
  (file) => isWhole || only.some((path) => relative(folder, file).startsWith(path.replace(/\.tsx?$/, ""))),
);
if (files.length === 0) {
  console.error(`no tests below ${only.join(", ")}`);
  process.exit(1);
}
const run = spawnSync(process.execPath, ["scripts/run-tests.mjs", String(CONCURRENCY), ...groupTests(folder, files)], {
  cwd: root,
  stdio: "inherit",
});
if (out !== "build") rmSync(folder, { recursive: true, force: true });
process.exit(run.status ?? 1);

function testFiles(below) {
  return readdirSync(below, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && entry.name.endsWith(".test.js"))
    .map((entry) => join(entry.parentPath ?? entry.path, entry.name))
    .sort();
}
