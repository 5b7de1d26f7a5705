/**
 * Compares the gateway with other proxies in interleaved rounds: CPU microseconds per operation. BENCH_NODES selects
 * other Node.js versions for the gateway, separated by colons, and BENCH_ROWS selects rows by the first words of
 * their titles.
 */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { openSession } from "../mcp/calls.mjs";
import { compare } from "../support/compare.mjs";
import { nodeVersion } from "../support/node-version.mjs";
import { freePort, start } from "../support/process.mjs";
import { GROUPS, gatewayConfig, startBackend, workloadsOf } from "../support/workloads.mjs";
import { other, present } from "./programs.mjs";

const root = join(dirname(fileURLToPath(import.meta.url)), "../..");

export async function benchPeers({ quick = false } = {}) {
  const programs = [...present(), ...other(), ...gateways()];
  const names = programs.map(({ name }) => name);
  const table = [];
  for (const group of GROUPS) {
    const workloads = workloadsOf(group);
    if (workloads.length === 0) continue;
    table.push(...(await comparePrograms(group, programs, workloads, quick)));
  }
  printSummary(names, table);
}

/** Ours, with each Node. */
function gateways() {
  const nodes = [process.execPath, ...(process.env.BENCH_NODES ?? "").split(":").filter((one) => one !== "")];
  return nodes.map((node) => ({
    name: `gateway, Node ${nodeVersion(node)}`,
    command: node,
    serves: ["http", "llm", "mcp"],
    configure: ({ of, port, backendPort }) => gatewayConfig(of, port, backendPort),
    args: (file) => [join(root, "dist/gateway.js"), "-f", file],
  }));
}

async function comparePrograms(group, programs, workloads, quick) {
  const folder = mkdtempSync(join(tmpdir(), "gateway-bench-"));
  const { of } = group;
  const running = [];
  try {
    const backend = await startBackend(group);
    running.push(backend);
    const backendPort = backend.port;
    const contestants = [];
    for (const program of programs.filter(({ serves }) => serves.includes(of))) {
      const place = { of, port: await freePort(), backendPort, folder };
      const file = join(folder, `${place.port}.yaml`);
      writeFileSync(file, program.configure(place));
      const environment = { ...process.env, ...program.environment };
      const started = await start(program.command, program.args(file, place), place.port, {
        spawn: { env: environment },
      });
      running.push(started);
      contestants.push({ name: program.name, ...started });
    }
    if (of === "mcp") for (const contestant of contestants) contestant.sessions = [await openSession(contestant.port)];
    const rows = [];
    for (const { title, run, perRound, warmUp } of workloads) {
      const baseline = contestants[0]?.name;
      const result = await compare({
        title,
        contestants,
        warmUp: quick ? Math.ceil(warmUp / 4) : warmUp,
        rounds: quick ? 3 : 7,
        perRound,
        run,
        baseline,
      });
      rows.push({ title, micros: new Map(result.rows.map((row) => [row.name, row.micros])) });
    }
    return rows;
  } finally {
    for (const one of running) await one.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

/** In the form that documentation takes. */
function printSummary(names, table) {
  console.log("\nCPU µs per operation (medians)\n");
  console.log(`| Work | ${names.join(" | ")} |`);
  console.log(`|---|${names.map(() => "---|").join("")}`);
  for (const { title, micros } of table)
    console.log(`| ${title} | ${names.map((name) => micros.get(name)?.toFixed(0) ?? "-").join(" | ")} |`);
}
