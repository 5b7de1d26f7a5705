/**
 * Compares the gateway with 1, 2 and 4 threads: CPU time per request, distribution of connections, and throughput if
 * the machine has enough cores. Two processes with a thread each show what the machine itself adds when two threads are
 * busy. Requires Linux and Node.js 22.12. BENCH_NODE selects another Node.js.
 */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { availableParallelism, tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { performance } from "node:perf_hooks";
import { fileURLToPath } from "node:url";
import { compare, median } from "../support/compare.mjs";
import { cpuMicros } from "../support/cpu.mjs";
import { httpRequest, sendLoad } from "../support/load.mjs";
import { freePort, start } from "../support/process.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const root = join(here, "../..");
const node = process.env.BENCH_NODE ?? process.execPath;
const THREADS = [1, 2, 4];
const CONNECTIONS = 64;
const SHARED_CONNECTIONS = 400;

export async function benchScale({ quick = false } = {}) {
  const folder = mkdtempSync(join(tmpdir(), "gateway-bench-"));
  const running = [];
  try {
    const backendPort = await freePort();
    const backend = join(here, "../http/backend.mjs");
    running.push(await start(process.execPath, [backend, String(backendPort)], backendPort));
    const startGateway = async (threads) => {
      const [port, adminPort] = [await freePort(), await freePort()];
      const file = join(folder, `${port}.yaml`);
      writeFileSync(file, config(threads, port, adminPort, backendPort));
      const started = await start(node, [join(root, "dist/gateway.js"), "-f", file], port);
      running.push(started);
      return { threads, adminPort, ...started };
    };
    const contestants = [];
    for (const threads of THREADS)
      contestants.push({
        name: threads === 1 ? "1 thread" : `${threads} threads`,
        gateways: [await startGateway(threads)],
      });
    contestants.push({ name: "2 processes", gateways: [await startGateway(1), await startGateway(1)] });
    for (const one of contestants) one.pid = one.gateways.map(({ pid }) => pid);
    const times = new Map(contestants.map(({ name }) => [name, []]));
    const request = httpRequest({});
    const run = async ({ name, gateways }, count) => {
      const before = performance.now();
      const share = { count: count / gateways.length, connections: CONNECTIONS / gateways.length };
      const errors = await Promise.all(gateways.map(({ port }) => sendLoad({ port, request, ...share })));
      times.get(name).push((count / (performance.now() - before)) * 1000);
      return errors.reduce((sum, failed) => sum + failed, 0);
    };
    const { errors } = await compare({
      title: "GET through 1, 2 and 4 threads: CPU per request",
      contestants,
      warmUp: quick ? 8_000 : 40_000,
      rounds: quick ? 3 : 7,
      perRound: quick ? 4_000 : 20_000,
      run,
      cpu: (pids) => pids.reduce((sum, pid) => sum + cpuMicros(pid), 0),
      baseline: "1 thread",
    });
    console.log("\nrequests per second (all runs, median)");
    for (const [name, all] of times) console.log(`  ${name.padEnd(12)} ${median(all).toFixed(0).padStart(7)}`);
    if (availableParallelism() < 4) console.log("  fewer than 4 cores: threads, load and backend share them");
    console.log(`\n${SHARED_CONNECTIONS} connections, by thread`);
    for (const { name, gateways } of contestants)
      if (gateways.length === 1) console.log(`  ${name.padEnd(12)} ${await shares(gateways[0])}`);
    return { errors };
  } finally {
    for (const one of running) await one.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

async function shares({ threads, port, adminPort }) {
  if (threads === 1) return "one thread has all";
  const sockets = await Promise.all(
    Array.from(
      { length: SHARED_CONNECTIONS },
      () =>
        new Promise((resolve, reject) => {
          const socket = connect(port, "127.0.0.1");
          socket.once("error", reject);
          socket.once("data", () => resolve(socket));
          socket.write(httpRequest({}));
        }),
    ),
  );
  const memory = await (await fetch(`http://127.0.0.1:${adminPort}/memory`)).json();
  for (const socket of sockets) socket.destroy();
  if (memory.threads === undefined) return "one thread serves here: see the log for the reason";
  return memory.threads.map(({ connections }) => connections).join(" : ");
}

function config(threads, port, adminPort, backendPort) {
  return `
config: { adminAddr: "127.0.0.1:${adminPort}", workers: ${threads}, logging: { level: "info,access=off" } }
gateways: { main: { port: ${port}, address: 127.0.0.1, protocol: HTTP } }
routes:
  - gateways: [main]
    backends: [{ host: "127.0.0.1:${backendPort}" }]
`;
}
