/**
 * `node scripts/compiled.mjs <program> [argument …]`: compiles into a folder of its own and runs a program of the tests,
 * for example `test/fuzz/failover-main`.
 */
import { spawn, spawnSync } from "node:child_process";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { bin, installIfMissing, root } from "./steps.mjs";

/** Compiles everything and returns a function that runs one of the programs and resolves with its exit code. */
export function compileAll() {
  installIfMissing();
  const out = `build-run-${process.pid}`;
  process.on("exit", () => rmSync(join(root, out), { recursive: true, force: true }));
  for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => process.exit(130));
  const options = ["-p", ".", "--outDir", out, "--noCheck", "--incremental", "false"];
  const { status } = spawnSync(bin("tsc"), options, { cwd: root, stdio: "inherit" });
  if (status !== 0) process.exit(status ?? 1);
  return (program, args) => {
    const main = join(root, out, `${program}.js`);
    const child = spawn(process.execPath, ["--enable-source-maps", main, ...args], { cwd: root, stdio: "inherit" });
    return new Promise((resolve) => child.on("exit", (code) => resolve(code ?? 1)));
  };
}

/** Removes an option and its value from the arguments of a script, and returns the value. */
export function takeOption(args, name) {
  const at = args.indexOf(name);
  return at < 0 ? undefined : args.splice(at, 2)[1];
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [program, ...args] = process.argv.slice(2);
  process.exitCode = await compileAll()(program, args);
}
