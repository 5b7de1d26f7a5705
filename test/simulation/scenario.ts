/**
 * One simulated run: gateways, their backends and clients, faults, a quiet phase, and a shutdown. Checks the invariants
 * on the way and returns the first that was broken, with a digest of everything that happened.
 */
import crypto from "node:crypto";
import { Channels, NOT_SLOW, type SlowMessages } from "./channel.ts";
import { Children } from "./children.ts";
import { Cluster, CONTROLLERS, DATA_PLANES } from "./cluster.ts";
import {
  ADDRESSES,
  addressOf,
  CONFIG_FILE,
  CONTROLLER_NAME,
  configOf,
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
import { sleep } from "./peer.ts";
import { Postgres } from "./postgres.ts";
import { Redis } from "./redis.ts";
import { Requests } from "./requests.ts";
import { MOST_CLOCK_ERROR_MS, OUTSIDE, Scheduler } from "./scheduler.ts";
import { Seeded } from "./seeded.ts";
import { StdioServer } from "./stdio-server.ts";
import { HISTORY_THREAD, loadThreadCode, SERVING_THREAD, Threads } from "./threads.ts";
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

/** The time in which a gateway, its store, or only a thread did not work. */
interface Failure {
  readonly fromMs: number;
  toMs: number;
  readonly thread: string | undefined;
}

/** Average time between two changes of the configuration. */
const RELOAD_MS = 20 * 60_000;
/** Average time between two upgrades or failures of a gateway or of Redis. */
const OPERATION_MS = 8 * 60_000;
/** Average time between two failures of threads that serve requests. */
const THREAD_FAILURE_MS = 5 * 60_000;
const LONGEST_HANG_MS = 60_000;
/** Average time between two failures of the database of the request history. */
const DATABASE_FAILURE_MS = 20 * 60_000;
const MOST_KILLS = 3;
/** After a failure, everything works again within this time. Sessions that began without Redis are stored after 30 s. */
const RECOVERY_MS = 40_000;
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
const HASHED_CHARS = 65_536;
/** Average time between two visits of a client. In shorter runs, a client comes twice on average. */
const PAUSE_MS = 800_000;

export async function simulate(options: Options, runLater: (run: () => void) => void): Promise<Result> {
  const { seed, hours, firstClient, clients, timeline } = options;
  const random = new Seeded(seed, "scenario");
  const scheduler = new Scheduler(seed);
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
  const digest = crypto.createHash("sha256");
  const files = new Files(network, random.part("files"));
  files.write(CONFIG_FILE, configOf(0, store, hasHistory, workers));
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

  let broken: string | undefined;
  /** Events that are not in the digest yet. Many small updates would be slow. */
  let unhashed = "";
  const note = (line: string): void => {
    if (broken !== undefined) return;
    const dated = `${scheduler.nowMs.toFixed(3)} ${line}`;
    unhashed += `${dated}\n`;
    if (unhashed.length > HASHED_CHARS) {
      digest.update(unhashed);
      unhashed = "";
    }
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
    isValid: () => isValid,
    killed() {
      requests.killed();
      history?.killed(scheduler.nowMs);
    },
    broken: breaks,
  });
  let isOver = false;
  /** The configuration file is valid. */
  let isValid = true;
  files.isRunning = gateways.isRunning;
  /** When a gateway or its store failed. */
  const failures: Failure[] = [];
  /** No thread has accepted a connection whose process is `OUTSIDE`. */
  const failedBetween = (fromMs: number, toMs: number, thread = OUTSIDE): boolean =>
    failures
      .filter((failure) => failure.thread === undefined || thread === OUTSIDE || failure.thread === thread)
      .some((failure) => failure.fromMs <= toMs && failure.toMs >= fromMs);
  const report = {
    scheduler,
    network,
    faults,
    isCalm,
    gateways: Array.from({ length: replicas }, (_, i) => ({ address: addressOf(`gateway ${i}`), port: PORT })),
    pauseMs: Math.min(PAUSE_MS, (hours * 3_600_000) / 2),
    isOver: () => isOver,
    mustSucceed: (sentMs = scheduler.nowMs, thread?: string) =>
      isCalm && !gateways.mayHaveCut(sentMs) && !failedBetween(sentMs, scheduler.nowMs, thread),
    upgradedSince: gateways.upgradedSince,
    failedBetween,
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

  /** Calls `act` at random times. Resolves at the end of the last call. */
  async function nowAndThen(own: Seeded, meanMs: number, act: (number: number) => Promise<void>): Promise<void> {
    for (let number = 1; ; number++) {
      const pauseMs = own.exponential(meanMs);
      if (scheduler.nowMs + pauseMs >= hours * 3_600_000) return;
      await sleep(scheduler, pauseMs);
      await act(number);
    }
  }

  /** Some versions are invalid, and the gateway must keep the last valid one. */
  async function reload(own: Seeded): Promise<void> {
    await nowAndThen(own, RELOAD_MS, async (version) => {
      isValid = !own.chance(0.2);
      files.write(CONFIG_FILE, isValid ? configOf(version, store, hasHistory, workers) : "routes: 7");
    });
    // A gateway that is killed at the end can start again.
    isValid = true;
    files.write(CONFIG_FILE, configOf(0, store, hasHistory, workers));
  }

  /** Upgrades, kills, restarts, removes, and adds gateways, and disturbs their store. */
  function operate(own: Seeded, redis: Redis | undefined): Promise<void> {
    const kill = async (): Promise<void> => {
      if (gateways.canReplace) await gateways.kill(own.int(replicas), own.exponential(10_000));
    };
    const failures: Readonly<Record<StoreKind, readonly (() => Promise<void>)[]>> = {
      memory: [],
      folder: [
        kill,
        () => {
          if (gateways.canReplace) {
            files.failPower();
            history?.powerFailed(scheduler.nowMs);
          }
          return kill();
        },
        async () => {
          files.isFull = true;
          await sleep(scheduler, own.exponential(20_000));
          files.isFull = false;
        },
      ],
      redis: [
        kill,
        () => gateways.scale(own.int(replicas), own.exponential(60_000)),
        async () => {
          redis?.stop();
          await sleep(scheduler, own.exponential(20_000));
          redis?.start();
        },
        async () => redis?.stall(own.exponential(3_000)),
      ],
    };
    return nowAndThen(own, OPERATION_MS, () => {
      if (own.chance(0.2)) scheduler.clockErrorMs = own.between(-MOST_CLOCK_ERROR_MS, MOST_CLOCK_ERROR_MS);
      const isUpgrade = own.chance(0.4);
      const fail = own.pick(failures[store]);
      return isUpgrade || fail === undefined ? gateways.upgrade(own.int(replicas)) : failFor(fail);
    });
  }

  /** Threads crash and hang, also during upgrades and other failures. A thread that hangs for 30 s is replaced. */
  function disturbThreads(own: Seeded): Promise<void> {
    return nowAndThen(own, THREAD_FAILURE_MS, async () => {
      const name = own.pick(threads.running(SERVING_THREAD));
      if (name === undefined) return;
      const failedMs = scheduler.nowMs;
      const hungMs = own.chance(0.5) ? own.size(100, LONGEST_HANG_MS) : 0;
      note(`${name} ${hungMs > 0 ? `hangs for ${hungMs}` : "crashes"}`);
      const fail = async (): Promise<void> => {
        if (hungMs === 0) threads.crash(name);
        else scheduler.pause(name, hungMs);
        await sleep(scheduler, hungMs);
      };
      await failFor(fail, name);
      // Messages that the thread sent before have arrived.
      requests.killed();
      history?.killed(failedMs);
      if (threads.running(SERVING_THREAD).includes(name)) return;
      for (const pid of children.of((parent) => parent === name))
        breaks("the children of a crashed thread end", `${name} has ${pid}`);
    });
  }

  /** Disturbs the database of the request history and the threads that write to it. Requests are not affected. */
  function disturbDatabase(own: Seeded, postgres: Postgres): Promise<void> {
    const crash = (): void => threads.crash(own.pick(threads.running(HISTORY_THREAD)));
    const wait = (meanMs: number): Promise<void> =>
      sleep(scheduler, Math.min(own.exponential(meanMs), Math.max(0, hours * 3_600_000 - scheduler.nowMs)));
    const failures = [
      async () => {
        postgres.stop();
        const meanMs = own.pick([1_000, 60_000, 1_800_000]);
        await wait(meanMs);
        if (own.chance(0.3)) crash();
        await wait(meanMs);
        postgres.start();
      },
      async () => {
        postgres.slowDown(own.pick([100, 3_000]));
        await wait(60_000);
        postgres.slowDown();
      },
      async () => {
        const stalledMs = own.exponential(10_000);
        postgres.stall(stalledMs);
        await sleep(scheduler, stalledMs);
      },
      async () => crash(),
    ];
    return nowAndThen(own, DATABASE_FAILURE_MS, () => own.pick(failures)());
  }

  async function failFor(fail: () => Promise<void>, thread?: string): Promise<void> {
    const failure: Failure = { fromMs: scheduler.nowMs, toMs: Number.POSITIVE_INFINITY, thread };
    failures.push(failure);
    await fail();
    await sleep(scheduler, RECOVERY_MS);
    failure.toMs = scheduler.nowMs;
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
    const following = cluster?.run(hours * 3_600_000);
    const running = Array.from({ length: clients - firstClient }, (_, i) =>
      untilEnd(`client ${firstClient + i}`, clientOf(firstClient + i, provider).run()),
    );
    const hostile = new HostileClient(HOSTILE_ADDRESS, random.part("hostile client"), report);
    running.push(untilEnd("the hostile client", hostile.run()));
    const flood = new FloodClient(FLOOD_ADDRESS, random.part("flood client"), report);
    running.push(untilEnd("the flood client", flood.run()));
    running.push(untilEnd("the limit client", new LimitClient(random.part("limit client"), report).run()));
    void provider.run(() => isOver);
    const operating = [reload(random.part("reloads")), operate(random.part("operations"), redis)];
    if (workers > 1) operating.push(disturbThreads(random.part("thread failures")));
    if (database) operating.push(disturbDatabase(random.part("database failures"), database));
    await sleep(scheduler, hours * 3_600_000 - scheduler.nowMs);
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
      const latestEndMs = hours * 3_600_000 + ENDING_MS;
      const isEnded = (): boolean => {
        if (scheduler.steps % PROGRESS_STEPS === 0) options.progress();
        if (!isDone && scheduler.nowMs > latestEndMs) breaks("the simulation ends", [...acting].join(", "));
        return isDone || broken !== undefined;
      };
      if (!scheduler.runUntil(isEnded)) breaks("the simulation ends", "nothing is left to do");
      resolve({
        seed,
        digest: digest.update(unhashed).digest("hex").slice(0, 16),
        broken,
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
