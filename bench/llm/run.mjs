/**
 * Benchmarks chat completions through a minimal Node.js proxy, the gateway, and Portkey's gateway: JSON of 1 KB and
 * 20 KB, a stream of 100 chunks, and the memory of open streams.
 */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { request } from "node:http";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { performance } from "node:perf_hooks";
import { fileURLToPath } from "node:url";
import { compare, median } from "../support/compare.mjs";
import { residentBytes } from "../support/cpu.mjs";
import { httpRequest, sendLoad } from "../support/load.mjs";
import { freePort, start } from "../support/process.mjs";
import { portkey } from "./portkey.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const root = join(here, "../..");
const PATH = "/v1/chat/completions";

export async function benchLlm({ quick = false } = {}) {
  const folder = mkdtempSync(join(tmpdir(), "gateway-bench-llm-"));
  const running = [];
  try {
    const providerPort = await freePort();
    running.push(await start(process.execPath, [join(here, "provider.mjs"), String(providerPort)], providerPort));
    const contestants = [];
    const add = async (name, args, port, headers = {}, environment = {}) => {
      const started = await start(process.execPath, args, port, { spawn: { env: { ...process.env, ...environment } } });
      running.push(started);
      contestants.push({ name, headers, ...started });
    };
    const barePort = await freePort();
    await add(
      "bare node proxy",
      [join(root, "bench/http/bare-proxy.mjs"), String(barePort), String(providerPort)],
      barePort,
    );
    for (const [name, config] of Object.entries(CONFIGS)) {
      const port = await freePort();
      const file = join(folder, `${port}.yaml`);
      writeFileSync(file, config(port, providerPort));
      await add(name, [join(root, "dist/gateway.js"), "-f", file], port);
    }
    const portkeyPort = await freePort();
    const peer = portkey(portkeyPort, providerPort);
    if (peer) await add("Portkey 1.15.2", peer.args, portkeyPort, peer.headers, peer.environment);

    const rounds = quick ? 3 : 5;
    const warmUp = quick ? 3000 : 12_000;
    const workloads = [
      ["chat JSON, 1 KB", chat("small", 130), 32, 1500, warmUp],
      ["chat JSON, 20 KB there and back", chat("large", 4000), 32, 1000, warmUp],
      ["stream of 100 chunks, 60 at once", chat("small", 130, true), 60, 180, quick ? 600 : 4000],
    ];
    for (const [title, body, connections, perRound, warm] of workloads) {
      await compare({
        title,
        contestants,
        warmUp: warm,
        rounds,
        perRound,
        baseline: "bare node proxy",
        run: ({ port, headers }, count) =>
          sendLoad({
            port,
            connections,
            count,
            request: httpRequest({ method: "POST", path: PATH, body, headers: { ...bearer, ...headers } }),
          }),
      });
    }
    await firstTokens(
      [{ name: "the provider itself", port: providerPort, headers: {} }, ...contestants],
      quick ? 100 : 400,
    );
    await openStreams(contestants, quick ? 500 : 2000);
  } finally {
    for (const one of running) await one.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

const bearer = { authorization: `Bearer ${"b".repeat(160)}` };

function chat(model, words, stream = false) {
  return JSON.stringify({
    model,
    ...(stream ? { stream: true } : {}),
    messages: [{ role: "user", content: "word ".repeat(words) }],
  });
}

const CONFIGS = {
  gateway: (port, providerPort) => config(port, providerPort, ""),
  "gateway, token limit": (port, providerPort) =>
    config(port, providerPort, "policies: { rateLimit: { local: [{ tokens: 1000000000, unit: Hours }] } }"),
};

function config(port, providerPort, policies) {
  return `config: { adminAddr: off, logging: { level: "info,access=off" } }
gateways: { default: { port: ${port}, address: 127.0.0.1 } }
routes:
  - backends: [{ ai: { provider: { openAI: {} }, auth: { key: k }, hostOverride: "127.0.0.1:${providerPort}" } }]
    ${policies}
`;
}

/** One stream at a time over one connection each, in turns: from the request to the first bytes of the first event. */
async function firstTokens(contestants, count) {
  console.log("\ntime to the first token, one stream at a time (median)");
  const rows = contestants.map(({ name, port, headers }) => ({ name, ask: asker(port, headers), times: [] }));
  for (let i = 0; i < count; i++) for (const { ask, times } of rows) times.push(await ask());
  for (const { name, times } of rows) {
    const micros = median(times) * 1000;
    console.log(`  ${name.padEnd(22)} ${Number.isNaN(micros) ? "no token came" : `${micros.toFixed(0)} µs`}`);
  }
}

/** Returns a function that asks for a stream, reads it to its end, and says how long the first token took. */
function asker(port, headers) {
  const bytes = httpRequest({
    method: "POST",
    path: PATH,
    body: chat("small", 130, true),
    headers: { ...bearer, ...headers },
  });
  const socket = connect(port, "127.0.0.1");
  let done = () => undefined;
  let startMs = 0;
  let firstMs = Number.NaN;
  let received = "";
  socket.setNoDelay(true);
  socket.on("error", () => undefined);
  socket.on("close", () => done(Number.NaN));
  socket.on("data", (chunk) => {
    received += chunk.toString("latin1");
    if (Number.isNaN(firstMs) && received.includes("data: ")) firstMs = performance.now() - startMs;
    if (received.endsWith("0\r\n\r\n") || !received.startsWith("HTTP/1.1 200")) done(firstMs);
  });
  return () =>
    new Promise((resolve) => {
      if (socket.destroyed) {
        resolve(Number.NaN);
        return;
      }
      done = resolve;
      received = "";
      firstMs = Number.NaN;
      startMs = performance.now();
      socket.write(bytes);
    });
}

/** Resident memory per stream that is open and receives a chunk per second. */
async function openStreams(contestants, count) {
  console.log(`\n${count} open streams`);
  for (const { name, port, pid, headers } of contestants) {
    const before = residentBytes(pid);
    const streams = [];
    for (let i = 0; i < count; i += 50) {
      await Promise.all(Array.from({ length: 50 }, () => open(port, headers).then((stream) => streams.push(stream))));
    }
    await new Promise((resolve) => setTimeout(resolve, 3000));
    console.log(`  ${name.padEnd(22)} ${((residentBytes(pid) - before) / count / 1024).toFixed(1)} KB each`);
    for (const stream of streams) stream.destroy();
    await new Promise((resolve) => setTimeout(resolve, 500));
  }
}

function open(port, headers) {
  return new Promise((resolve, reject) => {
    const outgoing = request(
      {
        port,
        host: "127.0.0.1",
        path: PATH,
        method: "POST",
        agent: false,
        headers: { "content-type": "application/json", ...bearer, ...headers },
      },
      (response) => {
        response.resume();
        response.once("data", () => resolve(outgoing));
      },
    );
    outgoing.on("error", reject);
    outgoing.end(chat("open", 10, true));
    setTimeout(() => reject(new Error("a stream did not open")), 20_000).unref();
  }).catch(() => ({ destroy() {} }));
}
