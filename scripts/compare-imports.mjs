/**
 * `npm run compare-imports -- [--in folder] [--record] [name …]`: runs LiteLLM's proxy and the imported configurations of
 * `test/import/litellm` with the same calls and the same stand-in for all providers, and lists the differences. Installs
 * LiteLLM into a Python environment (a temporary one by default), so it needs Python and the package index; the calls
 * stay on this machine. `--record` writes what LiteLLM did for the test of `npm test`.
 */
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { compileAll, takeOption } from "./compiled.mjs";
import { step } from "./steps.mjs";

const PACKAGE = "litellm[proxy]==1.106.2";

const args = process.argv.slice(2);
const given = takeOption(args, "--in");
const folder = given ?? mkdtempSync(join(tmpdir(), "gateway-litellm-"));
if (given === undefined) process.on("exit", () => rmSync(folder, { recursive: true, force: true }));
const python = join(folder, "bin/python");
if (!existsSync(python)) {
  step("create a Python environment", "python3", ["-m", "venv", folder]);
  step("install LiteLLM", python, ["-m", "pip", "install", "-q", PACKAGE]);
}
process.exitCode = await compileAll()("test/support/import/behavior/compare-litellm", [python, ...args]);
