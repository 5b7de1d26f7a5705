/**
 * `npm run clis -- [--in folder] [claude|codex|gemini]`: runs the real Claude Code, Codex and Gemini CLI through the
 * gateway with mocks of five providers. Installs the three programs into a folder (a temporary one by default), so it
 * needs the npm registry; the calls themselves stay on this machine.
 */
import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { bin, installIfMissing, root } from "./steps.mjs";

const PACKAGES = ["@anthropic-ai/claude-code@2.1.325", "@openai/codex@0.166.0", "@google/gemini-cli@0.61.0"];

const args = process.argv.slice(2);
const at = args.indexOf("--in");
const given = at < 0 ? undefined : args.splice(at, 2)[1];
installIfMissing();
const folder = given ?? mkdtempSync(join(tmpdir(), "gateway-clis-bin-"));
const binaries = join(folder, "node_modules/.bin");
if (!existsSync(join(binaries, "codex")))
  run("npm", ["install", "--no-audit", "--no-fund", "--prefix", folder, ...PACKAGES]);
const out = `build-clis-${process.pid}`;
process.on("exit", () => {
  rmSync(join(root, out), { recursive: true, force: true });
  if (given === undefined) rmSync(folder, { recursive: true, force: true });
});
run(bin("tsc"), ["-p", ".", "--outDir", out, "--noCheck", "--incremental", "false"]);
run(process.execPath, ["--enable-source-maps", join(out, "test/support/llm/run-clis.js"), binaries, ...args]);

function run(command, commandArgs) {
  const { status } = spawnSync(command, commandArgs, { cwd: root, stdio: "inherit" });
  if (status !== 0) process.exit(status ?? 1);
}
