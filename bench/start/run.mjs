/**
 * `npm run bench -- start`: compares the start and the idle memory of the gateway with those of a bare Node.js HTTP
 * server, in interleaved rounds. BENCH_NODES selects other Node.js versions, separated by colons, and BENCH_AGAINST
 * other programs (`dist/gateway.js` of another build, or a single executable), separated by commas.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { get } from "node:http";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { median } from "../support/compare.mjs";
import { cpuMicros, residentBytes } from "../support/cpu.mjs";
import { nodeVersion } from "../support/node-version.mjs";
import { freePort } from "../support/process.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const root = join(here, "../..");
const IDLE_MS = 15_000;

export async function benchStart({ quick = false } = {}) {
  const folder = mkdtempSync(join(tmpdir(), "gateway-bench-"));
  try {
    const nodes = [process.execPath, ...list(process.env.BENCH_NODES, ":")];
    const programs = nodes.flatMap((node) => programsOf(node));
    const samples = programs.map(() => []);
    // The first round fills the caches of the file system and of compiled code.
    for (let round = -1; round < (quick ? 7 : 21); round++)
      for (const [index, program] of programs.entries()) {
        const sample = await measureStart(program, folder, 0);
        if (round >= 0) samples[index].push(sample);
      }
    const idle = [];
    for (const program of programs) idle.push(await measureStart(program, folder, quick ? 3_000 : IDLE_MS));
    console.log("\nMedians: ms to the first response, CPU ms until then, MB resident then and when idle");
    for (const [index, { name }] of programs.entries()) {
      const [ms, cpuMs, mb] = ["ms", "cpuMs", "mb"].map((key) => median(samples[index].map((sample) => sample[key])));
      const figures = [ms, cpuMs, mb, idle[index].idleMb].map((figure) => figure.toFixed(0).padStart(6));
      console.log(`  ${name.padEnd(44)}${figures.join("")}`);
    }
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function programsOf(node) {
  const version = nodeVersion(node);
  const gateways = [join(root, "dist/gateway.js"), ...list(process.env.BENCH_AGAINST, ",")];
  return [
    { name: `bare server, Node ${version}`, command: [node, join(here, "bare-server.mjs")], isBare: true },
    ...gateways.map((path, index) => ({
      name: `${index === 0 ? "gateway" : path}, Node ${version}`,
      command: path.endsWith(".js") ? [node, path] : [path],
    })),
  ];
}

/** Starts the program, measures it at its first response and, if asked, after a time without requests, and stops it. */
async function measureStart({ name, command: [file, ...args], isBare }, folder, idleMs) {
  const port = await freePort();
  const config = join(folder, "config.yaml");
  writeFileSync(config, configFor(port, await freePort()));
  const startedMs = performance.now();
  const child = spawn(file, [...args, ...(isBare ? [String(port)] : ["-f", config])], { stdio: "ignore" });
  const ended = once(child, "exit");
  try {
    while (!(await responds(port)))
      if (child.exitCode !== null || performance.now() - startedMs > 20_000)
        throw new Error(`${name} does not respond`);
    const ms = performance.now() - startedMs;
    const sample = { ms, cpuMs: cpuMicros(child.pid) / 1000, mb: residentBytes(child.pid) / 2 ** 20 };
    if (idleMs === 0) return sample;
    await new Promise((resolve) => setTimeout(resolve, idleMs));
    return { ...sample, idleMb: residentBytes(child.pid) / 2 ** 20 };
  } finally {
    child.kill("SIGKILL");
    await ended;
  }
}

function configFor(port, adminPort) {
  return `
config: { adminAddr: "127.0.0.1:${adminPort}", workers: 1 }
gateways: { default: { port: ${port} } }
routes:
  - policies: { directResponse: { status: 200, body: ok } }
`;
}

/** Waits between attempts, because connecting in a loop would use the CPU that the program needs. */
function responds(port) {
  return new Promise((resolve) => {
    const request = get({ port, host: "127.0.0.1", agent: false }, (response) => {
      response.resume();
      response.once("end", () => resolve(response.statusCode === 200));
    });
    request.once("error", () => setTimeout(resolve, 2, false));
  });
}

function list(value, separator) {
  return (value ?? "").split(separator).filter((one) => one !== "");
}
