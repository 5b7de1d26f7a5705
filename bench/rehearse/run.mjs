/**
 * `npm run bench -- rehearse`: measures how long a rehearsal of 10,000 requests takes and how it affects the latency
 * of traffic. Exits with 1 if the first rehearsal or the median takes 2 s or more, or if the median p99 with a
 * rehearsal is more than 1.5 times the median p99 without one.
 */
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { Agent, get } from "node:http";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { httpRequest, sendLoad } from "../support/load.mjs";
import { p99Of, percentile, sendPaced } from "../support/paced-load.mjs";
import { freePort, start } from "../support/process.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const root = join(here, "../..");
const REQUESTS = 10_000;
const PER_SECOND = 200;
const WINDOW_MS = 3_000;
const MAX_REHEARSAL_MS = 2_000;
const MAX_RATIO = 1.5;

export async function benchRehearse({ quick = false } = {}) {
  const folder = mkdtempSync(join(tmpdir(), "gateway-bench-"));
  const running = [];
  try {
    const [backendPort, port, adminPort] = [await freePort(), await freePort(), await freePort()];
    running.push(await start(process.execPath, [join(here, "../http/backend.mjs"), String(backendPort)], backendPort));
    const file = join(folder, "old.yaml");
    writeFileSync(file, configOf(port, adminPort, backendPort, "admin"));
    running.push(await start(process.execPath, [join(root, "dist/gateway.js"), "-f", file], port));
    const request = httpRequest({ headers: { "x-api-key": "key-of-alice-12345", "user-agent": "bench", "x-a": "1" } });
    // Whoever follows gets each request, so that each is kept.
    const follower = get(`http://127.0.0.1:${adminPort}/debug/recording?follow=true`, (answer) => answer.resume());
    await once(follower, "response");
    await sendLoad({ port, request, count: REQUESTS + 2_000, connections: 16 });
    follower.destroy();
    const changed = configOf(port, adminPort, backendPort, "admn");
    const agent = new Agent({ keepAlive: true });
    const latencies = { without: [], with: [], during: [] };
    const p99s = { without: [], with: [] };
    const durations = [];
    for (let round = 0; round < (quick ? 3 : 8); round++) {
      const quiet = [];
      await pacedLoad(port, agent, quiet);
      latencies.without.push(...quiet);
      p99s.without.push(p99Of(quiet));
      const samples = [];
      const startedMs = performance.now();
      const [rehearsal] = await Promise.all([rehearse(adminPort, changed), pacedLoad(port, agent, samples)]);
      latencies.with.push(...samples);
      p99s.with.push(p99Of(samples));
      latencies.during.push(...samples.filter(({ atMs }) => atMs < startedMs + rehearsal.wallMs));
      if (rehearsal.requests !== REQUESTS || rehearsal.denied[0]?.requests !== REQUESTS)
        throw new Error(`the rehearsal is wrong: ${JSON.stringify(rehearsal).slice(0, 300)}`);
      durations.push(rehearsal.wallMs);
    }
    agent.destroy();
    const [without, together, overlapping] = [latencies.without, latencies.with, latencies.during].map((samples) =>
      samples.map(({ ms }) => ms),
    );
    const [p50, allBefore, allDuring] = [
      percentile(without, 0.5),
      percentile(without, 0.99),
      percentile(together, 0.99),
    ];
    const [before, during] = [percentile(p99s.without, 0.5), percentile(p99s.with, 0.5)];
    const rehearsalMs = percentile(durations, 0.5);
    console.log(`\nrehearsal of ${REQUESTS} requests, old and new configuration, over the admin interface`);
    console.log(
      `  first ${durations[0].toFixed(0)} ms, median ${rehearsalMs.toFixed(0)} ms, from ${Math.min(...durations).toFixed(0)} to ${Math.max(...durations).toFixed(0)} ms`,
    );
    console.log(
      `  traffic, ${PER_SECOND} requests per second: p50 ${p50.toFixed(2)} ms, p99 of a window without ${before.toFixed(2)} ms, with ${during.toFixed(2)} ms (${(during / before).toFixed(2)} times)`,
    );
    console.log(
      `  all windows together: p99 without ${allBefore.toFixed(2)} ms, with ${allDuring.toFixed(2)} ms (${(allDuring / allBefore).toFixed(2)} times); by window ${shown(p99s.without)} and ${shown(p99s.with)}`,
    );
    console.log(
      `  only requests that were sent while a rehearsal ran (${overlapping.length} of ${together.length}): p50 ${percentile(overlapping, 0.5).toFixed(2)} ms, p99 ${percentile(overlapping, 0.99).toFixed(2)} ms`,
    );
    const isGood = Math.max(durations[0], rehearsalMs) < MAX_REHEARSAL_MS && during <= MAX_RATIO * before;
    if (!isGood) process.exitCode = 1;
    return { rehearsalMs, before, during };
  } finally {
    for (const one of running) await one.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

function configOf(port, adminPort, backendPort, role) {
  return `
config: { adminAddr: "127.0.0.1:${adminPort}", logging: { level: "info,access=off" } }
gateways: { default: { port: ${port}, address: 127.0.0.1 } }
routes:
  - name: api
    backends: [{ host: "127.0.0.1:${backendPort}" }]
    policies:
      apiKey: { keys: [{ key: key-of-alice-12345, metadata: { user_id: alice, role: admin } }] }
      authorization: { rules: ['apiKey.role == "${role}"', 'request.headers["x-a"] == "1"'] }
      rateLimit: { local: [{ requests: 1000000, unit: Seconds, key: apiKey.user_id }] }
      requestHeaderModifier: { set: { x-b: "2" } }
`;
}

function pacedLoad(port, agent, samples) {
  const headers = { "x-api-key": "key-of-alice-12345", "x-a": "1" };
  return sendPaced({
    port,
    agent,
    headers,
    perSecond: PER_SECOND,
    samples,
    isOver: (elapsedMs) => elapsedMs >= WINDOW_MS,
  });
}

async function rehearse(adminPort, text) {
  const startedMs = performance.now();
  const answer = await fetch(`http://127.0.0.1:${adminPort}/debug/rehearse`, { method: "POST", body: text });
  if (answer.status !== 200) throw new Error(await answer.text());
  const report = await answer.json();
  return { ...report, wallMs: performance.now() - startedMs };
}

function shown(values) {
  return values.map((value) => value.toFixed(1)).join(" ");
}
