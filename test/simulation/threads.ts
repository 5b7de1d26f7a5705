/**
 * The worker threads of the gateways. A thread is a process of the scheduler with the process ID of its gateway, runs
 * its own copy of the bundled code, and exchanges messages over channels.
 */
import { EventEmitter } from "node:events";
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { basename } from "node:path";
import workers from "node:worker_threads";
import { type Channels, Port } from "./channel.ts";
import type { Network } from "./network.ts";
import type { Seeded } from "./seeded.ts";

/** The average time until a thread runs its first line. */
const START_MS = 300;
/** The file of threads that serve requests. */
export const SERVING_THREAD = "thread.js";
export const HISTORY_THREAD = "history-worker.js";

interface Exports {
  /** Lists the memory accounts that are not empty. */
  accounts?(): string[];
}

type Run = (require: (name: string) => unknown, module: { exports: Exports }, exports: object) => void;

export type ThreadCode = ReadonlyMap<string, Run>;

/** Loads the code of threads. It must be called before files are closed. */
export async function loadThreadCode(): Promise<ThreadCode> {
  const load = async (name: string): Promise<[string, Run]> => {
    const code = await readFile(new URL(`./${name.replace(/js$/, "cjs")}`, import.meta.url), "utf8");
    return [name, new Function("require", "module", "exports", code) as Run];
  };
  return new Map(await Promise.all([SERVING_THREAD, HISTORY_THREAD].map(load)));
}

class Thread extends EventEmitter {
  readonly parent: string;
  readonly name: string;
  readonly file: string;
  readonly #network: Network;
  readonly #channels: Channels;
  readonly #port: Port;
  readonly #left: string[];
  readonly #module: { exports: Exports } = { exports: {} };
  #isRunning = true;

  constructor(
    { network, channels, random, left }: Threads,
    file: string,
    count: number,
    run: Run,
    workerData: unknown,
  ) {
    super();
    const { scheduler } = network;
    this.#network = network;
    this.#channels = channels;
    this.#left = left;
    this.file = file;
    this.parent = scheduler.process;
    this.name = this.parent.replace(/^gateway (\d+)\./, `thread $1.${count}.`);
    const [ours, parentPort] = channels.open(this.parent, this.name);
    this.#port = ours;
    ours.on("message", (message) => this.emit("message", message));
    const own = {
      ...workers,
      parentPort,
      workerData: structuredClone(workerData),
      isMainThread: false,
      threadId: count,
    };
    const require = createRequire(import.meta.url);
    const module = this.#module;
    const start = (): void =>
      run((name) => (name === "node:worker_threads" ? own : require(name)), module, module.exports);
    scheduler.after(random.exponential(START_MS), start, this.name);
  }

  get isRunning(): boolean {
    return this.#isRunning;
  }

  accounts(): string[] {
    return this.#module.exports.accounts?.().map((text) => `${this.name}: ${text}`) ?? [];
  }

  postMessage(message: unknown, transfer: readonly (ArrayBuffer | Port)[] = []): void {
    this.#port.postMessage(message, transfer);
  }

  async terminate(): Promise<void> {
    // A thread that hangs could not release its memory.
    if (!this.#network.scheduler.isPaused(this.name)) this.#left.push(...this.accounts());
    if (!this.#isRunning) return;
    this.end();
    await new Promise((resolve) => this.once("exit", resolve));
  }

  ref(): void {}

  unref(): void {}

  /** Ends the thread at once. Its parent gets the messages that it sent, and the end, if it still runs. */
  end(error?: Error): void {
    if (!this.#isRunning) return;
    this.#isRunning = false;
    const { scheduler } = this.#network;
    scheduler.end(this.name);
    this.#network.end(this.name);
    this.#port.on("close", () => {
      if (error) this.emit("error", error);
      this.emit("exit", 1);
    });
    this.#channels.end(this.name);
  }
}

export class Threads {
  /** The memory accounts that were not empty when the gateway ended a thread. */
  readonly left: string[] = [];
  readonly network: Network;
  readonly channels: Channels;
  readonly random: Seeded;
  readonly #code: ThreadCode;
  readonly #threads = new Set<Thread>();
  #count = 0;

  constructor(network: Network, channels: Channels, random: Seeded, code: ThreadCode) {
    this.network = network;
    this.channels = channels;
    this.random = random;
    this.#code = code;
  }

  /** The threads of a process that run. */
  of(parent: string): string[] {
    return this.#of(parent).map(({ name }) => name);
  }

  /** The memory accounts of the threads of a process that are not empty. */
  accounts(parent: string): string[] {
    return this.#of(parent).flatMap((thread) => thread.accounts());
  }

  /** Ends the threads of a process, as the operating system does when the process ends. */
  end(parent: string): void {
    for (const thread of this.#of(parent)) thread.end();
    this.channels.end(parent);
  }

  /** The threads that run this file. */
  running(file: string): string[] {
    return this.#running()
      .filter((thread) => thread.file === file)
      .map(({ name }) => name);
  }

  /** Ends a thread as an uncaught exception does. */
  crash(name: string | undefined): void {
    this.#running()
      .find((thread) => thread.name === name)
      ?.end(new Error("simulated failure"));
  }

  /** Replaces the classes of Node for threads and their messages. */
  replaceClasses(): void {
    const start = (path: string, workerData: unknown): Thread => {
      const file = basename(path);
      const run = this.#code.get(file);
      if (run === undefined) throw new Error(`${path} is not simulated`);
      this.#count += 1;
      const thread = new Thread(this, file, this.#count, run, workerData);
      this.#threads.add(thread);
      return thread;
    };
    const open = (): readonly [Port, Port] => {
      const { process } = this.network.scheduler;
      return this.channels.open(process, process);
    };
    function Worker(file: URL | string, { workerData }: { readonly workerData: unknown }): Thread {
      if (typeof file === "string") throw new Error("Worker is not simulated");
      return start(file.pathname, workerData);
    }
    function MessageChannel(): object {
      const [port1, port2] = open();
      return { port1, port2 };
    }
    Object.assign(workers, { Worker, MessageChannel, MessagePort: Port });
  }

  #of(parent: string): Thread[] {
    return this.#running().filter((thread) => thread.parent === parent);
  }

  #running(): Thread[] {
    for (const thread of this.#threads) if (!thread.isRunning) this.#threads.delete(thread);
    return [...this.#threads];
  }
}
