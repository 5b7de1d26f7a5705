/**
 * `npm run fuzz -- [target …] [--minutes N] [--cases N] [--seed S] [--jobs N] [--keep] [--replay file]`: compiles into
 * its own folder and runs the fuzz targets, with `--jobs` in several processes with a seed each.
 */
import { spawn, spawnSync } from "node:child_process";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { bin, installIfMissing, root } from "./steps.mjs";

const args = process.argv.slice(2);
const jobs = Number(take("--jobs") ?? 1);
const seed = Number(take("--seed") ?? Date.now() % 1_000_000);
installIfMissing();

const out = `build-fuzz-${process.pid}`;
process.on("exit", () => rmSync(join(root, out), { recursive: true, force: true }));
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => process.exit(130));
const compiled = spawnSync(bin("tsc"), ["-p", ".", "--outDir", out, "--noCheck", "--incremental", "false"], {
  cwd: root,
  stdio: "inherit",
});
if (compiled.status !== 0) process.exit(compiled.status ?? 1);

const codes = await Promise.all(Array.from({ length: jobs }, (_, job) => run(seed + job)));
process.exitCode = Math.max(...codes);

function run(jobSeed) {
  const main = join(root, out, "test/fuzz/main.js");
  const child = spawn(process.execPath, ["--enable-source-maps", main, ...args, "--seed", String(jobSeed)], {
    cwd: root,
    stdio: "inherit",
  });
  return new Promise((resolve) => child.on("exit", (code) => resolve(code ?? 1)));
}

/** The value of an option that is for this script. */
function take(name) {
  const at = args.indexOf(name);
  return at < 0 ? undefined : args.splice(at, 2)[1];
}
