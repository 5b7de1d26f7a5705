/**
 * Runs the official conformance suite against a URL and reads its scores. The suite requires a newer Node.js than the
 * gateway, so an optional dev dependency provides one if this one is too old.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { fixturePath } from "./fixture.ts";

const require = createRequire(import.meta.url);
const MIN_MAJOR = 22;
const SCENARIO_TIMEOUT_MS = 120_000;

export type Revision = "2025-11-25" | "2026-07-28";

export interface Score {
  /** Scenarios that the revision requires. */
  readonly scored: number;
  readonly passed: number;
  readonly failures: readonly string[];
}

/** A Node that can run the suite; undefined if there is none here. */
export function suiteNode(): string | undefined {
  if (Number(process.versions.node.split(".")[0]) >= MIN_MAJOR) return process.execPath;
  try {
    const path = join(dirname(require.resolve(`node-linux-${process.arch}/package.json`)), "bin/node");
    return existsSync(path) ? path : undefined;
  } catch {
    return undefined;
  }
}

export async function runSuite(node: string, url: string, revision: Revision): Promise<Score> {
  const folder = dirname(require.resolve("@modelcontextprotocol/conformance/package.json"));
  const required = requiredScenarios(readFileSync(join(folder, "requirements", `${revision}.yaml`), "utf8"));
  const out = mkdtempSync(join(tmpdir(), "conformance-"));
  try {
    const args = [
      "server",
      "--url",
      url,
      "--requirements",
      revision,
      "--timeout",
      String(SCENARIO_TIMEOUT_MS),
      "-o",
      out,
    ];
    await ended(spawn(node, [join(folder, "dist/index.js"), ...args], { stdio: "ignore" }));
    const failures = required.flatMap((scenario) => failuresOf(out, scenario));
    const failed = new Set(failures.map((line) => line.split(":", 1)[0]));
    return { scored: required.length, passed: required.length - failed.size, failures };
  } finally {
    rmSync(out, { recursive: true, force: true });
  }
}

/** The fixture server over HTTP, as a process of its own. */
export async function startHttpFixture(...flags: string[]): Promise<{ url: string; close(): Promise<void> }> {
  const child = spawn(process.execPath, [fixturePath("conformance-server"), "http", ...flags], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  const url = await new Promise<string>((resolve, reject) => {
    createInterface({ input: child.stdout }).once("line", resolve);
    child.once("exit", (code) => reject(new Error(`the fixture exited with ${code}`)));
  });
  return {
    url,
    close: async () => {
      const gone = ended(child);
      child.stdin.end();
      await gone;
    },
  };
}

/** The list under `server:`; the file is flat enough to read by lines. */
function requiredScenarios(yaml: string): string[] {
  const lines = yaml.split("\n");
  const start = lines.findIndex((line) => line.startsWith("server:"));
  const names: string[] = [];
  for (const line of lines.slice(start + 1)) {
    const name = /^ {2}- ([a-z0-9-]+)/.exec(line)?.[1];
    if (name !== undefined) names.push(name);
    else if (/^\S/.test(line) && !line.startsWith("#")) break;
  }
  return names;
}

/** What went wrong in a scenario; one that left no result failed too. */
function failuresOf(out: string, scenario: string): string[] {
  const folder = readdirSync(out).find((name) => new RegExp(`^server-${scenario}-\\d{4}-`).test(name));
  if (folder === undefined) return [`${scenario}: no result`];
  const checks = JSON.parse(readFileSync(join(out, folder, "checks.json"), "utf8")) as {
    id: string;
    status: string;
    errorMessage?: string;
  }[];
  return checks
    .filter(({ status }) => status === "FAILURE")
    .map(({ id, errorMessage }) => `${scenario}: ${id}: ${errorMessage ?? ""}`);
}

function ended(child: ChildProcess): Promise<void> {
  return new Promise((resolve) => {
    child.once("exit", () => resolve());
    child.once("error", () => resolve());
  });
}
