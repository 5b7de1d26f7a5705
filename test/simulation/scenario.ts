/**
 * One simulated run: gateways, their backends and clients, faults, a quiet phase, and a shutdown. Checks the invariants
 * on the way and returns the first that was broken, with a digest of everything that happened.
 */
import { Channels, NOT_SLOW, type SlowMessages } from "./channel.ts";
import { Children } from "./children.ts";
import { Cluster, CONTROLLERS, DATA_PLANES } from "./cluster.ts";
import {
  ADDRESSES,
  addressOf,
  CONTROLLER_NAME,
  HISTORY_FOLDER,
  LLM_BUDGET,
  PORT,
  POSTGRES_PORT,
  pidOf,
  REDIS_PORT,
  STDIO_SERVER,
  type StoreKind,
  TOKEN_FILE,
} from "./config.ts";
import { Files } from "./files.ts";
import { FloodClient } from "./flood-client.ts";
import { Gateways, loadCode, loadController } from "./gateways.ts";
import { HistoryCheck } from "./history-check.ts";
import { HostileClient } from "./hostile-client.ts";
import { HttpBackend } from "./http-backend.ts";
import { HttpClient } from "./http-client.ts";
import { IdentityProvider } from "./identity-provider.ts";
import { isolate, realWork, seal } from "./isolate.ts";
import { LimitClient } from "./limit-client.ts";
import { LlmClient } from "./llm-client.ts";
import { LlmProvider } from "./llm-provider.ts";
import { McpClient } from "./mcp-client.ts";
import { McpServer } from "./mcp-server.ts";
import { ModernMcpServer } from "./modern-mcp-server.ts";
import { type Faults, Network, NO_FAULTS } from "./network.ts";
import { Operator } from "./operator.ts";
import { sleep } from "./peer.ts";
import { Postgres } from "./postgres.ts";
import { Redis } from "./redis.ts";
import { Requests } from "./requests.ts";
import { Scheduler } from "./scheduler.ts";
import { Seeded } from "./seeded.ts";
import { StdioServer } from "./stdio-server.ts";
import { loadThreadCode, Threads } from "./threads.ts";
import { Timeline } from "./timeline.ts";
import { TokenClient } from "./token-client.ts";

export interface Options {
  readonly seed: number;
  readonly hours: number;
  /** The clients from this number on, up to `clients`. */
  readonly firstClient: number;
  readonly clients: number;
  /** Called now and then. */
  progress(): void;
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

const MOST_KILLS = 3;
/** All time limits of clients, backends, and the gateway have passed after this time. */
const QUIET_MS = 30 * 60_000;
/** The run ends within this time after its last fault. The longest limit of the gateway is an hour, for one call. */
const ENDING_MS = 3 * 3_600_000;
/** The durations of an iteration of the gateway's event loop, which depend on its load. */
const ITERATIONS_MS = [0.001, 1, 10];
const UNDISTURBED = [ADDRESSES["redis.test"], ADDRESSES["idp.test"], ADDRESSES["postgres.test"]];
const HOSTILE_ADDRESS = "10.9.0.1";
const FLOOD_ADDRESS = "10.9.0.2";
const PROGRESS_STEPS = 20_000;
/** Average time between two visits of a client. In shorter runs, a client comes twice on average. */
const PAUSE_MS = 800_000;

export async function simulate(options: Options, runLater: (run: () => void) => void): Promise<Result> {
  const { seed, hours, firstClient, clients } = options;
  const endMs = hours * 3_600_000;
  const random = new Seeded(seed, "scenario");
  const scheduler = new Scheduler(seed);
  const timeline = new Timeline(scheduler, options.timeline);
  const { note, breaks } = timeline;
  const network = new Network(scheduler, random.part("network"), random.pick(ITERATIONS_MS));
  const isCalm = random.chance(0.2);
  const store: StoreKind = random.pick(["memory", "folder", "redis"]);
  const replicas = store === "redis" ? 2 : 1;
  const faults = isCalm ? NO_FAULTS : someFaults(random.part("faults"));
  const hasCluster = random.part("has cluster").chance(0.3);
  const hasHistory = random.part("has history").chance(0.3);
  const workers = random.part("serving threads").chance(0.2) ? 2 : 1;
  const names = random.part("names");
  const replicaNames = random.part("replica names");
  const addressesOf = (name: string): string[] => {
    // A Service selects a replica for each connection.
    if (name === CONTROLLER_NAME) return [addressOf(`controller ${replicaNames.int(CONTROLLERS)}`)];
    return name in ADDRESSES ? [ADDRESSES[name as keyof typeof ADDRESSES]] : [];
  };
  isolate({
    scheduler,
    network,
    random: random.part("gateway"),
    addressOf,
    pidOf,
    // These servers fail only when the scenario says so, to know what may be lost.
    faultsTo: (address) => (UNDISTURBED.includes(address) ? NO_FAULTS : faults),
    resolve: (name) => ({ delayMs: names.exponential(2), addresses: addressesOf(name) }),
  });
  const kills = store === "memory" ? 0 : Math.min(MOST_KILLS, Math.ceil(hours));
  const gatewayCopies = replicas + 1 + kills;
  const code = await loadCode(gatewayCopies + (hasCluster ? DATA_PLANES + 1 : 0));
  const controllerCode = await loadController();
  const files = new Files(network, random.part("files"));
  files.write(TOKEN_FILE, "token");
  const children = new Children(network, {
    [STDIO_SERVER]: (child) => void new StdioServer(child, random.part(child.stdin.label), report).run(),
  });
  const channels = new Channels(
    scheduler,
    random.part("channels"),
    workers > 1 && !isCalm ? slowMessages(random.part("slow messages")) : NOT_SLOW,
  );
  const threads = new Threads(network, channels, random.part("threads"), await loadThreadCode());
  await seal(files, children, threads);

  network.onNote = ({ label }, event, bytes) => note(`${label} ${event}${bytes === undefined ? "" : ` ${bytes}`}`);
  scheduler.onUncaught = (error) => breaks("no exception is uncaught", stackOf(error));
  process.on("unhandledRejection", (error) => breaks("no rejection is unhandled", stackOf(error)));

  const requests = new Requests(breaks);
  const database = hasHistory
    ? new Postgres(ADDRESSES["postgres.test"], POSTGRES_PORT, network, random.part("postgres"), breaks)
    : undefined;
  const history = database && new HistoryCheck(database, breaks);
  const logged = (line: string): void => {
    if (line.includes('"started"')) return;
    note(`log ${line.trimEnd()}`);
    if (line.includes('"unexpected error"')) breaks("no exception is uncaught", line);
    requests.logged(line);
  };
  const output = {
    // A thread sends several lines at once.
    write(lines: string) {
      for (const line of lines.trimEnd().split("\n")) {
        logged(line);
        history?.logged(line, scheduler.nowMs);
      }
    },
    dropped: () => 0,
    flushSync: () => undefined,
  };
  const gateways = new Gateways(random.part("gateways"), code.slice(0, gatewayCopies), {
    scheduler,
    network,
    files,
    children,
    threads,
    output,
    note,
    isValid: () => operator.isValid,
    killed() {
      requests.killed();
      history?.killed(scheduler.nowMs);
    },
    broken: breaks,
  });
  const operator = new Operator({
    scheduler,
    gateways,
    replicas,
    store,
    workers,
    files,
    children,
    threads,
    requests,
    history,
    endMs,
    note,
    broken: breaks,
  });
  let isOver = false;
  files.isRunning = gateways.isRunning;
  const report = {
    scheduler,
    network,
    faults,
    isCalm,
    gateways: Array.from({ length: replicas }, (_, i) => ({ address: addressOf(`gateway ${i}`), port: PORT })),
    pauseMs: Math.min(PAUSE_MS, endMs / 2),
    isOver: () => isOver,
    mustSucceed: (sentMs = scheduler.nowMs, thread?: string) =>
      isCalm && !gateways.mayHaveCut(sentMs) && !operator.failedBetween(sentMs, scheduler.nowMs, thread),
    upgradedSince: gateways.upgradedSince,
    failedBetween: (fromMs: number, toMs: number, thread?: string) => operator.failedBetween(fromMs, toMs, thread),
    sent: requests.sent,
    answered: requests.answered,
    arrived: requests.arrived,
    spent: (address: string, tokens: number) => history?.spent(address, tokens),
    broken: breaks,
  };

  function clientOf(index: number, provider: IdentityProvider): { run(): Promise<void> } {
    const own = random.part(`client ${index}`);
    if (index % 8 === 4) return new TokenClient(index, own, report, provider);
    if (index % 4 === 1) return new McpClient(index, own, report);
    if (index % 4 === 3) return new LlmClient(index, own, report, LLM_BUDGET);
    return new HttpClient(index, own, report);
  }

  /** The actors that run. */
  const acting = new Set<string>();
  async function untilEnd(actor: string, ended: Promise<void>): Promise<void> {
    acting.add(actor);
    await ended;
    acting.delete(actor);
  }

  async function run(): Promise<void> {
    const address = (name: keyof typeof ADDRESSES): string => ADDRESSES[name];
    const partOf = (name: keyof typeof ADDRESSES): Seeded => random.part(address(name));
    const provider = new IdentityProvider(address("idp.test"), partOf("idp.test"), report);
    const backends = [
      provider,
      new HttpBackend(address("one.test"), 80, partOf("one.test"), report),
      new HttpBackend(address("two.test"), 80, partOf("two.test"), report),
      new McpServer(address("tools.test"), 80, partOf("tools.test"), report),
      new ModernMcpServer(address("modern-tools.test"), 80, partOf("modern-tools.test"), report),
      new LlmProvider("one", address("llm-one.test"), partOf("llm-one.test"), report),
      new LlmProvider("two", address("llm-two.test"), partOf("llm-two.test"), report),
    ];
    const scripts = store === "redis" ? code[0]?.redisScripts : undefined;
    const redis = scripts && new Redis(address("redis.test"), REDIS_PORT, network, scripts);
    for (let i = 0; i < replicas; i++) await gateways.start(i);
    const cluster = hasCluster
      ? new Cluster(random.part("cluster"), controllerCode, code.slice(gatewayCopies), {
          ...report,
          note,
          planeOutput: { ...output, write: logged },
          planeKilled: () => requests.killed("k"),
        })
      : undefined;
    const following = cluster?.run(endMs);
    const running = Array.from({ length: clients - firstClient }, (_, i) =>
      untilEnd(`client ${firstClient + i}`, clientOf(firstClient + i, provider).run()),
    );
    const hostile = new HostileClient(HOSTILE_ADDRESS, random.part("hostile client"), report);
    running.push(untilEnd("the hostile client", hostile.run()));
    const flood = new FloodClient(FLOOD_ADDRESS, random.part("flood client"), report);
    running.push(untilEnd("the flood client", flood.run()));
    running.push(untilEnd("the limit client", new LimitClient(random.part("limit client"), report).run()));
    void provider.run(() => isOver);
    const operating = [operator.reload(random.part("reloads")), operator.operate(random.part("operations"), redis)];
    if (workers > 1) operating.push(operator.disturbThreads(random.part("thread failures")));
    if (database) operating.push(operator.disturbDatabase(random.part("database failures"), database));
    await sleep(scheduler, endMs - scheduler.nowMs);
    isOver = true;
    await Promise.all(operating);
    const stopsBusy = random.chance(0.5) && !isCalm;
    if (!stopsBusy) {
      await Promise.all(running);
      await sleep(scheduler, QUIET_MS);
      for (const account of gateways.accounts()) breaks("memory accounts are empty when nothing happens", account);
    }
    await gateways.stop();
    await Promise.all([...running, following?.then(() => cluster?.stop())]);
    for (const backend of backends) backend.close();
    requests.checkEnd();
    history?.checkEnd([...files.contents(HISTORY_FOLDER).values()].join("\n"), isCalm, requests.statusOf);
    database?.stop();
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
      const latestEndMs = endMs + ENDING_MS;
      const isEnded = (): boolean => {
        if (scheduler.steps % PROGRESS_STEPS === 0) options.progress();
        if (!isDone && scheduler.nowMs > latestEndMs) breaks("the simulation ends", [...acting].join(", "));
        return isDone || timeline.broken !== undefined;
      };
      if (!scheduler.runUntil(isEnded)) breaks("the simulation ends", "nothing is left to do");
      resolve({
        seed,
        digest: timeline.end(),
        broken: timeline.broken,
        simulatedMs: scheduler.nowMs,
        steps: scheduler.steps,
        requests: requests.count,
        statuses: requests.statuses(),
      });
    });
  });
}

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

function slowMessages(random: Seeded): SlowMessages {
  return random.chance(0.5) ? { share: random.between(0, 0.2), meanMs: random.size(1, 1_000) } : NOT_SLOW;
}

function stackOf(error: unknown): string {
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}
