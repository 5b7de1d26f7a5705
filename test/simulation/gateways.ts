/**
 * The gateway processes of a simulation: replicas that are upgraded in place, killed, restarted, and shut down. Checks
 * that a process that has ended left nothing open.
 */
import { Worker } from "node:worker_threads";
import type { App } from "../../src/app/app-options.ts";
import type { FromPredecessor, FromSuccessor, HandedSocket } from "../../src/app/upgrade/messages.ts";
import type { ParentChannel, Predecessor } from "../../src/app/upgrade/predecessor.ts";
import type { Successor, SuccessorEvents } from "../../src/app/upgrade/successor.ts";
import type { LogOutput } from "../../src/record/log/log-output.ts";
import type { Children } from "./children.ts";
import { CONFIG_FILE, DRAIN_MS, pidOf } from "./config.ts";
import type { ControllerCode } from "./controller.ts";
import type { Files } from "./files.ts";
import type { GatewayCode } from "./gateway.ts";
import type { Network } from "./network.ts";
import { sleep } from "./peer.ts";
import { runIn, type Scheduler } from "./scheduler.ts";
import type { Seeded } from "./seeded.ts";
import { SERVING_THREAD, type Threads } from "./threads.ts";

/**
 * Loads copies of the gateway's code, each with its own variables. The module loader reads files, so all copies are
 * loaded before the files are closed.
 */
export async function loadCode(copies: number): Promise<GatewayCode[]> {
  const all: GatewayCode[] = [];
  for (let i = 0; i < copies; i++) {
    const { gatewayCode } = await import(new URL(`./gateway.js?copy=${i}`, import.meta.url).href);
    all.push(gatewayCode);
  }
  return all;
}

export async function loadController(): Promise<ControllerCode> {
  const { controllerCode } = await import(new URL("./controller.js", import.meta.url).href);
  return controllerCode;
}

export interface GatewaysReport {
  readonly scheduler: Scheduler;
  readonly network: Network;
  readonly files: Files;
  readonly children: Children;
  readonly threads: Threads;
  readonly output: LogOutput;
  note(line: string): void;
  /** The configuration file is valid. */
  isValid(): boolean;
  /** Requests that are in flight may end without a record. */
  killed(): void;
  broken(invariant: string, detail: string): void;
}

interface GatewayProcess {
  readonly name: string;
  readonly replica: number;
  readonly code: GatewayCode;
  app: App | undefined;
  /** Receive the end of the process that started this one. */
  readonly onParentEnd: (() => void)[];
}

const MIB = 1024 * 1024;
/** The limits do not depend on the machine. */
export const MEMORY = {
  bodyBytes: 64 * MIB,
  sessionBytes: 32 * MIB,
  streamBytes: 32 * MIB,
  messageBytes: 32 * MIB,
  storeBytes: 32 * MIB,
  cacheBytes: 16 * MIB,
};
/** Closing sessions, child processes, and other resources takes up to this long. */
const CLOSE_LIMIT_MS = 8_000;
/** The drain, the limit for closing resources, and the last connections. */
const SHUTDOWN_LIMIT_MS = DRAIN_MS + CLOSE_LIMIT_MS + 5_000;
/** The drain ends this long after the last connection, at the latest. */
const DRAIN_END_MS = 1_000;
/** A process that has ended is checked after this time. */
const ENDED_MS = 60_000;
const MESSAGE_MS = 0.1;
const RESTART_MS = 1_000;
/** At the end of the drain, give or take this time, requests in flight are cut off. */
const CUT_MS = 1_000;

export class Gateways {
  readonly #report: GatewaysReport;
  readonly #random: Seeded;
  readonly #unused: GatewayCode[];
  readonly #running: (GatewayProcess | undefined)[] = [];
  readonly #pids = new Set<number>();
  #started = 0;
  #isUpgrading = false;
  /** When the new process of the last upgrade began to serve. */
  #upgradedMs = Number.NEGATIVE_INFINITY;

  constructor(random: Seeded, code: readonly GatewayCode[], report: GatewaysReport) {
    this.#random = random;
    this.#unused = [...code];
    this.#report = report;
  }

  readonly upgradedSince = (ms: number): boolean => this.#isUpgrading || this.#upgradedMs + DRAIN_MS >= ms;

  /** True if the old process of an upgrade may have closed the connection of a request that was sent at this time. */
  mayHaveCut(sentMs: number): boolean {
    const { nowMs } = this.#report.scheduler;
    return sentMs <= this.#upgradedMs + DRAIN_MS + CUT_MS && nowMs >= this.#upgradedMs + DRAIN_MS - CUT_MS;
  }

  /** True if there is code for another process. */
  get canReplace(): boolean {
    return this.#unused.length > 1;
  }

  async start(replica: number): Promise<void> {
    const started = this.#create(replica);
    this.#running[replica] = started;
    await this.#in(started, () => this.#startApp(started, undefined));
  }

  /** Replaces the process of a replica as `gwctl upgrade` does. Resolves when the old process has ended. */
  async upgrade(replica: number): Promise<void> {
    const old = this.#running[replica];
    const { app } = old ?? {};
    if (old === undefined || app === undefined) return;
    this.#isUpgrading = true;
    const wasValid = this.#report.isValid();
    const outcome = await this.#in(old, () => app.upgrade());
    this.#report.note(`${old.name} upgrade ${JSON.stringify(outcome)}`);
    if (!outcome.ok && wasValid && this.#report.isValid()) this.#report.broken("an upgrade succeeds", outcome.reason);
    this.#upgradedMs = this.#report.scheduler.nowMs;
    if (outcome.ok) {
      await this.#in(old, () => app.stopped);
      this.#report.note(`${old.name} stopped`);
      this.#isUpgrading = false;
      await this.#checkEnded(old);
    }
    this.#isUpgrading = false;
  }

  /** Ends the process of a replica without a shutdown, and starts another one after `downMs`. */
  async kill(replica: number, downMs: number): Promise<void> {
    const victim = this.#running[replica];
    if (victim === undefined) return;
    this.#report.note(`${victim.name} killed`);
    this.#report.killed();
    this.#running[replica] = undefined;
    this.#end(victim);
    await this.#startAgain(replica, downMs);
  }

  /** Shuts a replica down, as if there were fewer of them, and adds it again after `downMs`. */
  async scale(replica: number, downMs: number): Promise<void> {
    const stopped = this.#running[replica];
    if (stopped?.app === undefined) return;
    this.#report.note(`${stopped.name} is removed`);
    await this.#shutDown([stopped]);
    await this.#startAgain(replica, downMs);
  }

  async #startAgain(replica: number, downMs: number): Promise<void> {
    await sleep(this.#report.scheduler, downMs);
    // A service manager starts a process again that does not accept its configuration file.
    while (!(await this.#hasStarted(replica))) await sleep(this.#report.scheduler, RESTART_MS);
  }

  async #hasStarted(replica: number): Promise<boolean> {
    try {
      await this.start(replica);
      return true;
    } catch (error) {
      this.#report.note(`${this.#running[replica]?.name} did not start: ${(error as Error).message}`);
      const failed = this.#running[replica];
      this.#running[replica] = undefined;
      if (failed) this.#reuse(failed);
      return false;
    }
  }

  readonly isRunning = (pid: number): boolean => this.#pids.has(pid);

  /** The memory accounts of running processes that are not empty. */
  accounts(): string[] {
    return this.#processes().flatMap(({ name, code }) => [
      ...code.accounts().map((text) => `${name}: ${text}`),
      ...this.#report.threads.accounts(name),
    ]);
  }

  stop(): Promise<void> {
    return this.#shutDown(this.#processes());
  }

  async #shutDown(stopped: readonly GatewayProcess[]): Promise<void> {
    const { scheduler, broken, note } = this.#report;
    const stoppedMs = scheduler.nowMs;
    const late = scheduler.after(SHUTDOWN_LIMIT_MS, () => broken("the shutdown ends in time", "it has not"));
    await Promise.all(stopped.map((one) => this.#stopOne(one)));
    scheduler.cancel(late);
    note(`stopped after ${(scheduler.nowMs - stoppedMs).toFixed(3)}`);
    await Promise.all(stopped.map((one) => this.#checkEnded(one)));
  }

  async #stopOne(stopped: GatewayProcess): Promise<void> {
    const { scheduler, network, threads, broken } = this.#report;
    const stoppedMs = scheduler.nowMs;
    const running = threads.of(stopped.name);
    await this.#in(stopped, () => stopped.app?.stop() ?? Promise.resolve());
    // The shutdown gives a thread that hangs the time of the drain.
    if (running.some((thread) => scheduler.wasPaused(thread, stoppedMs))) return;
    const lastMs = Math.max(
      stoppedMs,
      network.lastClosedMs((name) => pidOf(name) === pidOf(stopped.name)),
    );
    const tookMs = scheduler.nowMs - lastMs;
    if (tookMs > CLOSE_LIMIT_MS + DRAIN_END_MS)
      broken("the shutdown does not wait without connections", `${stopped.name} took ${tookMs.toFixed()} ms`);
  }

  #processes(): GatewayProcess[] {
    return this.#running.filter((one) => one !== undefined);
  }

  #create(replica: number): GatewayProcess {
    // The copy that was used last, because its functions are compiled.
    const code = this.#unused.pop();
    if (code === undefined) throw new Error("no copy of the gateway's code is left");
    this.#started += 1;
    this.#pids.add(this.#started);
    return { name: `gateway ${replica}.${this.#started}`, replica, code, app: undefined, onParentEnd: [] };
  }

  async #startApp(started: GatewayProcess, predecessor: Predecessor | undefined): Promise<void> {
    const { startApp, clock } = started.code;
    started.app = await startApp({
      sources: [CONFIG_FILE],
      environment: { REPLICA: String(started.replica) },
      clock,
      output: this.#report.output,
      version: "0.0.0-simulation",
      readStdin: () => "",
      heapSize: () => ({ usedBytes: 1, limitBytes: 100 }),
      memoryLimits: MEMORY,
      predecessor,
      startSuccessor: (sockets, events) => this.#startSuccessor(started, sockets, events),
      startThread: (workerData) => new Worker(new URL(`./${SERVING_THREAD}`, import.meta.url), { workerData }),
    });
  }

  /** The new process of an upgrade. Both processes exchange messages in order, as over the channel of a child process. */
  #startSuccessor(old: GatewayProcess, sockets: readonly HandedSocket[], events: SuccessorEvents): Successor {
    const { scheduler, network } = this.#report;
    const next = this.#create(old.replica);
    for (const { fd } of sockets) network.inherit(fd, next.name);
    const { openPredecessor, handedSockets } = next.code;
    const receivers: ((message: FromPredecessor) => void)[] = [];
    const send = <Message>(to: GatewayProcess, message: Message, received: (message: Message) => void): void => {
      const copy = JSON.parse(JSON.stringify(message)) as Message;
      scheduler.after(MESSAGE_MS, () => received(copy), to.name);
    };
    const channel: ParentChannel = {
      send: (message: FromSuccessor, sent) => {
        send(old, message, events.message);
        sent?.();
      },
      onMessage: (receive) => void receivers.push(receive),
      onClose: (closed) => void next.onParentEnd.push(closed),
      release: () => undefined,
    };
    const start = async (): Promise<void> => {
      const predecessor = openPredecessor({ [handedSockets]: JSON.stringify(sockets) }, channel);
      try {
        await this.#startApp(next, predecessor);
        this.#running[old.replica] = next;
      } catch {
        scheduler.after(MESSAGE_MS, () => events.ended("exit code 1"), old.name);
        this.#reuse(next);
      }
    };
    scheduler.after(this.#random.exponential(1_000), () => void start(), next.name);
    return {
      pid: this.#started,
      send: (message) =>
        send(next, message, (copy) => {
          for (const receive of receivers) receive(copy);
        }),
      kill: async () => this.#end(next),
    };
  }

  async #checkEnded(ended: GatewayProcess): Promise<void> {
    const { scheduler, network, files, children, threads, broken } = this.#report;
    const { name, code, replica } = ended;
    const next = this.#running[replica];
    if (next === ended) this.#running[replica] = undefined;
    else if (next !== undefined) for (const closed of next.onParentEnd) scheduler.after(MESSAGE_MS, closed, next.name);
    await sleep(scheduler, ENDED_MS);
    for (const account of code.accounts()) broken("memory accounts are empty after the shutdown", account);
    for (const account of threads.left) broken("memory accounts of threads are empty after the shutdown", account);
    for (const { label } of network.openSides(name)) broken("the shutdown closes all connections", label);
    for (const path of files.openedBy(pidOf(name))) broken("the shutdown closes all files", path);
    for (const pid of children.of((one) => pidOf(one) === pidOf(name)))
      broken("the shutdown ends all children", `${name} has ${pid}`);
    for (const thread of threads.of(name)) broken("the shutdown ends all threads", thread);
    const waiting = scheduler.pending(name);
    if (waiting > 0) broken("the shutdown stops all timers", `${waiting} tasks of ${name} wait`);
    this.#reuse(ended);
  }

  #end({ name }: GatewayProcess): void {
    this.#pids.delete(pidOf(name));
    this.#report.scheduler.end(name);
    this.#report.network.end(name);
    this.#report.threads.end(name);
  }

  /** A process that was shut down has no state left in its variables. */
  #reuse(ended: GatewayProcess): void {
    this.#end(ended);
    this.#unused.push(ended.code);
  }

  #in<Value>({ name }: GatewayProcess, run: () => Promise<Value>): Promise<Value> {
    return runIn(this.#report.scheduler, name, run);
  }
}
