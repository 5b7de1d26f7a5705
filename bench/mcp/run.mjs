/**
 * Benchmarks tool calls over stdio through the gateway, a minimal bridge, and other bridges: CPU time per call,
 * memory per idle session, and the time until `initialize` responds.
 */
import { spawn } from "node:child_process";
import { dirname, join } from "node:path";
import { performance } from "node:perf_hooks";
import { fileURLToPath } from "node:url";
import { compare, median } from "../support/compare.mjs";
import { withContestants } from "../support/contestants.mjs";
import { residentBytes } from "../support/cpu.mjs";
import { ECHO } from "../support/workloads.mjs";
import { gatewayRoute } from "../work/config.mjs";
import { makeCalls, openSession, post } from "./calls.mjs";
import { peers } from "./peers.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const GATEWAY = join(here, "../..", process.env.BENCH_DIST ?? "dist", "gateway.js");
const BARE = "bare bridge";
const collecting = ["--expose-gc", "--import", join(here, "collect-on-signal.mjs")];
const IDLE_SESSIONS = 400;

export async function benchMcp({ quick = false } = {}) {
  // A certificate bundle costs every start of Node tens of milliseconds.
  delete process.env.NODE_EXTRA_CA_CERTS;
  const node = (name, args, configure) => ({
    name,
    command: process.execPath,
    args: (file, place) => [...collecting, ...args(file, place)],
    configure,
  });
  const gateway = (name, level) =>
    node(
      name,
      (file) => [GATEWAY, "-f", file],
      ({ port }) => config(port, level),
    );
  const programs = [
    node(BARE, (_file, { port }) => [join(here, "bare-bridge.mjs"), String(port), ...ECHO]),
    gateway("gateway, access log off", "warn,access=off"),
    gateway("gateway, access log on", "info"),
    ...(quick ? [] : peers()).map((peer) => node(peer.name, (_file, { port }) => peer.args(port, ECHO))),
  ];
  const configure = (program, place) => program.configure?.(place) ?? "";
  const prepare = async (contestant) => {
    contestant.sessions = [];
    for (let i = 0; i < 8; i++) contestant.sessions.push(await openSession(contestant.port));
  };
  await withContestants({ programs, values: {}, configure, prepare }, async (contestants) => {
    // The first warms the code up too: all that a call can meet is compiled when the measuring begins.
    const workloads = [
      ["tools/call, 1 in flight", 1, 1, 1500, 20_000],
      ["tools/call, 1 session × 64 in flight", 1, 64, 3000, 8000],
      ["tools/call, 8 sessions × 8 in flight", 8, 64, 3000, 8000],
    ];
    for (const [title, sessions, connections, perRound, warmUp] of workloads) {
      await compare({
        title,
        contestants,
        warmUp: quick ? 5000 : warmUp,
        rounds: quick ? 3 : 7,
        perRound,
        run: (contestant, count) =>
          makeCalls({ port: contestant.port, sessions: contestant.sessions.slice(0, sessions), connections, count }),
        baseline: BARE,
      });
    }
    await timeToFirstByte(contestants, quick ? 10 : 40);
    await idleMemory(contestants);
  });
}

/** In turns, so that drift of the machine meets all alike. */
async function timeToFirstByte(contestants, count) {
  console.log("\ninitialize, ms to the first byte of the answer (median)");
  const rows = [{ name: "the child alone", measure: childAlone, times: [] }];
  for (const { name, port } of contestants) rows.push({ name, measure: () => firstByte(port), times: [] });
  for (let i = 0; i < count; i++) for (const row of rows) row.times.push(await row.measure());
  for (const { name, times } of rows) console.log(`  ${name.padEnd(26)} ${median(times).toFixed(1)}`);
}

async function firstByte(port) {
  const startMs = performance.now();
  const response = await post(port, initialize());
  const reader = response.body.getReader();
  await reader.read();
  const passedMs = performance.now() - startMs;
  await reader.cancel();
  return passedMs;
}

function childAlone() {
  return new Promise((resolve) => {
    const startMs = performance.now();
    const child = spawn(ECHO[0], ECHO.slice(1), { stdio: ["pipe", "pipe", "inherit"] });
    child.stdout.once("data", () => {
      resolve(performance.now() - startMs);
      child.stdin.end();
    });
    child.stdin.write(`${JSON.stringify(initialize())}\n`);
  });
}

function initialize() {
  return {
    jsonrpc: "2.0",
    id: 0,
    method: "initialize",
    params: { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "bench", version: "1" } },
  };
}

/** After a full collection before and after: what sessions keep, not what opening them left behind. */
async function idleMemory(contestants) {
  console.log(`\nKB of the process in front per idle session (${IDLE_SESSIONS} opened)`);
  for (const { name, port, pid } of contestants) {
    const before = await residentAfterCollection(pid);
    for (let i = 0; i < IDLE_SESSIONS; i += 10) {
      await Promise.all(Array.from({ length: 10 }, () => openSession(port)));
    }
    const after = await residentAfterCollection(pid);
    console.log(`  ${name.padEnd(26)} ${((after - before) / 1024 / IDLE_SESSIONS).toFixed(0)}`);
  }
}

async function residentAfterCollection(pid) {
  for (let i = 0; i < 3; i++) {
    process.kill(pid, "SIGALRM");
    await new Promise((resolve) => setTimeout(resolve, 700));
  }
  return residentBytes(pid);
}

function config(port, level) {
  const targets = [{ name: "echo", stdio: { cmd: ECHO[0], args: ECHO.slice(1) } }];
  return gatewayRoute({ port, backend: { mcp: { maxChildren: 10_000, targets } }, config: { logging: { level } } });
}
