/**
 * One simulated run: a gateway, its backends and clients, faults, a quiet phase, and a shutdown. Checks the invariants
 * on the way and returns the first that was broken, with a digest of everything that happened.
 */
import crypto from "node:crypto";
import type { App } from "../../src/app/app-options.ts";
import { Files } from "./files.ts";
import { HttpBackend } from "./http-backend.ts";
import { HttpClient } from "./http-client.ts";
import { isolate, realWork, seal } from "./isolate.ts";
import { LlmClient } from "./llm-client.ts";
import { LlmProvider } from "./llm-provider.ts";
import { McpClient } from "./mcp-client.ts";
import { McpServer } from "./mcp-server.ts";
import { type Faults, Network, NO_FAULTS } from "./network.ts";
import { sleep } from "./peer.ts";
import { Scheduler } from "./scheduler.ts";
import { Seeded } from "./seeded.ts";

export interface Options {
  readonly seed: number;
  readonly hours: number;
  /** The clients from this number on, up to `clients`. */
  readonly firstClient: number;
  readonly clients: number;
  /** Receives every event as a line. */
  readonly timeline: ((line: string) => void) | undefined;
}

export interface Result {
  readonly seed: number;
  readonly digest: string;
  /** The first broken invariant, with the simulated time. */
  readonly broken: string | undefined;
  readonly simulatedMs: number;
  readonly steps: number;
  readonly requests: number;
  readonly statuses: Readonly<Record<string, number>>;
}

const GATEWAY = "10.0.0.1";
const PORT = 8080;
/** The servers of the gateway by name. */
const ADDRESSES: Readonly<Record<string, string>> = {
  "one.test": "10.0.1.1",
  "two.test": "10.0.1.2",
  "tools.test": "10.0.2.1",
  "llm-one.test": "10.0.3.1",
  "llm-two.test": "10.0.3.2",
};
const CONFIG_FILE = "/gateway/config.yaml";
/** Average time between two changes of the configuration. */
const RELOAD_MS = 20 * 60_000;
const LLM_BUDGET = 30_000;
const DRAIN_MS = 10_000;
/** The drain, the limit for closing resources, and the last connections. */
const SHUTDOWN_LIMIT_MS = DRAIN_MS + 8_000 + 5_000;
/** All time limits of clients, backends, and the gateway have passed after this time. */
const QUIET_MS = 30 * 60_000;
/** Average time between two visits of a client. */
const PAUSE_MS = 120_000;

/** Each version of the configuration changes the routes of all kinds of backends. */
function configOf(version: number): string {
  return `
config:
  drainTimeout: ${DRAIN_MS / 1000}s
  logging: { format: json }
gateways: { default: { port: ${PORT} } }
routes:
  - name: mcp
    matches: [{ path: { pathPrefix: /mcp } }]
    policies: { responseHeaderModifier: { set: { x-version: "${version}" } } }
    backends:
      - mcp:
          sessionIdleTtl: 5m
          targets: [{ name: tools, mcp: { url: "http://tools.test/mcp" } }]
  - name: llm
    matches: [{ path: { pathPrefix: /v1 } }]
    policies:
      responseHeaderModifier: { set: { x-version: "${version}" } }
      budgets:
        limits: [{ name: user, tokens: ${LLM_BUDGET}, per: day, key: 'request.headers["x-user"]' }]
    backends:
      - ai:
          name: llm
          groups:
            - providers: [{ provider: { openAICompatible: { baseUrl: "http://llm-one.test/v1" } }, timeouts: { firstByte: 20s, idle: 30s } }]
            - providers: [{ provider: { openAICompatible: { baseUrl: "http://llm-two.test/v1" } }, timeouts: { firstByte: 20s, idle: 30s } }]
  - name: http
    policies:
      timeout: { requestTimeout: 30s }
      responseHeaderModifier: { set: { x-version: "${version}" } }
    backends:
      - { host: "one.test:80", weight: ${1 + (version % 3)} }
      - { host: "two.test:80" }
`;
}

export async function simulate(options: Options, runLater: (run: () => void) => void): Promise<Result> {
  const { seed, hours, firstClient, clients, timeline } = options;
  const random = new Seeded(seed, "scenario");
  const scheduler = new Scheduler(seed);
  const network = new Network(scheduler, random.part("network"));
  const isCalm = random.chance(0.2);
  const faults = isCalm ? NO_FAULTS : someFaults(random.part("faults"));
  const names = random.part("names");
  isolate({
    scheduler,
    network,
    random: random.part("gateway"),
    address: GATEWAY,
    faultsTo: () => faults,
    resolve: (name) => ({
      delayMs: names.exponential(2),
      addresses: name in ADDRESSES ? [ADDRESSES[name] as string] : [],
    }),
  });
  const [{ startApp }, { watchAccounts }, { systemClock }] = await Promise.all([
    import("../../src/app/app.ts"),
    import("./accounts.ts"),
    import("../../src/base/clock.ts"),
  ]);
  const accounts = watchAccounts();
  const digest = crypto.createHash("sha256");
  const files = new Files();
  files.write(CONFIG_FILE, configOf(0));
  await seal(files);

  let broken: string | undefined;
  const note = (line: string): void => {
    if (broken !== undefined) return;
    const dated = `${scheduler.nowMs.toFixed(3)} ${line}`;
    digest.update(`${dated}\n`);
    timeline?.(dated);
  };
  const breaks = (invariant: string, detail: string): void => {
    note(`BROKEN ${invariant}: ${detail}`);
    broken ??= `${invariant}: ${detail} (at ${(scheduler.nowMs / 1000).toFixed(3)} s)`;
  };
  network.onNote = ({ label }, event, bytes) => note(`${label} ${event}${bytes === undefined ? "" : ` ${bytes}`}`);
  scheduler.onUncaught = (error) => breaks("no exception is uncaught", stackOf(error));
  process.on("unhandledRejection", (error) => breaks("no rejection is unhandled", stackOf(error)));

  const requests = new Requests(breaks);
  let isOver = false;
  const report = {
    scheduler,
    network,
    faults,
    isCalm,
    gateway: { address: GATEWAY, port: PORT },
    pauseMs: PAUSE_MS,
    isOver: () => isOver,
    sent: requests.sent,
    answered: requests.answered,
    arrived: requests.arrived,
    broken: breaks,
  };
  const output = {
    write(line: string) {
      if (line.includes('"started"')) return;
      note(`log ${line.trimEnd()}`);
      if (line.includes('"unexpected error"')) breaks("no exception is uncaught", line.trimEnd());
      requests.logged(line);
    },
    dropped: () => 0,
    flushSync: () => undefined,
  };

  function clientOf(index: number): { run(): Promise<void> } {
    const own = random.part(`client ${index}`);
    if (index % 4 === 1) return new McpClient(index, own, report);
    if (index % 4 === 3) return new LlmClient(index, own, report, LLM_BUDGET);
    return new HttpClient(index, own, report);
  }

  /** Some versions are invalid, and the gateway must keep the last valid one. */
  async function reloadNowAndThen(own: Seeded): Promise<void> {
    for (let version = 1; !isOver; version++) {
      await sleep(scheduler, own.exponential(RELOAD_MS));
      if (!isOver) files.write(CONFIG_FILE, own.chance(0.2) ? "routes: 7" : configOf(version));
    }
  }

  async function run(): Promise<void> {
    const [one = "", two = "", tools = "", llmOne = "", llmTwo = ""] = Object.values(ADDRESSES);
    const backends = [
      new HttpBackend(one, 80, random.part(one), report),
      new HttpBackend(two, 80, random.part(two), report),
      new McpServer(tools, 80, random.part(tools), report),
      new LlmProvider("one", llmOne, random.part(llmOne), report),
      new LlmProvider("two", llmTwo, random.part(llmTwo), report),
    ];
    const app: App = await startApp({
      sources: [CONFIG_FILE],
      environment: {},
      clock: systemClock,
      output,
      version: "0.0.0-simulation",
      readStdin: () => "",
      heapSize: () => ({ usedBytes: 1, limitBytes: 100 }),
      memoryLimits: MEMORY,
    });
    const running = Array.from({ length: clients - firstClient }, (_, i) => clientOf(firstClient + i).run());
    void reloadNowAndThen(random.part("reloads"));
    await sleep(scheduler, hours * 3_600_000);
    isOver = true;
    const stopsBusy = random.chance(0.5) && !isCalm;
    if (!stopsBusy) {
      await Promise.all(running);
      await sleep(scheduler, QUIET_MS);
      for (const account of accounts()) breaks("memory accounts are empty when nothing happens", account);
    }
    const stoppedMs = scheduler.nowMs;
    const late = scheduler.after(SHUTDOWN_LIMIT_MS, () => breaks("the shutdown ends in time", "it has not"));
    await app.stop();
    scheduler.cancel(late);
    note(`stopped after ${(scheduler.nowMs - stoppedMs).toFixed(3)}`);
    await Promise.all(running);
    for (const backend of backends) backend.close();
    await sleep(scheduler, QUIET_MS);
    for (const account of accounts()) breaks("memory accounts are empty after the shutdown", account);
    for (const { label } of network.openSides(GATEWAY)) breaks("the shutdown closes all connections", label);
    requests.checkEnd();
    if (scheduler.pending > 0) breaks("the shutdown stops all timers", `${scheduler.pending} tasks wait`);
    for (const work of realWork()) breaks("nothing happens outside of the simulation", work);
  }

  let isDone = false;
  return new Promise<Result>((resolve) => {
    runLater(() => {
      run()
        .catch((error: unknown) => breaks("the simulation runs", stackOf(error)))
        .finally(() => {
          isDone = true;
        });
      if (!scheduler.runUntil(() => isDone || broken !== undefined))
        breaks("the simulation ends", "nothing is left to do");
      resolve({
        seed,
        digest: digest.digest("hex").slice(0, 16),
        broken,
        simulatedMs: scheduler.nowMs,
        steps: scheduler.steps,
        requests: requests.count,
        statuses: requests.statuses(),
      });
    });
  });
}

const MIB = 1024 * 1024;
/** The limits do not depend on the machine. */
const MEMORY = {
  bodyBytes: 64 * MIB,
  sessionBytes: 32 * MIB,
  streamBytes: 32 * MIB,
  messageBytes: 32 * MIB,
  storeBytes: 32 * MIB,
  cacheBytes: 16 * MIB,
};

function someFaults(random: Seeded): Faults {
  const some = (most: number): number => (random.chance(0.5) ? random.between(0, most) : 0);
  return {
    slow: some(0.2),
    slowMs: random.size(10, 5_000),
    split: some(0.5),
    reset: some(0.05),
    blackhole: some(0.02),
    refuse: some(0.05),
    ignore: some(0.01),
    smallWindow: some(0.3),
  };
}

function stackOf(error: unknown): string {
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}

/** Requests that the gateway must not repeat. */
const ONCE = new Set(["POST", "MCP"]);

/** Follows every request from its client to its record in the log. */
class Requests {
  readonly #broken: (invariant: string, detail: string) => void;
  readonly #open = new Map<string, { method: string; status: number | undefined; arrivals: number; records: number }>();
  readonly #statuses = new Map<number, number>();
  count = 0;

  constructor(broken: (invariant: string, detail: string) => void) {
    this.#broken = broken;
  }

  readonly sent = (nonce: string, method: string): void => {
    this.count += 1;
    this.#open.set(nonce, { method, status: undefined, arrivals: 0, records: 0 });
  };

  readonly answered = (nonce: string, status: number): void => {
    const request = this.#open.get(nonce);
    if (request) request.status = status;
    this.#statuses.set(status, (this.#statuses.get(status) ?? 0) + 1);
  };

  readonly arrived = (nonce: string): void => {
    const request = this.#open.get(nonce);
    if (request === undefined) {
      this.#broken("backends receive only what clients sent", nonce);
      return;
    }
    request.arrivals += 1;
    if (ONCE.has(request.method) && request.arrivals > 1)
      this.#broken("a request that is not idempotent is sent once", nonce);
  };

  logged(line: string): void {
    const nonce = /"path":"\/(c\d+-\d+)\//.exec(line)?.[1];
    const request = nonce === undefined ? undefined : this.#open.get(nonce);
    if (request === undefined) return;
    request.records += 1;
    if (request.records > 1) this.#broken("every request ends exactly once", `${nonce} has ${request.records} records`);
  }

  checkEnd(): void {
    // The access log of MCP and LLM requests does not name the exchange.
    for (const [nonce, { method, status, arrivals, records }] of this.#open)
      if (method !== "MCP" && method !== "LLM" && (status !== undefined || arrivals > 0) && records !== 1)
        this.#broken("every request ends exactly once", `${nonce} has ${records} records, status ${status}`);
  }

  statuses(): Record<string, number> {
    return Object.fromEntries([...this.#statuses].sort(([a], [b]) => a - b));
  }
}
