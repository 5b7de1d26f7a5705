/**
 * The worker threads of the gateways. A thread is a process of the scheduler with the process ID of its gateway, runs
 * its own copy of the bundled code, and exchanges copies of messages in order.
 */
import { EventEmitter } from "node:events";
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { basename } from "node:path";
import workers from "node:worker_threads";
import type { Network } from "./network.ts";

const MESSAGE_MS = 0.05;
/** The average time until a thread runs its first line. */
const START_MS = 50;
const CODE = "history-worker.cjs";

type Run = (require: (name: string) => unknown, module: object, exports: object) => void;

/** Loads the code of threads. It must be called before files are closed. */
export async function loadThreadCode(): Promise<string> {
  return readFile(new URL(`./${CODE}`, import.meta.url), "utf8");
}

class Thread extends EventEmitter {
  readonly parent: string;
  readonly name: string;
  readonly #network: Network;
  readonly #port = new EventEmitter();
  /** Messages that arrive before the thread listens. Undefined afterwards. */
  #early: unknown[] | undefined = [];
  #isRunning = true;

  constructor(network: Network, count: number, run: Run, workerData: unknown) {
    super();
    const { scheduler } = network;
    this.#network = network;
    this.parent = scheduler.process;
    this.name = this.parent.replace(/^gateway (\d+)\./, `thread $1.${count}.`);
    const parentPort = Object.assign(this.#port, {
      postMessage: (message: unknown) => this.#send(message, this, this.parent),
    });
    const own = { parentPort, workerData: structuredClone(workerData), isMainThread: false, threadId: count };
    const require = createRequire(import.meta.url);
    const start = (): void => {
      run((name) => (name === "node:worker_threads" ? own : require(name)), {}, {});
      const early = this.#early ?? [];
      this.#early = undefined;
      for (const message of early) this.postMessage(message);
    };
    scheduler.after(START_MS, start, this.name);
  }

  get isRunning(): boolean {
    return this.#isRunning;
  }

  postMessage(message: unknown): void {
    if (this.#early) this.#early.push(structuredClone(message));
    else this.#send(message, this.#port, this.name);
  }

  #send(message: unknown, receiver: EventEmitter, process: string): void {
    const copy = structuredClone(message);
    this.#network.scheduler.after(MESSAGE_MS, () => receiver.emit("message", copy), process);
  }

  async terminate(): Promise<void> {
    this.end();
  }

  ref(): void {}

  unref(): void {}

  /** Ends the thread at once. Its parent is notified, if it still runs. */
  end(error?: Error): void {
    if (!this.#isRunning) return;
    this.#isRunning = false;
    const { scheduler } = this.#network;
    scheduler.end(this.name);
    this.#network.end(this.name);
    const exited = (): void => {
      if (error) this.emit("error", error);
      this.emit("exit", 1);
    };
    scheduler.after(MESSAGE_MS, exited, this.parent);
  }
}

export class Threads {
  readonly #network: Network;
  readonly #run: Run;
  readonly #threads = new Set<Thread>();
  #count = 0;

  constructor(network: Network, code: string) {
    this.#network = network;
    this.#run = new Function("require", "module", "exports", code) as Run;
  }

  /** The threads of a process that run. */
  of(parent: string): string[] {
    return this.#running()
      .filter((thread) => thread.parent === parent)
      .map(({ name }) => name);
  }

  /** Ends the threads of a process, as the operating system does when the process ends. */
  end(parent: string): void {
    for (const thread of this.#running()) if (thread.parent === parent) thread.end();
  }

  /** Ends a thread as an uncaught exception does. */
  crash(pick: (names: readonly string[]) => string | undefined): void {
    const running = this.#running();
    const chosen = pick(running.map(({ name }) => name));
    running.find(({ name }) => name === chosen)?.end(new Error("simulated failure"));
  }

  /** Replaces the class of Node that starts threads. */
  replaceClass(): void {
    const start = (file: URL, { workerData }: { readonly workerData: unknown }): Thread => {
      if (basename(file.pathname) !== "history-worker.js") throw new Error(`${file.pathname} is not simulated`);
      this.#count += 1;
      const thread = new Thread(this.#network, this.#count, this.#run, workerData);
      this.#threads.add(thread);
      return thread;
    };
    function Worker(file: URL | string, options: { readonly workerData: unknown }): Thread {
      if (typeof file === "string") throw new Error("Worker is not simulated");
      return start(file, options);
    }
    Object.assign(workers, { Worker });
  }

  #running(): Thread[] {
    for (const thread of this.#threads) if (!thread.isRunning) this.#threads.delete(thread);
    return [...this.#threads];
  }
}
