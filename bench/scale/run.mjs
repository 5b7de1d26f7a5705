/**
 * Compares the gateway with 1, 2 and 4 threads: CPU time per request, distribution of connections, and throughput if
 * the machine has enough cores. Two processes with a thread each show what the machine itself adds when two threads are
 * busy. Requires Linux and Node.js 22.12. BENCH_NODE selects another Node.js.
 */
import { connect } from "node:net";
import { availableParallelism } from "node:os";
import { dirname, join } from "node:path";
import { performance } from "node:perf_hooks";
import { fileURLToPath } from "node:url";
import { compare, median } from "../support/compare.mjs";
import { withContestants } from "../support/contestants.mjs";
import { cpuMicros } from "../support/cpu.mjs";
import { httpRequest, sendLoad } from "../support/load.mjs";
import { startBackend } from "../support/workloads.mjs";
import { gatewayRoute } from "../work/config.mjs";

const GATEWAY = join(dirname(fileURLToPath(import.meta.url)), "../../dist/gateway.js");
const THREADS = [1, 2, 4];
const CONNECTIONS = 64;
const SHARED_CONNECTIONS = 400;

export async function benchScale({ quick = false } = {}) {
  const backend = await startBackend({ of: "http", isStepped: false });
  const configure = ({ threads }, { port, adminPort }) =>
    gatewayRoute({
      port,
      backend: { host: `127.0.0.1:${backend.port}` },
      config: { adminAddr: `127.0.0.1:${adminPort}`, workers: threads },
    });
  const programs = [...THREADS, 1, 1].map((threads) => ({
    name: `gateway with ${threads} threads`,
    threads,
    command: process.env.BENCH_NODE ?? process.execPath,
    args: (file) => [GATEWAY, "-f", file],
  }));
  try {
    return await withContestants({ programs, values: {}, configure }, (gateways) => compareThreads(gateways, quick));
  } finally {
    await backend.stop();
  }
}

async function compareThreads(all, quick) {
  const contestants = all.slice(0, THREADS.length).map((gateway) => ({
    name: `${gateway.program.threads} ${gateway.program.threads === 1 ? "thread" : "threads"}`,
    gateways: [gateway],
  }));
  contestants.push({ name: "2 processes", gateways: all.slice(THREADS.length) });
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
}

async function shares({ program: { threads }, port, adminPort }) {
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
