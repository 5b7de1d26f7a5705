/**
 * `npm run bench -- access`: measures how long an access review of 1,000 principals and 500 tools takes and how it
 * affects the latency of traffic. Exits with 1 if the slowest review takes 10 s or more, or if the median p99 during a
 * review is more than 1.5 times the median p99 without one.
 */
import { generateKeyPairSync } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { Agent } from "node:http";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { p99Of, percentile, sendPaced } from "../support/paced-load.mjs";
import { freePort, start } from "../support/process.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const root = join(here, "../..");
const PRINCIPALS = 1_000;
const TOOLS = 500;
const PER_SECOND = 200;
const WINDOW_MS = 3_000;
const MAX_REVIEW_MS = 10_000;
const MAX_RATIO = 1.5;

export async function benchAccess({ quick = false } = {}) {
  const folder = mkdtempSync(join(tmpdir(), "gateway-bench-access-"));
  const running = [];
  const agent = new Agent({ keepAlive: true });
  try {
    const [backendPort, port, adminPort] = [await freePort(), await freePort(), await freePort()];
    running.push(await start(process.execPath, [join(here, "../http/backend.mjs"), String(backendPort)], backendPort));
    const file = join(folder, "config.yaml");
    writeFileSync(file, configOf(port, adminPort, backendPort));
    const { publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
    const key = { ...publicKey.export({ format: "jwk" }), kid: "bench", alg: "ES256" };
    writeFileSync(join(folder, "keys.json"), JSON.stringify({ keys: [key] }));
    running.push(await start(process.execPath, [join(root, "dist/gateway.js"), "-f", file], port));
    const load = (samples, isOver) => sendPaced({ port, agent, perSecond: PER_SECOND, samples, isOver });
    await load([], (elapsedMs) => elapsedMs >= WINDOW_MS);
    const p99s = { without: [], during: [] };
    const durations = [];
    for (let round = 0; round < (quick ? 3 : 8); round++) {
      const quiet = [];
      await load(quiet, (elapsedMs) => elapsedMs >= WINDOW_MS);
      p99s.without.push(p99Of(quiet));
      const samples = [];
      let isOver = false;
      const reviewing = review(adminPort).finally(() => {
        isOver = true;
      });
      const [{ found, wallMs }] = await Promise.all([reviewing, load(samples, () => isOver)]);
      p99s.during.push(p99Of(samples));
      durations.push(wallMs);
      check(found);
    }
    const [before, during] = [percentile(p99s.without, 0.5), percentile(p99s.during, 0.5)];
    console.log(`\naccess review of ${PRINCIPALS} principals and ${TOOLS} tools, over the admin interface`);
    console.log(
      `  first ${durations[0].toFixed(0)} ms, median ${percentile(durations, 0.5).toFixed(0)} ms, from ${Math.min(...durations).toFixed(0)} to ${Math.max(...durations).toFixed(0)} ms`,
    );
    console.log(
      `  traffic, ${PER_SECOND} requests per second: p99 without ${before.toFixed(2)} ms, during a review ${during.toFixed(2)} ms (${(during / before).toFixed(2)} times); by window ${shown(p99s.without)} and ${shown(p99s.during)}`,
    );
    if (Math.max(...durations) >= MAX_REVIEW_MS || during > MAX_RATIO * before) process.exitCode = 1;
  } finally {
    agent.destroy();
    for (const one of running) await one.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

async function review(adminPort) {
  const principals = Array.from({ length: PRINCIPALS }, (_, i) => ({
    name: `user${i}`,
    claims: { sub: `user${i}`, groups: [`group${i % 20}`], level: i % 5 },
  }));
  const items = Array.from({ length: TOOLS }, (_, i) => `tool:files/tool${i}`);
  const startedMs = performance.now();
  const response = await fetch(`http://127.0.0.1:${adminPort}/debug/access`, {
    method: "POST",
    body: JSON.stringify({ principals, items }),
  });
  if (response.status !== 200) throw new Error(await response.text());
  const found = (await response.json()).review;
  return { found, wallMs: performance.now() - startedMs };
}

/** The rules allow everyone `tool0`, and group 7 all tools with a 9. */
function check({ principals, items, results, reasons }) {
  const isAllowed = (user, tool) =>
    reasons[
      results[items.findIndex(({ name }) => name === `files/${tool}`)][
        principals.findIndex(({ name }) => name === user)
      ]
    ].allowed;
  const answers = [isAllowed("user3", "tool0"), isAllowed("user7", "tool19"), isAllowed("user8", "tool19")];
  if (items.length !== TOOLS || principals.length < PRINCIPALS || answers.join() !== "true,true,false")
    throw new Error(`the review is wrong: ${items.length} items, ${principals.length} principals, ${answers}`);
}

function configOf(port, adminPort, backendPort) {
  return `
config: { adminAddr: "127.0.0.1:${adminPort}", logging: { level: "info,access=off" } }
gateways: { default: { port: ${port}, address: 127.0.0.1 } }
routes:
  - name: tools
    matches: [{ path: { exact: /mcp } }]
    backends: [{ mcp: { targets: [{ name: files, mcp: { url: "http://127.0.0.1:${backendPort}/mcp" } }] } }]
    policies:
      jwtAuth: { issuer: "https://id.example", audiences: [bench], jwks: { file: ./keys.json } }
      authorization: { rules: [{ require: "has(jwt.sub)" }] }
      mcpAuthorization:
        rules:
          - mcp.tool.name == "tool0"
          - '"group7" in jwt.groups && mcp.tool.name.contains("9")'
          - jwt.level > 3 && mcp.tool.name.endsWith("5")
          - { deny: 'jwt.sub == "user999"' }
  - name: api
    backends: [{ host: "127.0.0.1:${backendPort}" }]
`;
}

function shown(values) {
  return values.map((value) => value.toFixed(1)).join(" ");
}
