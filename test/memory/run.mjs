/**
 * `npm run test:memory`: a gateway with 512 MiB is attacked in every way of `vectors.mjs`, one at a time and all together,
 * while a well-behaved client at another address sends requests. It exits with 1 if the process ends, if it uses more than
 * its memory, or if too few of the client's requests are answered with 200.
 *
 *   --seconds 120        for each vector; 0: not alone
 *   --all-seconds 600    for all together; 0: not at all
 *   --vectors "a,b"      only these
 *   --limit 512          memory in MiB
 *   --gateway file       the program; default: the bundle
 *   --tolerance 0.001    the part of the client's requests that may fail
 *   --sample-ms 100      how often the process is looked at
 *   --usage file         records the memory, event loop turns and collections of the gateway over time, and its log in
 *                        a second file
 *
 * As root with a writable cgroup v2 the limit is the system's. Elsewhere the process believes in the limit, and what it
 * uses is compared with it.
 */
import { spawn } from "node:child_process";
import { appendFileSync, mkdirSync, mkdtempSync, readFileSync, rmdirSync, rmSync, writeFileSync } from "node:fs";
import { Agent, createServer, get } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { Worker } from "node:worker_threads";
import { VECTORS } from "./vectors.mjs";

const MIB = 1024 * 1024;
const GOOD_REQUESTS_PER_SECOND = 50;
const GOOD_TIMEOUT_MS = 10_000;
const GOOD_ADDRESS = "127.0.0.9";
const HOSTILE_ADDRESS = "127.0.0.66";
const PAGE_BYTES = 4096;

const { values } = parseArgs({
  options: {
    seconds: { type: "string", default: "120" },
    "all-seconds": { type: "string", default: "600" },
    vectors: { type: "string" },
    limit: { type: "string", default: "512" },
    gateway: { type: "string", default: join(process.cwd(), "dist", "gateway.js") },
    tolerance: { type: "string", default: "0.001" },
    "sample-ms": { type: "string", default: "100" },
    usage: { type: "string" },
  },
});
const limitBytes = Number(values.limit) * MIB;
const chosen = values.vectors === undefined ? Object.keys(VECTORS) : values.vectors.split(",");
for (const name of chosen) if (VECTORS[name] === undefined) throw new Error(`unknown vector "${name}"`);

const folder = mkdtempSync(join(tmpdir(), "gateway-memory-"));
// In threads of their own: neither the attack nor its servers may slow down the client that is measured, and nothing but
// its own requests reaches the server on this thread.
const upstreams = new Worker(new URL("./upstreams.mjs", import.meta.url));
const ports = await new Promise((resolve) => upstreams.once("message", resolve));
const fast = createServer((req, res) => {
  req.resume();
  res.end("ok");
});
await new Promise((resolve) => fast.listen(0, "127.0.0.1", resolve));
const cgroup = openCgroup();
let hasFailed = false;
let running;
// The gateway must not outlive a run that is interrupted.
for (const signal of ["SIGINT", "SIGTERM"])
  process.on(signal, () => {
    running?.kill("SIGKILL");
    process.exit(1);
  });
try {
  console.log(cgroup ? "limit: cgroup" : "limit: as the process believes, measured from outside");
  if (Number(values.seconds) > 0) for (const name of chosen) report(name, await attack([name], Number(values.seconds)));
  if (Number(values["all-seconds"]) > 0) report("all together", await attack(chosen, Number(values["all-seconds"])));
} finally {
  await upstreams.terminate();
  fast.close();
  rmSync(folder, { recursive: true, force: true });
  if (cgroup) rmdirSync(cgroup);
}
process.exit(hasFailed ? 1 : 0);

function report(name, { peakBytes, sent, answered, slowestMs, ended, others }) {
  const share = sent === 0 ? 0 : answered / sent;
  const isFine = ended === undefined && peakBytes < limitBytes && share >= 1 - Number(values.tolerance);
  if (!isFine) hasFailed = true;
  const rss = `${Math.round(peakBytes / MIB)} MiB`;
  const good = `${answered} of ${sent} (${(100 * share).toFixed(2)}%), slowest ${Math.round(slowestMs)} ms`;
  const failures = Object.keys(others).length === 0 ? "" : ` ${JSON.stringify(others)}`;
  console.log(
    `${isFine ? "ok  " : "FAIL"} ${name}: peak ${rss}, client ${good}${failures}${ended ? `, ended: ${ended}` : ""}`,
  );
}

async function attack(names, seconds) {
  const gateway = await startGateway();
  const client = startClient(gateway.port);
  const attacker = new Worker(new URL("./vectors.mjs", import.meta.url), {
    workerData: { names, at: { port: gateway.port, from: HOSTILE_ADDRESS }, turn: client.turn },
  });
  let peakBytes = 0;
  const sampler = setInterval(() => {
    peakBytes = Math.max(peakBytes, rssOf(gateway.child.pid));
  }, Number(values["sample-ms"]));
  await Promise.race([new Promise((resolve) => setTimeout(resolve, seconds * 1000)), gateway.exited]);
  const result = await client.stop();
  const ended = gateway.ended();
  await attacker.terminate();
  clearInterval(sampler);
  gateway.child.kill("SIGKILL");
  await gateway.exited;
  return { peakBytes, ended, ...result };
}

async function startGateway() {
  const { deaf, endless, llm, zipped, tools, mcp, asking, api, echo, plain } = ports;
  const route = (path, backend) => `  - { matches: [{ path: { pathPrefix: ${path} } }], backends: [${backend}] }`;
  const host = (port) => `{ host: "127.0.0.1:${port}" }`;
  const openapi = (file) =>
    `{ mcp: { targets: [{ name: t, openapi: { url: "http://127.0.0.1:${api}/${file}.json", server: "http://127.0.0.1:${api}" } }], allowedHosts: [a] } }`;
  const ai = (more, port = llm) =>
    `{ ai: { provider: { openAI: {} }, auth: { key: k }, hostOverride: "127.0.0.1:${port}"${more} } }`;
  const remote = (port) =>
    `{ mcp: { targets: [{ name: t, mcp: { url: "http://127.0.0.1:${port}/mcp" } }], allowedHosts: [a] } }`;
  const file = join(folder, "config.yaml");
  writeFileSync(
    file,
    [
      'config: { adminAddr: off, logging: { level: "warn,pipeline=info" } }',
      "gateways: { default: { port: 0, address: 127.0.0.1 } }",
      "routes:",
      route("/deaf", host(deaf)),
      route("/endless", host(endless)),
      route("/echo", host(echo)),
      route("/plain", host(plain)),
      route("/llm", ai("")),
      route("/cached", ai(", cache: { ttl: 1h, scope: shared }")),
      route("/zipped", ai("", zipped)),
      route("/tools", ai("", tools)),
      route("/mcp", remote(mcp)),
      route("/asking", remote(asking)),
      route("/api", openapi("small")),
      route("/described", openapi("large")),
      route("/broken", openapi("broken")),
      route("/", host(fast.address().port)),
    ].join("\n"),
  );
  const container = `data:text/javascript,${encodeURIComponent(`process.constrainedMemory = () => ${limitBytes};`)}`;
  // What Node itself chooses in a container of this size.
  const flags = cgroup ? [] : [`--import=${container}`, `--max-old-space-size=${Math.floor(limitBytes / MIB / 2)}`];
  if (values.usage !== undefined) flags.push(`--import=${new URL("./usage.mjs", import.meta.url)}`);
  const child = spawn(process.execPath, [...flags, values.gateway, "-f", file], {
    stdio: ["ignore", "pipe", "pipe"],
    env: { ...process.env, ...(values.usage === undefined ? {} : { MEMORY_USAGE_FILE: values.usage }) },
  });
  running = child;
  if (cgroup) writeFileSync(join(cgroup, "cgroup.procs"), String(child.pid));
  let ended;
  let output = "";
  const exited = new Promise((resolve) => {
    child.on("exit", (code, signal) => {
      ended = `${signal ?? `code ${code}`}: ${output.slice(-300).trim()}`;
      resolve();
    });
  });
  const port = await new Promise((resolve) => {
    for (const stream of [child.stdout, child.stderr])
      stream.on("data", (chunk) => {
        output = (output + chunk).slice(-20_000);
        const found = /listening gateway=default url=\S+:(\d+)/.exec(output);
        if (found) resolve(Number(found[1]));
        if (values.usage !== undefined) appendFileSync(`${values.usage}.log`, chunk);
      });
    void exited.then(() => resolve(undefined));
  });
  if (port === undefined) throw new Error(`the gateway did not start: ${output}`);
  return { child, exited, ended: () => ended, port };
}

/** Fifty requests a second over connections of its own. */
function startClient(port) {
  const agent = new Agent({ keepAlive: true, maxSockets: 100, localAddress: GOOD_ADDRESS });
  const others = {};
  let sent = 0;
  let answered = 0;
  let slowestMs = 0;
  let running = 0;
  /** 1 while a request is running. The attacker shares the processor with the gateway and waits for it. */
  const turn = new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT));
  const count = (outcome) => {
    running -= 1;
    setTurn();
    if (outcome === 200) answered += 1;
    else others[outcome] = (others[outcome] ?? 0) + 1;
  };
  const setTurn = () => {
    Atomics.store(turn, 0, running > 0 ? 1 : 0);
    if (running === 0) Atomics.notify(turn, 0);
  };
  const timer = setInterval(() => {
    sent += 1;
    running += 1;
    setTurn();
    const startMs = performance.now();
    const request = get({ port, host: "127.0.0.1", path: "/fast", agent, timeout: GOOD_TIMEOUT_MS }, (response) => {
      response.resume();
      response.on("end", () => {
        slowestMs = Math.max(slowestMs, performance.now() - startMs);
        count(response.statusCode);
      });
    });
    request.on("timeout", () => request.destroy(new Error("timeout")));
    request.on("error", (error) => count(error.code ?? error.message));
  }, 1000 / GOOD_REQUESTS_PER_SECOND);
  return {
    turn,
    async stop() {
      clearInterval(timer);
      const untilMs = performance.now() + GOOD_TIMEOUT_MS;
      while (running > 0 && performance.now() < untilMs) await new Promise((resolve) => setTimeout(resolve, 50));
      agent.destroy();
      return { sent, answered, slowestMs, others };
    },
  };
}

function rssOf(pid) {
  try {
    return Number(readFileSync(`/proc/${pid}/statm`, "utf8").split(" ")[1]) * PAGE_BYTES;
  } catch {
    return 0;
  }
}

/** A cgroup with the limit; undefined where none can be made. */
function openCgroup() {
  const path = `/sys/fs/cgroup/gateway-memory-${process.pid}`;
  try {
    mkdirSync(path);
  } catch {
    return undefined;
  }
  try {
    // Elsewhere than in a cgroup, a new folder is empty.
    readFileSync(join(path, "memory.current"));
    writeFileSync(join(path, "memory.max"), String(limitBytes));
    writeFileSync(join(path, "memory.swap.max"), "0");
    return path;
  } catch {
    rmdirSync(path);
    return undefined;
  }
}
