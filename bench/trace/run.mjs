/**
 * Measures the cost of tracing for requests that are not traced: without a trace, with eight waiting traces, with
 * continuous tracing, with a stalled reader, and with `keepFailed`.
 */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { get } from "node:http";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { compare } from "../support/compare.mjs";
import { residentBytes } from "../support/cpu.mjs";
import { httpRequest, sendLoad } from "../support/load.mjs";
import { freePort, start } from "../support/process.mjs";
import { benchRecent } from "./recent.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const root = join(here, "../..");
const NOBODY = "gateway, nobody watches";

/** How often a new trace begins while one request after another is traced. */
const TRACE_EVERY_MS = 50;

const CONTESTANTS = [
  { name: NOBODY },
  { name: "gateway, nobody watches (again)" },
  { name: "8 wait for another path", watch: waitForNothing },
  { name: "one traced every 50 ms", watch: traceOften },
  { name: "a reader that never reads", watch: neverRead },
  { name: "every request recorded (keepFailed)", tracing: "tracing: { keepFailed: {} }, " },
];

export async function benchTrace({ quick = false } = {}) {
  await benchRecent();
  const folder = mkdtempSync(join(tmpdir(), "gateway-bench-"));
  const running = [];
  const watching = [];
  try {
    const backendPort = await freePort();
    running.push(await start(process.execPath, [join(here, "../http/backend.mjs"), String(backendPort)], backendPort));
    const contestants = [];
    for (const [index, { name, watch, tracing = "" }] of CONTESTANTS.entries()) {
      const port = await freePort();
      const adminPort = await freePort();
      const file = join(folder, `${index}.yaml`);
      writeFileSync(file, gatewayConfig(port, adminPort, backendPort, tracing));
      const started = await start(process.execPath, [join(root, "dist/gateway.js"), "-f", file], port);
      running.push(started);
      contestants.push({ name, ...started, adminPort });
      if (watch) watching.push(watch(adminPort));
    }
    const request = httpRequest({ headers: { authorization: `Bearer ${"b".repeat(600)}` } });
    const result = await compare({
      title: "GET, 320 B answer",
      contestants,
      warmUp: quick ? 4000 : 20_000,
      rounds: quick ? 5 : 15,
      perRound: 3000,
      run: ({ port }, count) => sendLoad({ port, request, count, connections: 32 }),
      baseline: NOBODY,
    });
    console.log("\n  resident memory after the load");
    for (const { name, pid } of contestants)
      console.log(`  ${name.padEnd(36)} ${(residentBytes(pid) / 1024 / 1024).toFixed(1)} MB`);
    return result;
  } finally {
    for (const stop of watching) stop();
    for (const one of running) await one.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

function waitForNothing(adminPort) {
  const expression = encodeURIComponent('request.path == "/never"');
  const calls = Array.from({ length: 8 }, () => open(adminPort, `?expression=${expression}`));
  return () => {
    for (const call of calls) call.destroy();
  };
}

function traceOften(adminPort) {
  const timer = setInterval(() => open(adminPort, ""), TRACE_EVERY_MS);
  return () => clearInterval(timer);
}

function neverRead(adminPort) {
  const socket = connect(adminPort, "127.0.0.1");
  socket.pause();
  socket.on("error", () => undefined);
  socket.write("GET /debug/trace?count=1000 HTTP/1.1\r\nhost: localhost\r\n\r\n");
  return () => socket.destroy();
}

function open(adminPort, query) {
  const call = get({ port: adminPort, host: "127.0.0.1", path: `/debug/trace${query}` }, (response) =>
    response.resume(),
  );
  call.on("error", () => undefined);
  return call;
}

function gatewayConfig(port, adminPort, backendPort, tracing) {
  return `config: { adminAddr: "127.0.0.1:${adminPort}", ${tracing}logging: { level: "info,access=off" } }
gateways: { default: { port: ${port}, address: 127.0.0.1 } }
routes: [{ backends: [{ host: "127.0.0.1:${backendPort}" }] }]
`;
}
