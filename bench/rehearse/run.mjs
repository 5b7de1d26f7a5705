/**
 * `npm run bench -- rehearse`: measures how long a rehearsal of 10,000 requests and an access review of 1,000 principals
 * and 500 tools take, and how they affect the latency of traffic. Exits with 1 if one takes longer than its limit, or if
 * the median p99 during it is more than 1.5 times the median p99 without it.
 */
import { generateKeyPairSync } from "node:crypto";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { get } from "node:http";
import { join } from "node:path";
import { gateways } from "../peers/programs.mjs";
import { median } from "../support/compare.mjs";
import { withContestants } from "../support/contestants.mjs";
import { percentiles, sendOpenLoop } from "../support/latency-load.mjs";
import { httpRequest, sendLoad } from "../support/load.mjs";
import { startBackend } from "../support/workloads.mjs";

const REQUESTS = 10_000;
const PRINCIPALS = 1_000;
const TOOLS = 500;
const PER_SECOND = 200;
const WINDOW_MS = 3_000;
const MAX_RATIO = 1.5;
const REQUEST = httpRequest({ headers: { "x-api-key": "key-of-alice-12345", "user-agent": "bench", "x-a": "1" } });

const JOBS = [
  {
    title: `rehearsal of ${REQUESTS} requests, old and new configuration`,
    maxMs: 2_000,
    config: (backendPort) => ({ routes: [apiRoute(backendPort, "admin")] }),
    async prepare({ port, adminPort }) {
      // A follower receives each request, so that each is kept.
      const follower = get(`http://127.0.0.1:${adminPort}/debug/recording?follow=true`, (answer) => answer.resume());
      await once(follower, "response");
      await sendLoad({ port, request: REQUEST, count: REQUESTS + 2_000, connections: 16 });
      follower.destroy();
    },
    async run({ adminPort, backendPort }) {
      const changed = JSON.stringify({ routes: [apiRoute(backendPort, "admn")] });
      const report = await post(adminPort, "rehearse", changed);
      if (report.requests !== REQUESTS || report.denied[0]?.requests !== REQUESTS)
        throw new Error(`the rehearsal is wrong: ${JSON.stringify(report).slice(0, 300)}`);
    },
  },
  {
    title: `access review of ${PRINCIPALS} principals and ${TOOLS} tools`,
    maxMs: 10_000,
    config: (backendPort) => ({ routes: [toolsRoute(backendPort), apiRoute(backendPort, "admin")] }),
    async run({ adminPort }) {
      const principals = Array.from({ length: PRINCIPALS }, (_, i) => ({
        name: `user${i}`,
        claims: { sub: `user${i}`, groups: [`group${i % 20}`], level: i % 5 },
      }));
      const items = Array.from({ length: TOOLS }, (_, i) => `tool:files/tool${i}`);
      checkReview((await post(adminPort, "access", JSON.stringify({ principals, items }))).review);
    },
  },
];

export async function benchRehearse({ quick = false } = {}) {
  for (const job of JOBS) {
    const backend = await startBackend({ of: "http", isStepped: false });
    const configure = (_program, { port, adminPort, folder }) => {
      const { publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
      const key = { ...publicKey.export({ format: "jwk" }), kid: "bench", alg: "ES256" };
      writeFileSync(join(folder, "keys.json"), JSON.stringify({ keys: [key] }));
      return JSON.stringify({
        config: { adminAddr: `127.0.0.1:${adminPort}`, logging: { level: "info,access=off" } },
        gateways: { default: { port, address: "127.0.0.1" } },
        ...job.config(backend.port),
      });
    };
    const programs = gateways().slice(0, 1);
    try {
      await withContestants({ programs, values: {}, configure }, async ([gateway]) => {
        if (gateway === undefined) throw new Error("the gateway did not start");
        await job.prepare?.(gateway);
        await measure(job, { ...gateway, backendPort: backend.port }, quick ? 3 : 8);
      });
    } finally {
      await backend.stop();
    }
  }
}

async function measure({ title, maxMs, run }, gateway, rounds) {
  const load = { port: gateway.port, request: REQUEST, connections: 64, perSecond: PER_SECOND };
  const window = async () => percentiles((await sendOpenLoop({ ...load, durationMs: WINDOW_MS })).latencies);
  await window();
  const [without, during, durations] = [[], [], []];
  for (let round = 0; round < rounds; round++) {
    without.push(await window());
    const startedMs = performance.now();
    const timed = async () => {
      await run(gateway);
      durations.push(performance.now() - startedMs);
    };
    const [, latencies] = await Promise.all([timed(), window()]);
    during.push(latencies);
  }
  const [before, beside] = [without, during].map((windows) => median(windows.map(({ p99 }) => p99)));
  const [first] = durations;
  console.log(`\n${title}, over the admin interface`);
  console.log(
    `  first ${first.toFixed(0)} ms, median ${median(durations).toFixed(0)} ms, from ${Math.min(...durations).toFixed(0)} to ${Math.max(...durations).toFixed(0)} ms`,
  );
  console.log(
    `  traffic, ${PER_SECOND} requests per second: p99 of a window without ${before.toFixed(2)} ms, with ${beside.toFixed(2)} ms (${(beside / before).toFixed(2)} times); by window ${shown(without)} and ${shown(during)}`,
  );
  if (Math.max(first, median(durations)) >= maxMs || beside > MAX_RATIO * before) process.exitCode = 1;
}

async function post(adminPort, path, body) {
  const response = await fetch(`http://127.0.0.1:${adminPort}/debug/${path}`, { method: "POST", body });
  if (response.status !== 200) throw new Error(await response.text());
  return response.json();
}

function apiRoute(backendPort, role) {
  return {
    name: "api",
    backends: [{ host: `127.0.0.1:${backendPort}` }],
    policies: {
      apiKey: { keys: [{ key: "key-of-alice-12345", metadata: { user_id: "alice", role: "admin" } }] },
      authorization: { rules: [`apiKey.role == "${role}"`, 'request.headers["x-a"] == "1"'] },
      rateLimit: { local: [{ requests: 1_000_000, unit: "Seconds", key: "apiKey.user_id" }] },
      requestHeaderModifier: { set: { "x-b": "2" } },
    },
  };
}

function toolsRoute(backendPort) {
  return {
    name: "tools",
    matches: [{ path: { exact: "/mcp" } }],
    backends: [{ mcp: { targets: [{ name: "files", mcp: { url: `http://127.0.0.1:${backendPort}/mcp` } }] } }],
    policies: {
      jwtAuth: { issuer: "https://id.example", audiences: ["bench"], jwks: { file: "./keys.json" } },
      authorization: { rules: [{ require: "has(jwt.sub)" }] },
      mcpAuthorization: {
        rules: [
          'mcp.tool.name == "tool0"',
          '"group7" in jwt.groups && mcp.tool.name.contains("9")',
          'jwt.level > 3 && mcp.tool.name.endsWith("5")',
          { deny: 'jwt.sub == "user999"' },
        ],
      },
    },
  };
}

/** The rules allow everyone `tool0`, and group 7 all tools with a 9. */
function checkReview({ principals, items, results, reasons }) {
  const indexOf = (list, name) => list.findIndex((one) => one.name === name);
  const isAllowed = (user, tool) =>
    reasons[results[indexOf(items, `files/${tool}`)][indexOf(principals, user)]].allowed;
  const answers = [isAllowed("user3", "tool0"), isAllowed("user7", "tool19"), isAllowed("user8", "tool19")];
  if (items.length !== TOOLS || principals.length < PRINCIPALS || answers.join() !== "true,true,false")
    throw new Error(`the review is wrong: ${items.length} items, ${principals.length} principals, ${answers}`);
}

function shown(windows) {
  return windows.map(({ p99 }) => p99.toFixed(1)).join(" ");
}
