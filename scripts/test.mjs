/**
 * `npm test`: install, types, lint, build, then every test on node's own runner.
 * `npm test -- src/cel test/scenario/x` runs only the tests below these paths, without the other checks,
 * in a build folder of its own so that several runs do not disturb each other.
 */
import { spawnSync } from "node:child_process";
import { readdirSync, rmSync } from "node:fs";
import { join, relative } from "node:path";
import { pathToFileURL } from "node:url";
import { bin, installIfMissing, root, step } from "./steps.mjs";

const only = process.argv.slice(2);
installIfMissing();

const out = only.length > 0 ? `build-${process.pid}` : "build";
if (only.length === 0) {
  rmSync(join(root, out), { recursive: true, force: true });
  step("types", bin("tsc"), ["-p", ".", "--outDir", out, "--tsBuildInfoFile", `${out}/.tsbuildinfo`]);
  step("types of the web UI", bin("tsc"), ["-p", "ui", "--noEmit"]);
  step("lint", bin("biome"), ["check", "."]);
  step("bundle", process.execPath, ["scripts/build.mjs"]);
} else {
  const compiled = spawnSync(bin("tsc"), ["-p", ".", "--outDir", out, "--noCheck", "--incremental", "false"], {
    cwd: root,
    stdio: "inherit",
  });
  if (compiled.status !== 0) process.exit(compiled.status ?? 1);
}

const files = testFiles(join(root, out)).filter(
  (file) =>
    only.length === 0 || only.some((path) => relative(join(root, out), file).startsWith(path.replace(/\.ts$/, ""))),
);
if (files.length === 0) {
  console.error(`no tests below ${only.join(", ")}`);
  process.exit(1);
}
const run = spawnSync(
  process.execPath,
  [
    "--enable-source-maps",
    "--test",
    "--test-timeout=120000",
    "--test-concurrency=2",
    `--test-reporter=${pathToFileURL(join(root, "scripts", "test-reporter.mjs"))}`,
    "--test-reporter-destination=stdout",
    ...files,
  ],
  {
    cwd: root,
    stdio: "inherit",
  },
);
if (only.length > 0) rmSync(join(root, out), { recursive: true, force: true });
process.exit(run.status ?? 1);

function testFiles(folder) {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && entry.name.endsWith(".test.js"))
    .map((entry) => join(entry.parentPath ?? entry.path, entry.name))
    .sort();
}
