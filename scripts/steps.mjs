/**
 * Shared by the npm commands: installs packages if some are missing, and runs a step with its name printed. Plain
 * JavaScript, because it runs before packages are installed.
 */

import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync, statSync } from "node:fs";
import { createServer } from "node:net";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

export const root = dirname(dirname(fileURLToPath(import.meta.url)));

const MIN_NODE = [20, 19];

/** Rejects an old Node version with a clear message instead of a syntax error inside a dependency. */
export function requireNode() {
  const [major = 0, minor = 0] = process.versions.node.split(".").map(Number);
  if (major < MIN_NODE[0] || (major === MIN_NODE[0] && minor < MIN_NODE[1])) {
    console.error(`Node ${MIN_NODE.join(".")} or newer is needed, this is ${process.versions.node}.`);
    process.exit(1);
  }
}

/** `npm ci` when node_modules is absent or older than the lock file; the network is not touched otherwise. */
export function installIfMissing() {
  requireNode();
  const stamp = join(root, "node_modules", ".package-lock.json");
  const lock = join(root, "package-lock.json");
  if (existsSync(stamp) && statSync(stamp).mtimeMs >= statSync(lock).mtimeMs) return;
  if (existsSync(stamp) && sameVersions(stamp, lock)) return;
  step("install", npm(), ["ci", "--no-audit", "--no-fund"]);
}

/** A fresh checkout has newer file times than an older install; what counts is the versions. */
function sameVersions(stamp, lock) {
  const installed = JSON.parse(readFileSync(stamp, "utf8")).packages ?? {};
  const wanted = JSON.parse(readFileSync(lock, "utf8")).packages ?? {};
  return Object.entries(wanted).every(
    ([path, entry]) => path === "" || entry.optional || installed[path]?.version === entry.version,
  );
}

export function npm() {
  return process.platform === "win32" ? "npm.cmd" : "npm";
}

export function bin(name) {
  return join(root, "node_modules", ".bin", name);
}

/** Runs one command in the project's folder; a failure ends the script with the command's exit code. */
export function step(title, command, args, options = {}) {
  console.error(`── ${title}`);
  const result = spawnSync(command, args, { cwd: root, stdio: "inherit", ...options });
  if (result.error) console.error(`${title}: ${result.error.message}`);
  if (result.status !== 0) process.exit(result.status ?? 1);
}

/** Runs commands side by side and prints the output of each when it has ended; if any fails, the script ends. */
export async function stepsTogether(steps) {
  const ended = steps.map(async ([title, command, args]) => {
    const startedMs = performance.now();
    const child = spawn(command, args, { cwd: root, stdio: ["ignore", "pipe", "pipe"] });
    let output = "";
    for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk) => (output += chunk));
    const status = await new Promise((resolve) => {
      child.on("error", (error) => {
        output += `${title}: ${error.message}\n`;
        resolve(1);
      });
      child.on("close", (code) => resolve(code ?? 1));
    });
    const seconds = ((performance.now() - startedMs) / 1000).toFixed(1);
    console.error(`── ${title}${status === 0 ? "" : ": failed"} (${seconds} s)\n${output}`.trimEnd());
    return { title, status };
  });
  const failed = (await Promise.all(ended)).filter(({ status }) => status !== 0);
  if (failed.length === 0) return;
  console.error(`\nfailed: ${failed.map(({ title }) => title).join(", ")}`);
  process.exit(failed[0].status);
}

/** Resolves with the port, or with the next one that is free on loopback. */
export async function freePort(port) {
  const server = createServer().listen(port, "127.0.0.1");
  try {
    await once(server, "listening");
    return port;
  } catch {
    return port === 65_535 ? port : freePort(port + 1);
  } finally {
    server.close();
  }
}
