/**
 * `npm run compare-imports -- [--in folder] [--record] [name …]`: runs LiteLLM's proxy and the imported configurations of
 * `test/import/litellm` with the same calls and the same stand-in for all providers, and lists the differences. Installs
 * LiteLLM into a Python environment (a temporary one by default), so it needs Python and the package index; the calls
 * stay on this machine. `--record` writes what LiteLLM did for the test of `npm test`.
 */
import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { bin, installIfMissing, root } from "./steps.mjs";

const PACKAGE = "litellm[proxy]==1.106.2";

const args = process.argv.slice(2);
const at = args.indexOf("--in");
const given = at < 0 ? undefined : args.splice(at, 2)[1];
installIfMissing();
const folder = given ?? mkdtempSync(join(tmpdir(), "gateway-litellm-"));
const python = join(folder, "bin/python");
const out = `build-imports-${process.pid}`;
process.on("exit", () => {
  rmSync(join(root, out), { recursive: true, force: true });
  if (given === undefined) rmSync(folder, { recursive: true, force: true });
});
if (!existsSync(python)) {
  run("python3", ["-m", "venv", folder]);
  run(python, ["-m", "pip", "install", "-q", PACKAGE]);
}
run(bin("tsc"), ["-p", ".", "--outDir", out, "--noCheck", "--incremental", "false"]);
run(process.execPath, [
  "--enable-source-maps",
  join(out, "test/support/import/behavior/compare-litellm.js"),
  python,
  ...args,
]);

function run(command, commandArgs) {
  const { status } = spawnSync(command, commandArgs, { cwd: root, stdio: "inherit" });
  if (status !== 0) process.exit(status ?? 1);
}
