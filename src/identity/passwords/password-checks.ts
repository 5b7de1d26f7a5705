/**
 * Runs password checks in a worker thread, one at a time and round-robin among clients, because the hashes are slow
 * by design. The queues are bounded, and checks fail if no thread can be started.
 */
import { Worker } from "node:worker_threads";
import type { Clock, Timer } from "../../base/clock.ts";
import { embeddedText } from "../../base/embedded-files.ts";
import { GatewayError } from "../../core/errors.ts";
import { clientNetwork } from "../../http/host.ts";

const MAX_WAITING_CHECKS = 1_000;
const MAX_WAITING_PER_CLIENT = 20;
const IDLE_MS = 30_000;
const ATTEMPTS = 2;
const WORKER_FILE = "password-worker.js";

export type PasswordHash =
  | { readonly kind: "bcrypt"; readonly hash: string }
  | { readonly kind: "apr1"; readonly salt: string; readonly hash: string }
  | { readonly kind: "sha1"; readonly hash: string };

export interface CheckRequest {
  readonly id: number;
  readonly password: string;
  readonly hash: PasswordHash;
}

export interface CheckResult {
  readonly id: number;
  readonly matches: boolean;
}

export interface PasswordThread {
  postMessage(request: CheckRequest): void;
  on(event: "message", listener: (result: CheckResult) => void): unknown;
  on(event: "error", listener: (error: Error) => void): unknown;
  on(event: "exit", listener: () => void): unknown;
  ref(): void;
  unref(): void;
  terminate(): Promise<unknown>;
}

interface Check extends CheckRequest {
  attempts: number;
  resolve(matches: boolean): void;
  reject(error: Error): void;
}

export class PasswordChecks {
  readonly #clock: Clock;
  readonly #startThread: () => PasswordThread;
  readonly #queues = new Map<string, Check[]>();
  #waiting = 0;
  #running: Check | undefined = undefined;
  #thread: PasswordThread | undefined = undefined;
  #idle: Timer | undefined = undefined;
  #nextId = 1;

  constructor(clock: Clock, startThread: () => PasswordThread = startWorker) {
    this.#clock = clock;
    this.#startThread = startThread;
  }

  /** Throws or rejects with a GatewayError (503) if the check cannot be queued or run. */
  matches(address: string, password: string, hash: PasswordHash): Promise<boolean> {
    const client = clientNetwork(address);
    const queue = this.#queues.get(client) ?? [];
    if (queue.length >= MAX_WAITING_PER_CLIENT)
      throw tooMany(`${MAX_WAITING_PER_CLIENT} password checks of ${client} are waiting`);
    if (this.#waiting >= MAX_WAITING_CHECKS && !this.#makeRoom(queue.length))
      throw tooMany(`${MAX_WAITING_CHECKS} password checks are waiting`);
    return new Promise((resolve, reject) => {
      this.#queues.set(client, queue);
      queue.push({ id: this.#nextId++, password, hash, attempts: 0, resolve, reject });
      this.#waiting += 1;
      this.#runNext();
    });
  }

  /**
   * Removes the last check of the client with the most waiting checks, unless the new client would then have as many.
   */
  #makeRoom(length: number): boolean {
    let longest: Check[] = [];
    for (const queue of this.#queues.values()) if (queue.length > longest.length) longest = queue;
    if (longest.length <= length + 1) return false;
    this.#waiting -= 1;
    longest.pop()?.reject(tooMany(`${MAX_WAITING_CHECKS} password checks are waiting`));
    return true;
  }

  #runNext(): void {
    while (this.#running === undefined) {
      const check = this.#takeNext();
      if (check === undefined) return;
      this.#running = check;
      this.#run(check);
    }
  }

  #takeNext(): Check | undefined {
    const [turn] = this.#queues;
    if (turn === undefined) return undefined;
    const [client, queue] = turn;
    const check = queue.shift();
    this.#waiting -= 1;
    this.#queues.delete(client);
    if (queue.length > 0) this.#queues.set(client, queue);
    return check;
  }

  #run(check: Check): void {
    check.attempts += 1;
    try {
      const thread = this.#openThread();
      // Only a running check keeps the process alive.
      thread.ref();
      const { id, password, hash } = check;
      thread.postMessage({ id, password, hash });
    } catch (error) {
      this.#running = undefined;
      check.reject(unavailable(error));
    }
  }

  #openThread(): PasswordThread {
    this.#idle?.cancel();
    if (this.#thread !== undefined) return this.#thread;
    const thread = this.#startThread();
    this.#thread = thread;
    thread.on("message", ({ id, matches }) => {
      if (this.#running?.id !== id) return;
      this.#running.resolve(matches);
      this.#running = undefined;
      this.#runNext();
      if (this.#running !== undefined) return;
      thread.unref();
      this.#idle = this.#clock.after(IDLE_MS, () => this.#closeThread());
    });
    thread.on("error", (error) => this.#lost(thread, error));
    thread.on("exit", () => this.#lost(thread, new Error("the thread exited")));
    return thread;
  }

  #lost(thread: PasswordThread, error: Error): void {
    if (this.#thread !== thread) return;
    this.#thread = undefined;
    const check = this.#running;
    if (check === undefined) return;
    if (check.attempts < ATTEMPTS) {
      this.#run(check);
    } else {
      this.#running = undefined;
      check.reject(unavailable(error));
    }
    this.#runNext();
  }

  #closeThread(): void {
    const closing = this.#thread;
    this.#thread = undefined;
    void closing?.terminate();
  }
}

function startWorker(): Worker {
  const embedded = embeddedText(WORKER_FILE);
  return embedded === undefined
    ? new Worker(new URL(`./${WORKER_FILE}`, import.meta.url))
    : new Worker(embedded, { eval: true });
}

function tooMany(detail: string): GatewayError {
  return new GatewayError("overloaded", { detail, headers: { "retry-after": "1" } });
}

function unavailable(error: unknown): GatewayError {
  const reason = error instanceof Error ? error.message : String(error);
  return new GatewayError("not_ready", {
    message: "passwords cannot be checked now",
    detail: `the password thread failed: ${reason}`,
    headers: { "retry-after": "1" },
  });
}
