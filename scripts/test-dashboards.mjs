/**
 * `npm run test:dashboards`: tests the alert rules and the dashboard of `deploy/` with a real Prometheus that scrapes a
 * real gateway with demo traffic. Every query must return data, or be in ONLY_AFTER with the reason why it does not.
 * Needs `prometheus` and `promtool` (Debian package `prometheus`) and the built program.
 */
import { spawn, spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parse } from "yaml";
import { gatewayConfig } from "./dashboards/gateway-config.mjs";
import { alertRules, dashboardQueries, filledQuery } from "./dashboards/queries.mjs";
import { root } from "./steps.mjs";

/** Metrics whose queries have no data here, each with what must happen first: `["gateway_x_total", "a full disk"]`. */
const ONLY_AFTER = [];
const SCRAPE_MS = 1_000;
const PATIENCE_MS = 120_000;
const ALERTS = "deploy/prometheus/alerts.yaml";
const DASHBOARD = "deploy/grafana/dashboard.json";

for (const program of ["prometheus", "promtool"]) {
  const found = spawnSync(program, ["--version"], { encoding: "utf8" });
  if (found.error) {
    console.log(`skipped: ${program} is not installed (Debian package prometheus)`);
    process.exit(0);
  }
}
const bundle = join(root, "dist", "gateway.js");
if (!existsSync(bundle)) {
  console.error("dist/gateway.js is missing: run `npm run build` first");
  process.exit(1);
}

const folder = mkdtempSync(join(tmpdir(), "dashboards-"));
const children = [];
const servers = [];
process.on("exit", () => {
  for (const child of children) child.kill("SIGKILL");
  rmSync(folder, { recursive: true, force: true });
});

const checked = spawnSync("promtool", ["check", "rules", ALERTS], { cwd: root, encoding: "utf8" });
process.stdout.write(checked.stdout);
process.stderr.write(checked.stderr);
if (checked.status !== 0) process.exit(1);

const provider = await listen((req, res) => {
  if (req.url.startsWith("/failing/")) return res.writeHead(500).end("{}");
  res.writeHead(200, { "content-type": "application/json" });
  const usage = {
    prompt_tokens: 20,
    completion_tokens: 5,
    total_tokens: 25,
    prompt_tokens_details: { cached_tokens: 8 },
  };
  const message = { role: "assistant", content: "Hello." };
  res.end(JSON.stringify({ id: "1", model: "demo", choices: [{ index: 0, message, finish_reason: "stop" }], usage }));
});
// Accepts traces and metrics, and rejects logs, so that some are exported and some dropped.
const collector = await listen((req, res) => res.writeHead(req.url.endsWith("/logs") ? 400 : 200).end());
const refused = await closedPort();

const config = gatewayConfig({ folder, provider, collector, refused });
const file = join(folder, "config.yaml");
writeFileSync(file, JSON.stringify(config));
const gateway = start(process.execPath, [bundle, "-f", file]);
const url = `http://127.0.0.1:${(await gateway.logged(/listening.*?:(\d+)/))[1]}`;
const admin = (await gateway.logged(/(http:\/\/127\.0\.0\.1:\d+)\/ui/))[1];

const prometheusPort = await closedPort();
const prometheusFile = join(folder, "prometheus.yaml");
const scrapes = {
  global: { scrape_interval: `${SCRAPE_MS}ms`, evaluation_interval: "1s" },
  rule_files: [join(root, ALERTS)],
  scrape_configs: [{ job_name: "gateway", static_configs: [{ targets: [new URL(admin).host] }] }],
};
writeFileSync(prometheusFile, JSON.stringify(scrapes));
start("prometheus", [
  `--config.file=${prometheusFile}`,
  `--storage.tsdb.path=${join(folder, "data")}`,
  `--web.listen-address=127.0.0.1:${prometheusPort}`,
]);

let isOver = false;
const traffic = makeTraffic();
const rules = alertRules(parse(readFileSync(join(root, ALERTS), "utf8")));
const queries = [
  // Whether it fires is not the question here, but whether there is something to compare.
  ...rules.map(({ name, expr }) => ({ title: `alert ${name}`, expr: expr.replace(/\s(?:>|==)\s[\d.]+$/, "") })),
  ...dashboardQueries(JSON.parse(readFileSync(join(root, DASHBOARD), "utf8"))),
];
const deadline = Date.now() + PATIENCE_MS;
let open = queries;
let last = [];
while (open.length > 0 && Date.now() < deadline) {
  last = await Promise.all(open.map(async (query) => ({ query, ...(await ask(query.expr)) })));
  const broken = last.filter(({ error }) => error !== undefined && error !== "not yet");
  if (broken.length > 0) finish(broken.map(({ query, error }) => `${query.title}: ${error}: ${query.expr}`));
  open = last.filter(({ count }) => !count).map(({ query }) => query);
  if (open.every((query) => reasonFor(query) !== undefined)) break;
  await new Promise((resolve) => setTimeout(resolve, SCRAPE_MS));
}
isOver = true;
await traffic;
const ruleState = await (await fetch(`http://127.0.0.1:${prometheusPort}/api/v1/rules`)).json();
const unhealthy = ruleState.data.groups.flatMap((group) => group.rules.filter(({ health }) => health !== "ok"));
const answered = queries.filter((query) => !open.includes(query));
finish([
  ...answered.filter(reasonFor).map(({ title }) => `${title}: has data: remove its entry in ONLY_AFTER`),
  ...unhealthy.map(({ name, health, lastError }) => `rule ${name} is ${health}: ${lastError ?? ""}`),
  ...open.filter((query) => reasonFor(query) === undefined).map(({ title, expr }) => `${title}: no data: ${expr}`),
]);

function finish(problems) {
  for (const query of open)
    if (reasonFor(query)) console.log(`${query.title}: no data; only after ${reasonFor(query)}`);
  for (const problem of problems) console.error(problem);
  console.log(
    `${queries.length - open.length} of ${queries.length} queries returned data, ${problems.length} problems`,
  );
  process.exit(problems.length === 0 ? 0 : 1);
}

function reasonFor({ expr }) {
  return ONLY_AFTER.find(([metric]) => expr.includes(metric))?.[1];
}

async function ask(expr) {
  const query = filledQuery(expr, "30s");
  try {
    const response = await fetch(`http://127.0.0.1:${prometheusPort}/api/v1/query?${new URLSearchParams({ query })}`);
    const answer = await response.json();
    if (answer.status !== "success") return { error: answer.error ?? response.status };
    return { count: answer.data.result.length };
  } catch {
    // It starts.
    return { error: "not yet" };
  }
}

/** A few calls of each kind, again and again: a rate needs two scrapes. */
async function makeTraffic() {
  const headers = { "content-type": "application/json", accept: "application/json, text/event-stream" };
  const call = (path, body, more) =>
    fetch(`${url}${path}`, { method: "POST", headers: { ...headers, ...more }, body: JSON.stringify(body) });
  const initialize = {
    protocolVersion: "2025-11-25",
    capabilities: {},
    clientInfo: { name: "dashboards", version: "1" },
  };
  const opened = await call("/mcp", { jsonrpc: "2.0", id: 1, method: "initialize", params: initialize });
  await opened.text();
  const session = { "mcp-session-id": opened.headers.get("mcp-session-id") ?? "" };
  await (await call("/mcp", { jsonrpc: "2.0", method: "notifications/initialized" }, session)).text();
  const chat = { model: "demo", messages: [{ role: "user", content: "Hello!" }] };
  const tool = (name, args) => ({ jsonrpc: "2.0", id: 2, method: "tools/call", params: { name, arguments: args } });
  while (!isOver) {
    const calls = [
      call("/mcp", { jsonrpc: "2.0", id: 3, method: "tools/list" }, session),
      call("/mcp", tool("echo", { message: "hello" }), session),
      call("/v1/chat/completions", chat, { authorization: "Bearer alice-secret" }),
      call("/v1/chat/completions", chat),
      call("/broken/v1/chat/completions", chat),
      call("/broken/mcp", { jsonrpc: "2.0", id: 1, method: "initialize", params: initialize }),
      fetch(`${url}/failing`),
      fetch(`${url}/limited`),
      fetch(`${url}/global`),
      fetch(`${admin}/reload`, { method: "POST" }),
    ];
    for (const response of await Promise.all(calls)) await response.arrayBuffer();
    writeFileSync(file, JSON.stringify({ ...config, routes: Date.now() % 2 ? config.routes : "wrong" }));
    await new Promise((resolve) => setTimeout(resolve, SCRAPE_MS / 2));
  }
}

function start(command, args) {
  const child = spawn(command, args, { stdio: ["ignore", "pipe", "pipe"] });
  children.push(child);
  let text = "";
  let look = () => undefined;
  for (const stream of [child.stdout, child.stderr])
    stream.on("data", (chunk) => {
      text = (text + chunk).slice(-100_000);
      look();
    });
  child.on("exit", (code) => {
    if (code === null) return;
    console.error(`${command} ended with ${code}:\n${text}`);
    process.exit(1);
  });
  return {
    logged: (pattern) =>
      new Promise((resolve) => {
        look = () => {
          const found = pattern.exec(text);
          if (found) resolve(found);
        };
        look();
      }),
  };
}

function listen(handler) {
  const server = createServer((req, res) => {
    req.resume();
    req.on("end", () => handler(req, res));
  });
  servers.push(server);
  return new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve(server.address().port)));
}

async function closedPort() {
  const port = await listen(() => undefined);
  await new Promise((resolve) => servers.pop().close(resolve));
  return port;
}
