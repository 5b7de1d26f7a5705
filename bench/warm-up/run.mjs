/**
 * `npm run bench -- warm-up`: compares the CPU time of the first 10,000 requests of a process with that of later ones.
 * About half of the difference is V8's optimizing compiler on its own threads. BENCH_NODE selects another Node.js,
 * BENCH_NODE_FLAGS passes flags to it, and BENCH_ROWS selects rows.
 */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { openSession } from "../mcp/calls.mjs";
import { median } from "../support/compare.mjs";
import { cpuMicros } from "../support/cpu.mjs";
import { nodeVersion } from "../support/node-version.mjs";
import { freePort, start } from "../support/process.mjs";
import { GROUPS, gatewayConfig, startBackend, workloadsOf } from "../support/workloads.mjs";

const root = join(dirname(fileURLToPath(import.meta.url)), "../..");
const node = process.env.BENCH_NODE ?? process.execPath;
const flags = (process.env.BENCH_NODE_FLAGS ?? "").split(" ").filter((flag) => flag !== "");
const FIRST = 10_000;
const BETWEEN = 40_000;

export async function benchWarmUp({ quick = false } = {}) {
  console.log(`CPU µs per request, Node ${nodeVersion(node)} ${flags.join(" ")}`);
  console.log(`  ${"".padEnd(32)}first ${FIRST}   later   ratio`);
  for (const group of GROUPS.filter(({ isStepped }) => !isStepped))
    for (const { title, run } of workloadsOf(group).filter((workload) => !workload.title.includes("stream"))) {
      const samples = [];
      for (let round = 0; round < (quick ? 3 : 7); round++) samples.push(await measureProcess(group, run));
      const [first, later] = ["first", "later"].map((key) => median(samples.map((sample) => sample[key])));
      const ratio = median(samples.map((sample) => sample.first / sample.later));
      console.log(
        `  ${title.padEnd(32)}${[first, later].map((micros) => micros.toFixed(0).padStart(11)).join("")}   ${ratio.toFixed(2)}`,
      );
    }
}

async function measureProcess(group, run) {
  const folder = mkdtempSync(join(tmpdir(), "gateway-bench-"));
  const running = [];
  try {
    const backend = await startBackend(group);
    running.push(backend);
    const port = await freePort();
    const file = join(folder, "config.yaml");
    writeFileSync(file, gatewayConfig(group.of, port, backend.port));
    const gateway = await start(node, [...flags, join(root, "dist/gateway.js"), "-f", file], port);
    running.push(gateway);
    if (group.of === "mcp") gateway.sessions = [await openSession(port)];
    const cpuPerRequest = async (count) => {
      const before = cpuMicros(gateway.pid);
      await run(gateway, count);
      return (cpuMicros(gateway.pid) - before) / count;
    };
    const first = await cpuPerRequest(FIRST);
    await run(gateway, BETWEEN);
    return { first, later: await cpuPerRequest(FIRST) };
  } finally {
    for (const program of running.reverse()) await program.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}
