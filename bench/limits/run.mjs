/**
 * Measures the cost of a local rate limit per request: without a limit, with one bucket for all requests, and with
 * one bucket per key. Also measures 65,536 buckets: memory, a hit, and an insertion that evicts.
 */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { compare } from "../support/compare.mjs";
import { httpRequest, sendLoad } from "../support/load.mjs";
import { freePort, start } from "../support/process.mjs";
import { benchStore } from "./store.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const root = join(here, "../..");

const LIMITS = [
  ["gateway, no limit", undefined],
  ["gateway, one limit", "{ local: [{ requests: 1000000000, unit: Hours }] }"],
  ["gateway, one keyed limit", `{ local: [{ requests: 1000000000, unit: Hours, key: 'request.headers["x-user"]' }] }`],
];

export async function benchLimits({ quick = false } = {}) {
  await benchStore();
  const folder = mkdtempSync(join(tmpdir(), "gateway-bench-"));
  const running = [];
  try {
    const backendPort = await freePort();
    running.push(await start(process.execPath, [join(here, "../http/backend.mjs"), String(backendPort)], backendPort));
    const contestants = [];
    for (const [index, [name, rateLimit]] of LIMITS.entries()) {
      const port = await freePort();
      const file = join(folder, `${index}.yaml`);
      writeFileSync(file, gatewayConfig(port, backendPort, rateLimit));
      const started = await start(process.execPath, [join(root, "dist/gateway.js"), "-f", file], port);
      running.push(started);
      contestants.push({ name, ...started });
    }
    const request = httpRequest({ headers: { "x-user": "alice" } });
    return await compare({
      title: "GET, 320 B answer",
      contestants,
      warmUp: quick ? 4000 : 20_000,
      rounds: quick ? 5 : 15,
      perRound: 3000,
      run: ({ port }, count) => sendLoad({ port, request, count, connections: 32 }),
      baseline: "gateway, no limit",
    });
  } finally {
    for (const one of running) await one.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

function gatewayConfig(port, backendPort, rateLimit) {
  const policies = rateLimit ? `, policies: { rateLimit: ${rateLimit} }` : "";
  return `config: { adminAddr: off, logging: { level: "info,access=off" } }
gateways: { default: { port: ${port}, address: 127.0.0.1 } }
routes: [{ backends: [{ host: "127.0.0.1:${backendPort}" }]${policies} }]
`;
}
