/**
 * Measures the cost of OpenTelemetry for chat requests: off, 1% sampled, one span per request, all spans, the access
 * log over OTLP, and an unavailable collector.
 */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { compare } from "../support/compare.mjs";
import { residentBytes } from "../support/cpu.mjs";
import { httpRequest, sendLoad } from "../support/load.mjs";
import { freePort, start } from "../support/process.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const root = join(here, "../..");
const OFF = "telemetry off";

const CONTESTANTS = [
  [OFF, undefined],
  ["telemetry off (again)", undefined],
  ["1 % sampled", { sampling: { ratio: 0.01 } }],
  ["one span per request", { spans: "request" }],
  ["all spans", {}],
  ["all spans, gRPC refused", { protocol: "grpc" }],
  ["all spans, collector down", { down: true }],
  ["1 % sampled, logs", { sampling: { ratio: 0.01 }, signals: ["traces", "metrics", "logs"] }],
];

export async function benchTelemetry({ quick = false } = {}) {
  const folder = mkdtempSync(join(tmpdir(), "gateway-bench-telemetry-"));
  const running = [];
  try {
    const [providerPort, sinkPort, downPort] = [await freePort(), await freePort(), await freePort()];
    running.push(
      await start(process.execPath, [join(here, "../llm/provider.mjs"), String(providerPort)], providerPort),
    );
    running.push(await start(process.execPath, [join(here, "sink.mjs"), String(sinkPort)], sinkPort));
    const contestants = [];
    for (const [name, settings] of CONTESTANTS) {
      const port = await freePort();
      const { down = false, ...rest } = settings ?? {};
      const otlp = settings && { endpoint: `http://127.0.0.1:${down ? downPort : sinkPort}`, ...rest };
      const file = join(folder, `${port}.yaml`);
      writeFileSync(file, config(port, providerPort, otlp));
      const started = await start(process.execPath, [join(root, "dist/gateway.js"), "-f", file], port);
      running.push(started);
      contestants.push({ name, ...started });
    }
    const body = JSON.stringify({ model: "small", messages: [{ role: "user", content: "word ".repeat(130) }] });
    const headers = { authorization: `Bearer ${"b".repeat(160)}` };
    await compare({
      title: "chat JSON, 1 KB",
      contestants,
      warmUp: quick ? 4000 : 12_000,
      rounds: quick ? 5 : 9,
      perRound: 2000,
      baseline: OFF,
      run: ({ port }, count) =>
        sendLoad({
          port,
          connections: 32,
          count,
          request: httpRequest({ method: "POST", path: "/v1/chat/completions", body, headers }),
        }),
    });
    console.log("\n  resident memory after the load");
    for (const { name, pid } of contestants)
      console.log(`  ${name.padEnd(36)} ${(residentBytes(pid) / 1024 / 1024).toFixed(1)} MB`);
  } finally {
    for (const one of running) await one.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

function config(port, providerPort, otlp) {
  const telemetry = otlp === undefined ? "" : `, telemetry: { otlp: ${JSON.stringify(otlp)} }`;
  return `config: { adminAddr: off, logging: { level: "info,access=off" }${telemetry} }
gateways: { default: { port: ${port}, address: 127.0.0.1 } }
routes:
  - backends: [{ ai: { provider: { openAI: {} }, auth: { key: k }, hostOverride: "127.0.0.1:${providerPort}" } }]
`;
}
