/**
 * `npm run clis -- [--in folder] [claude|codex|gemini]`: runs the real Claude Code, Codex and Gemini CLI through the
 * gateway with mocks of five providers. Installs the three programs into a folder (a temporary one by default), so it
 * needs the npm registry; the calls themselves stay on this machine.
 */
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { compileAll, takeOption } from "./compiled.mjs";
import { npm, step } from "./steps.mjs";

const PACKAGES = ["@anthropic-ai/claude-code@2.1.325", "@openai/codex@0.166.0", "@google/gemini-cli@0.61.0"];

const args = process.argv.slice(2);
const given = takeOption(args, "--in");
const folder = given ?? mkdtempSync(join(tmpdir(), "gateway-clis-bin-"));
if (given === undefined) process.on("exit", () => rmSync(folder, { recursive: true, force: true }));
const binaries = join(folder, "node_modules/.bin");
if (!existsSync(join(binaries, "codex")))
  step("install the programs", npm(), ["install", "--no-audit", "--no-fund", "--prefix", folder, ...PACKAGES]);
process.exitCode = await compileAll()("test/support/llm/run-clis", [binaries, ...args]);
