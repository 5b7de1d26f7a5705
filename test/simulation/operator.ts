/**
 * Changes the configuration file, upgrades, removes, and adds gateways, and lets gateways, threads, stores, and clocks
 * fail. Knows when something failed.
 */
import type { Children } from "./children.ts";
import { CONFIG_FILE, configOf, STORE_FOLDER, type StoreKind } from "./config.ts";
import type { Files } from "./files.ts";
import type { Gateways } from "./gateways.ts";
import type { HistoryCheck } from "./history-check.ts";
import { sleep } from "./peer.ts";
import type { Postgres } from "./postgres.ts";
import type { Redis } from "./redis.ts";
import type { Requests } from "./requests.ts";
import { MOST_CLOCK_ERROR_MS, OUTSIDE, type Scheduler } from "./scheduler.ts";
import type { Seeded } from "./seeded.ts";
import { HISTORY_THREAD, SERVING_THREAD, type Threads } from "./threads.ts";

/** Average time between two changes of the configuration. */
const RELOAD_MS = 20 * 60_000;
/** Average time between two upgrades or failures of a gateway or of Redis. */
const OPERATION_MS = 8 * 60_000;
/** Average time between two failures of threads that serve requests. */
const THREAD_FAILURE_MS = 5 * 60_000;
const LONGEST_HANG_MS = 60_000;
/** Average time between two failures of the database of the request history. */
const DATABASE_FAILURE_MS = 20 * 60_000;
/** After a failure, everything works again within this time. Sessions that began without Redis are stored after 30 s. */
const RECOVERY_MS = 40_000;

/** What the operator works on. */
export interface Operated {
  readonly scheduler: Scheduler;
  readonly gateways: Gateways;
  readonly replicas: number;
  readonly store: StoreKind;
  readonly workers: number;
  readonly files: Files;
  readonly children: Children;
  readonly threads: Threads;
  readonly requests: Requests;
  /** Undefined if the run has no request history. */
  readonly history: HistoryCheck | undefined;
  /** When the operator stops. */
  readonly endMs: number;
  note(line: string): void;
  broken(invariant: string, detail: string): void;
}

/** The time in which a gateway, its store, or only a thread did not work. */
interface Failure {
  readonly fromMs: number;
  toMs: number;
  readonly thread: string | undefined;
}

export class Operator {
  /** The configuration file is valid. */
  isValid = true;
  readonly #operated: Operated;
  readonly #failures: Failure[] = [];

  constructor(operated: Operated) {
    this.#operated = operated;
    this.#writeConfig(0);
  }

  /** True if something failed. A request on the connection of a thread is not affected by a failure of another thread. */
  failedBetween(fromMs: number, toMs: number, thread = OUTSIDE): boolean {
    return this.#failures
      .filter((failure) => failure.thread === undefined || thread === OUTSIDE || failure.thread === thread)
      .some((failure) => failure.fromMs <= toMs && failure.toMs >= fromMs);
  }

  /** Changes the configuration. Some versions are invalid, and the gateway must keep the last valid one. */
  async reload(random: Seeded): Promise<void> {
    await this.#nowAndThen(random, RELOAD_MS, async (version) => {
      this.isValid = !random.chance(0.2);
      if (this.isValid) this.#writeConfig(version);
      else this.#operated.files.write(CONFIG_FILE, "routes: 7");
    });
    // A gateway that is killed at the end can start again.
    this.isValid = true;
    this.#writeConfig(0);
  }

  /** Upgrades, kills, restarts, removes, and adds gateways, and disturbs their store. */
  operate(random: Seeded, redis: Redis | undefined): Promise<void> {
    const { scheduler, gateways, replicas, store, files, history } = this.#operated;
    const kill = async (): Promise<void> => {
      if (gateways.canReplace) await gateways.kill(random.int(replicas), random.exponential(10_000));
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
        () => {
          if (gateways.canReplace && files.damage(STORE_FOLDER) !== undefined) this.#recordsLost();
          return kill();
        },
        async () => {
          files.isFull = true;
          await sleep(scheduler, random.exponential(20_000));
          files.isFull = false;
        },
        async () => {
          files.isReadOnly = true;
          await sleep(scheduler, random.exponential(20_000));
          files.isReadOnly = false;
        },
      ],
      redis: [
        kill,
        () => gateways.scale(random.int(replicas), random.exponential(60_000)),
        async () => {
          redis?.stop();
          await sleep(scheduler, random.exponential(20_000));
          redis?.start();
        },
        async () => redis?.stall(random.exponential(3_000)),
      ],
    };
    return this.#nowAndThen(random, OPERATION_MS, () => {
      if (random.chance(0.2)) scheduler.clockErrorMs = random.between(-MOST_CLOCK_ERROR_MS, MOST_CLOCK_ERROR_MS);
      const isUpgrade = random.chance(0.4);
      const fail = random.pick(failures[store]);
      return isUpgrade || fail === undefined ? gateways.upgrade(random.int(replicas)) : this.#failFor(fail);
    });
  }

  /** Threads crash and hang, also during upgrades and other failures. A thread that hangs for 30 s is replaced. */
  disturbThreads(random: Seeded): Promise<void> {
    const { scheduler, threads, children, requests, history, note, broken } = this.#operated;
    return this.#nowAndThen(random, THREAD_FAILURE_MS, async () => {
      const name = random.pick(threads.running(SERVING_THREAD));
      if (name === undefined) return;
      const failedMs = scheduler.nowMs;
      const hungMs = random.chance(0.5) ? random.size(100, LONGEST_HANG_MS) : 0;
      note(`${name} ${hungMs > 0 ? `hangs for ${hungMs}` : "crashes"}`);
      const fail = async (): Promise<void> => {
        if (hungMs === 0) threads.crash(name);
        else scheduler.pause(name, hungMs);
        await sleep(scheduler, hungMs);
      };
      await this.#failFor(fail, name);
      // Messages that the thread sent before have arrived.
      requests.killed();
      history?.killed(failedMs);
      if (threads.running(SERVING_THREAD).includes(name)) return;
      for (const pid of children.of((parent) => parent === name))
        broken("the children of a crashed thread end", `${name} has ${pid}`);
    });
  }

  /** Disturbs the database of the request history and the threads that write to it. Requests are not affected. */
  disturbDatabase(random: Seeded, postgres: Postgres): Promise<void> {
    const { scheduler, threads, endMs } = this.#operated;
    const crash = (): void => threads.crash(random.pick(threads.running(HISTORY_THREAD)));
    const wait = (meanMs: number): Promise<void> =>
      sleep(scheduler, Math.min(random.exponential(meanMs), Math.max(0, endMs - scheduler.nowMs)));
    const failures = [
      async () => {
        postgres.stop();
        const meanMs = random.pick([1_000, 60_000, 1_800_000]);
        await wait(meanMs);
        if (random.chance(0.3)) crash();
        await wait(meanMs);
        postgres.start();
      },
      async () => {
        postgres.slowDown(random.pick([100, 3_000]));
        await wait(60_000);
        postgres.slowDown();
      },
      async () => {
        const stalledMs = random.exponential(10_000);
        postgres.stall(stalledMs);
        await sleep(scheduler, stalledMs);
      },
      async () => crash(),
    ];
    return this.#nowAndThen(random, DATABASE_FAILURE_MS, () => random.pick(failures)());
  }

  #writeConfig(version: number): void {
    const { files, store, history, workers } = this.#operated;
    files.write(CONFIG_FILE, configOf(version, store, history !== undefined, workers));
  }

  /** A damaged record may be of any age. */
  #recordsLost(): void {
    const { scheduler, note } = this.#operated;
    note("a record of the store is damaged");
    this.#failures.push({ fromMs: 0, toMs: scheduler.nowMs, thread: undefined });
  }

  async #failFor(fail: () => Promise<void>, thread?: string): Promise<void> {
    const { scheduler } = this.#operated;
    const failure: Failure = { fromMs: scheduler.nowMs, toMs: Number.POSITIVE_INFINITY, thread };
    this.#failures.push(failure);
    await fail();
    await sleep(scheduler, RECOVERY_MS);
    failure.toMs = scheduler.nowMs;
  }

  /** Calls `act` at random times. Resolves at the end of the last call. */
  async #nowAndThen(random: Seeded, meanMs: number, act: (number: number) => Promise<void>): Promise<void> {
    const { scheduler, endMs } = this.#operated;
    for (let number = 1; ; number++) {
      const pauseMs = random.exponential(meanMs);
      if (scheduler.nowMs + pauseMs >= endMs) return;
      await sleep(scheduler, pauseMs);
      await act(number);
    }
  }
}
