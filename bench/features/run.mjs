/**
 * `npm run bench -- features`: compares the CPU time and the memory of the gateway with a feature and without it: rate
 * limits, traces, OpenTelemetry, and the history. BENCH_ROWS selects rows by the first words of their titles.
 */
import { get } from "node:http";
import { connect } from "node:net";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gateways } from "../peers/programs.mjs";
import { compare } from "../support/compare.mjs";
import { withContestants } from "../support/contestants.mjs";
import { mainThreadMicros, residentBytes } from "../support/cpu.mjs";
import { freePort, start } from "../support/process.mjs";
import { isWanted } from "../support/rows.mjs";
import { gatewayConfig, startBackend, WORKLOADS } from "../support/workloads.mjs";

const SINK = join(dirname(fileURLToPath(import.meta.url)), "sink.mjs");
const OFF = "off";
/** How often a new trace begins while one request after another is traced. */
const TRACE_EVERY_MS = 50;

const limit = (settings) => () => ({
  policies: { rateLimit: { local: [{ requests: 1_000_000_000, unit: "Hours", ...settings }] } },
});
const otlp =
  (settings = {}) =>
  ({ collectorPort }) => ({
    config: { telemetry: { otlp: { endpoint: `http://127.0.0.1:${collectorPort}`, ...settings } } },
  });

/** Each variant returns settings of the route and the process, and `watch` opens what reads while requests run. */
const FEATURES = [
  {
    title: "rate limits",
    of: "http",
    variants: { "one limit": limit({}), "one keyed limit": limit({ key: 'request.headers["authorization"]' }) },
  },
  {
    title: "traces",
    of: "http",
    variants: {
      "8 wait for another path": () => ({ watch: waitForNothing }),
      "one traced every 50 ms": () => ({ watch: traceOften }),
      "a reader that never reads": () => ({ watch: neverRead }),
      "every request recorded (keepFailed)": () => ({ config: { tracing: { keepFailed: {} } } }),
    },
  },
  {
    title: "telemetry",
    of: "llm",
    variants: {
      "1% sampled": otlp({ sampling: { ratio: 0.01 } }),
      "one span per request": otlp({ spans: "request" }),
      "all spans": otlp(),
      "all spans, gRPC refused": otlp({ protocol: "grpc" }),
      "all spans, collector down": ({ downPort }) => otlp()({ collectorPort: downPort }),
      "1% sampled, logs": otlp({ sampling: { ratio: 0.01 }, signals: ["traces", "metrics", "logs"] }),
    },
  },
  {
    title: "history",
    of: "llm",
    cpus: { "the thread that serves requests": mainThreadMicros },
    variants: { "history on": ({ folder }) => ({ config: { history: { folder: join(folder, "history") } } }) },
  },
];

export async function benchFeatures({ quick = false } = {}) {
  const [collectorPort, downPort] = [await freePort(), await freePort()];
  const collector = await start(process.execPath, [SINK, String(collectorPort)], collectorPort);
  try {
    for (const feature of FEATURES.filter(({ title }) => isWanted(title)))
      await compareVariants(feature, { collectorPort, downPort }, quick);
  } finally {
    await collector.stop();
  }
}

async function compareVariants({ title, of, cpus = {}, variants }, values, quick) {
  const { title: work, run, perRound, warmUp } = WORKLOADS.find((one) => one.of === of);
  const backend = await startBackend({ of, isStepped: false });
  const [gateway] = gateways();
  const watching = [];
  const programs = Object.entries({ [OFF]: () => ({}), "off (again)": () => ({}), ...variants }).map(
    ([name, settings]) => ({ ...gateway, name, settings }),
  );
  const watches = new Map();
  const configure = ({ name, settings }, place) => {
    const { policies, config, watch } = settings(place);
    watches.set(name, watch);
    const adminAddr = `127.0.0.1:${place.adminPort}`;
    return gatewayConfig(of, place.port, backend.port, { policies, config: { adminAddr, ...config } });
  };
  const prepare = ({ name, adminPort }) => {
    const stop = watches.get(name)?.(adminPort);
    if (stop) watching.push(stop);
  };
  try {
    await withContestants({ programs, values, configure, prepare }, async (contestants) => {
      const options = { contestants, run, perRound, baseline: OFF, rounds: quick ? 5 : 15 };
      for (const [which, cpu] of Object.entries({ "the whole process": undefined, ...cpus }))
        await compare({ ...options, cpu, title: `${title}: ${work}, ${which}`, warmUp: quick ? 4000 : warmUp });
      console.log("\n  resident memory after the load");
      for (const { name, pid } of contestants)
        console.log(`  ${name.padEnd(36)} ${(residentBytes(pid) / 1024 / 1024).toFixed(1)} MB`);
    });
  } finally {
    for (const stop of watching) stop();
    await backend.stop();
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
