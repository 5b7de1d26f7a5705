/**
 * `npm run test:package`: packs the program in both forms and measures, in an empty folder, the size of the installed
 * npm package and the time of each form from its start to its first response. Exits with 1 beyond the limits. Times are
 * not part of `npm test`, because they need an idle machine.
 */
import { spawn, spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { get } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { npm, root, step } from "./steps.mjs";

const LIMITS = { packages: 10, installedMb: 30, npmMs: 10_000, oneFileMs: 1_000 };
const RUNS = 5;
const MB = 1024 * 1024;

const folder = mkdtempSync(join(tmpdir(), "gateway-package-"));
try {
  step("package", process.execPath, ["scripts/package.mjs"]);
  const out = join(root, "dist-package");
  const tarball = join(out, readdirSync(out).find((name) => name.endsWith(".tgz")) ?? "");
  const empty = join(folder, "empty");
  mkdirSync(empty);
  writeFileSync(join(empty, "package.json"), "{}");
  // Includes the optional profiler if the registry has it, like a plain install.
  const installed = spawnSync(npm(), ["install", "--no-audit", "--no-fund", tarball], { cwd: empty, encoding: "utf8" });
  if (installed.status !== 0) throw new Error(installed.stderr);
  const modules = join(empty, "node_modules");
  const files = readdirSync(modules, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  const bytes = files.reduce((sum, { parentPath, name }) => sum + statSync(join(parentPath, name)).size, 0);
  const packages = files.filter(({ parentPath, name }) => name === "package.json" && isPackage(parentPath)).length;
  const npx = [npm().replace("npm", "npx"), "--no-install", "gateway"];
  const rows = [
    ["packages", packages, LIMITS.packages, ""],
    ["installed", bytes / MB, LIMITS.installedMb, "MB"],
    ["npm package, npx, to the first answer", await fastest(npx, empty), LIMITS.npmMs, "ms"],
    ["single file, to the first answer", await fastest([join(out, "gateway")], folder), LIMITS.oneFileMs, "ms"],
  ];
  for (const [what, value, limit, unit] of rows) {
    console.log(
      `${what.padEnd(40)} ${value.toFixed(unit === "MB" ? 1 : 0).padStart(7)} ${unit.padEnd(2)}  (limit ${limit})`,
    );
    if (value >= limit) process.exitCode = 1;
  }
} finally {
  rmSync(folder, { recursive: true, force: true });
}

function isPackage(path) {
  return /node_modules\/(?:@[^/]+\/)?[^/]+$/.test(path);
}

/** Milliseconds of the fastest of some runs: others' work on the machine only adds to them. */
async function fastest(command, cwd) {
  const times = [];
  for (let i = 0; i < RUNS; i++) times.push(await timeToAnswer(command, cwd));
  console.log(`  ${command.at(-1)}: ${times.map((ms) => `${ms.toFixed(0)} ms`).join(", ")}`);
  return Math.min(...times);
}

async function timeToAnswer([file, ...args], cwd) {
  const port = 20_000 + Math.floor(Math.random() * 20_000);
  writeFileSync(
    join(cwd, "config.yaml"),
    `config: { adminAddr: "off" }\ngateways: { default: { port: ${port}, address: 127.0.0.1 } }\n` +
      "routes: [{ policies: { directResponse: { body: ok } } }]\n",
  );
  const startedMs = performance.now();
  const child = spawn(file, [...args, "-f", "config.yaml"], { cwd, stdio: "ignore", detached: true });
  const ended = new Promise((resolve) => child.once("exit", resolve));
  try {
    while (!(await answers(port))) {
      if (child.exitCode !== null) throw new Error(`${file} ended with ${child.exitCode}`);
    }
    return performance.now() - startedMs;
  } finally {
    process.kill(-child.pid, "SIGTERM");
    await ended;
  }
}

function answers(port) {
  return new Promise((resolve) => {
    get({ port, host: "127.0.0.1", agent: false }, (response) => {
      response.resume();
      resolve(response.statusCode === 200);
    }).once("error", () => setTimeout(resolve, 5, false));
  });
}
