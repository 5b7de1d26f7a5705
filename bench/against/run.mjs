/**
 * Compares this build with other builds in one run: `BENCH_AGAINST=/path/to/other/dist/gateway.js npm run bench --
 * against`. Separate several builds with commas; ratios refer to the first. BENCH_NODE selects another Node.js, and
 * BENCH_ROWS selects rows by the first words of their titles, separated by commas. BENCH_ROUNDS is the number of rounds;
 * four times as many halve the interval.
 */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { largeBodies } from "../http/large-bodies.mjs";
import { openSession } from "../mcp/calls.mjs";
import { compare } from "../support/compare.mjs";
import { idleConnections } from "../support/idle-connections.mjs";
import { nodeVersion } from "../support/node-version.mjs";
import { freePort, start } from "../support/process.mjs";
import { isWanted } from "../support/rows.mjs";
import { GROUPS, gatewayConfig, startBackend, workloadsOf } from "../support/workloads.mjs";

const root = join(dirname(fileURLToPath(import.meta.url)), "../..");
const node = process.env.BENCH_NODE ?? process.execPath;
/** What a program costs that reads nothing in a stream. */
const RELAY = join(root, "bench/http/bare-relay.mjs");
const SLICES = 4;
const ROUNDS = Number(process.env.BENCH_ROUNDS ?? 11 * SLICES);
const OTHER = "other build";

/** The settings of ordinary LLM routes. `folder` is a new one for each program. */
const LLM_SETTINGS = [
  {
    title: "CEL and two limits",
    settings: () => ({
      policies: {
        authorization: {
          rules: [`request.path.startsWith("/v1/") && request.headers["user-agent"].startsWith("bench")`],
        },
        rateLimit: {
          local: [
            { requests: 1_000_000_000, unit: "Hours" },
            { tokens: 1_000_000_000_000, unit: "Hours" },
          ],
        },
      },
    }),
  },
  {
    title: "history, budget and access log",
    settings: (folder) => ({
      policies: { budgets: { limits: [{ name: "team", tokens: 1_000_000_000_000, per: "month" }] } },
      config: { history: { folder }, logging: { level: "info" } },
    }),
  },
];

export async function benchAgainst({ quick = false } = {}) {
  const others = (process.env.BENCH_AGAINST ?? "").split(",").filter((path) => path !== "");
  if (others.length === 0) console.log("BENCH_AGAINST names no other build: its rows are missing");
  const builds = [
    ["this build", join(root, "dist/gateway.js")],
    ...others.map((path, i) => [i === 0 ? OTHER : `${OTHER} ${i + 1}`, path]),
  ];
  for (const group of GROUPS) {
    const workloads = workloadsOf(group);
    if (workloads.length > 0) await compareBuilds(group, builds, workloads, quick);
    const chats = workloads.filter(({ title }) => title.startsWith("chat"));
    for (const { title, settings } of chats.length > 0 ? LLM_SETTINGS : [])
      await compareBuilds(
        { ...group, settings },
        builds,
        chats.map((chat) => withSettings(chat, title)),
        quick,
      );
  }
  if (isWanted("memory")) await memory(builds, quick);
}

async function compareBuilds(group, builds, workloads, quick) {
  await withContestants(group, builds, async (contestants) => {
    if (group.of === "mcp")
      for (const contestant of contestants) contestant.sessions = [await openSession(contestant.port)];
    for (const { title, run, perRound, warmUp } of workloads) {
      await compare({
        title: `${title} (Node ${nodeVersion(node)})`,
        contestants,
        warmUp: quick ? Math.ceil(warmUp / 4) : warmUp,
        // Many short rounds: on a machine that is not quiet, some of them are.
        rounds: quick ? 5 * SLICES : ROUNDS,
        perRound: Math.ceil(perRound / SLICES),
        run,
        baseline: contestants.some(({ name }) => name === OTHER) ? OTHER : "this build",
      });
    }
  });
}

function withSettings(chat, title) {
  return { ...chat, title: `${chat.title}, ${title}` };
}

async function withContestants(group, builds, use) {
  const folder = mkdtempSync(join(tmpdir(), "gateway-bench-"));
  const { of, settings } = group;
  const running = [];
  try {
    const backend = await startBackend(group);
    running.push(backend);
    const backendPort = backend.port;
    const contestants = [];
    for (const [name, program] of builds) {
      const port = await freePort();
      const file = join(folder, `${port}.yaml`);
      writeFileSync(file, gatewayConfig(of, port, backendPort, settings?.(join(folder, `history-${port}`))));
      const started = await start(node, [program, "-f", file], port);
      running.push(started);
      contestants.push({ name, ...started });
    }
    if (group.isStepped) {
      const port = await freePort();
      const relay = await start(node, [RELAY, String(port), String(backendPort)], port);
      running.push(relay);
      contestants.push({ name: "bytes alone", ...relay });
    }
    await use(contestants);
  } finally {
    for (const one of running) await one.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Fresh processes: what earlier rows left in memory is not counted. */
async function memory(builds, quick) {
  await withContestants({ of: "http", isStepped: false }, builds, async (contestants) => {
    await idleConnections(contestants, quick ? 2000 : 10_000);
    await largeBodies(contestants, (quick ? 200 : 1024) * 1024 * 1024);
  });
}
