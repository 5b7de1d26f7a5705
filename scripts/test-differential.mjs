/**
 * `npm run test:differential -- [--count N] [--seed S] [--backends node,python,go]`: compiles into its own folder and
 * compares the gateway's decisions with requests as real backends parse them. The tests run a few hundred requests;
 * this script runs 100,000.
 */
import { spawn, spawnSync } from "node:child_process";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { bin, installIfMissing, root } from "./steps.mjs";

installIfMissing();
const out = `build-fuzz-${process.pid}`;
process.on("exit", () => rmSync(join(root, out), { recursive: true, force: true }));
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => process.exit(130));
const compiled = spawnSync(bin("tsc"), ["-p", ".", "--outDir", out, "--noCheck", "--incremental", "false"], {
  cwd: root,
  stdio: "inherit",
});
if (compiled.status !== 0) process.exit(compiled.status ?? 1);
const main = join(root, out, "test/differential/main.js");
const child = spawn(process.execPath, ["--enable-source-maps", main, ...process.argv.slice(2)], {
  cwd: root,
  stdio: "inherit",
});
child.on("exit", (code) => {
  process.exitCode = code ?? 1;
});
