/**
 * `npm run fuzz:failover -- [--count N] [--seed S]`: compiles into its own folder and runs LLM failover with providers
 * that fail at random bytes. The tests run 120 such cases; this script runs any number.
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
const main = join(root, out, "test/fuzz/failover-main.js");
const child = spawn(process.execPath, ["--enable-source-maps", main, ...process.argv.slice(2)], {
  cwd: root,
  stdio: "inherit",
});
child.on("exit", (code) => {
  process.exitCode = code ?? 1;
});
