/**
 * Runs the worker threads and implements the listeners of the main thread with them. All threads prepare a new
 * configuration before any thread serves it, and a thread that dies is replaced.
 */

import { createServer } from "node:net";
import { MessageChannel, type MessagePort, type Worker } from "node:worker_threads";
import type { RequestThreads } from "../../admin/merge/merged-endpoints.ts";
import { handleRemote, type RemoteRequest, readRemote, remoteRequest } from "../../admin/merge/remote-call.ts";
import type { AdminEndpoint } from "../../admin/server/endpoint.ts";
import { childRegistryBytes, endListedChildren } from "../../base/child-registry.ts";
import { type Clock, wait } from "../../base/clock.ts";
import type { MemoryBudget } from "../../base/memory-budget.ts";
import type { MainSharedMemory } from "../../base/shared-memory.ts";
import type { SourceText } from "../../config/load/load.ts";
import type { Listener, Topology } from "../../core/topology.ts";
import { defined } from "../../json/json.ts";
import { bindError, type Listeners } from "../../pipeline/listen/listeners.ts";
import type { RowBatch } from "../../record/history/row-batch.ts";
import type { LogOutput } from "../../record/log/log-output.ts";
import type { Logger } from "../../record/log/logger.ts";
import { cumulativeFamilies, type MetricFamily, type Metrics, mergeFamilies } from "../../record/log/metrics.ts";
import type { ConfigurableStore } from "../../store/open-store.ts";
import type { BusMessage } from "../../store/process-bus.ts";
import { type StoreRequest, type StoreResponse, serveStoreRequest } from "../../store/remote-store.ts";
import type { HandedSocket } from "../upgrade/messages.ts";
import type { FromThread, Order, Report, Snapshot, ThreadData, ToThread } from "./messages.ts";
import { createThreadWatch, HEARTBEAT_BYTES, type WatchedThread } from "./thread-watch.ts";

/** A thread that repeatedly dies within this time after its start is replaced with exponential backoff. */
const SHORT_LIFE_MS = 10_000;
const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 30_000;
/** After the drain timeout, threads get this time to close the last connections. */
const DRAIN_PATIENCE_MS = 2_000;
/** Threads get this time to close sessions and child processes. It exceeds their own limit for closing resources. */
const END_PATIENCE_MS = 10_000;
/** A thread that takes longer is counted with its last known metrics. */
const METRICS_LIMIT_MS = 5_000;

export interface ThreadPoolOptions {
  readonly threads: number;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly metrics: Metrics;
  readonly output: LogOutput;
  readonly memory: MainSharedMemory;
  readonly store: ConfigurableStore;
  /** Listening sockets of the previous process. */
  readonly sockets: readonly HandedSocket[];
  readonly budget: MemoryBudget;
  readonly data: Pick<
    ThreadData,
    "environment" | "color" | "version" | "clockStartMs" | "sources" | "instanceId" | "auditFailing"
  >;
  texts(): readonly SourceText[];
  logFilter(): string;
  /** Copies of the UI in worker threads use these endpoints. */
  endpoints(): readonly AdminEndpoint[];
  start(data: ThreadData): Worker;
  history(batch: RowBatch): void;
  audit(line: string): void;
}

export interface ThreadPool extends Listeners {
  readonly ask: RequestThreads;
  /** After an upgrade, it also waits for MCP calls that wait for their client. */
  close(limitMs: number, lingerMs?: number, isUpgraded?: boolean): Promise<void>;
  /** Returns the sums of all threads. They include the last known counters of threads that have ended. */
  metrics(): Promise<readonly MetricFamily[]>;
}

interface Serving {
  readonly snapshot: Snapshot;
  readonly ports: ReadonlyMap<string, number>;
  readonly listeners: readonly Listener[];
}

export function openThreadPool(parts: ThreadPoolOptions): ThreadPool {
  const { clock, logger, memory } = parts;
  const running = new Map<number, Thread>();
  const sequence = new SharedArrayBuffer(4);
  const counted = createThreadMetrics();
  const threadWatch = createThreadWatch(clock);
  const watched = new Map<Thread, WatchedThread>();
  const replaced = parts.metrics.counter(
    "gateway_threads_replaced_total",
    "Worker threads that were replaced, because they died or hung.",
    ["reason"],
  );
  const numbers = Array.from({ length: parts.threads }, (_, index) => index + 1);
  let serving: Serving | undefined;
  let isShuttingDown = false;
  /** Reloads and replacements of threads run one at a time. */
  let last: Promise<unknown> = Promise.resolve();

  function serialize<Result>(change: () => Promise<Result>): Promise<Result> {
    const done = last.then(change);
    last = done.catch(() => undefined);
    return done;
  }

  function open(number: number, shortLives: number, sockets: readonly HandedSocket[] = []): Thread {
    const startedMs = clock.monotonicMs();
    const children = new SharedArrayBuffer(childRegistryBytes());
    const heartbeat = new SharedArrayBuffer(HEARTBEAT_BYTES);
    let isHung = false;
    const killChildren = (): void => void endListedChildren(children);
    process.on("exit", killChildren);
    const data: ThreadData = {
      ...parts.data,
      thread: number,
      threads: parts.threads,
      sequence,
      logFilter: parts.logFilter(),
      mainHeapLevel: parts.budget.sharedLevel,
      children,
      heartbeat,
      storeShared: parts.store.sharedFlag,
      sockets,
    };
    const toBus = parts.store.processBus.connect(
      (message) => thread.bus(message),
      () => parts.store.isShared === true,
    );
    const thread = openThread(parts.start(data), {
      log: (text) => parts.output.write(text),
      history: parts.history,
      audit: parts.audit,
      admin: (request, port) => void handleRemote(request, parts.endpoints(), port),
      store: (question) => serveStoreRequest(parts.store, question),
      bus: (message) => toBus.received(message),
      ended(reason) {
        memory.died(number);
        toBus.close();
        process.off("exit", killChildren);
        killChildren();
        if (running.get(number) === thread) running.delete(number);
        counted.ended(thread);
        watched.get(thread)?.stop();
        watched.delete(thread);
        if (isShuttingDown || serving === undefined) return;
        const lives = clock.monotonicMs() - startedMs < SHORT_LIFE_MS ? shortLives + 1 : 0;
        logger.error("worker thread died; replacing it", { thread: number, reason: isHung ? "it hung" : reason });
        replaced.labels(isHung ? "hung" : "died").add();
        void replace(number, lives);
      },
    });
    const watching = threadWatch.watch(heartbeat, {
      slow: (seconds) => logger.warn("worker thread does not respond", { thread: number, seconds }),
      responsive: () => logger.info("worker thread responds again", { thread: number }),
      hung(seconds) {
        logger.error("worker thread hung; terminating it", { thread: number, seconds });
        isHung = true;
        void thread.terminate();
      },
    });
    watched.set(thread, watching);
    return thread;
  }

  async function replace(number: number, shortLives: number): Promise<void> {
    if (shortLives > 1) await wait(clock, Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (shortLives - 2)));
    await serialize(async () => {
      const now = serving;
      if (isShuttingDown || now === undefined) return;
      const thread = open(number, shortLives);
      try {
        requireSuccess(await thread.order({ kind: "prepare", snapshot: now.snapshot }));
        // The thread is connected before it serves, because another thread may own the route of its first request.
        for (const [other, peer] of running) connect(number, thread, other, peer);
        requireSuccess(await thread.order({ kind: "commit", ports: now.ports }));
        running.set(number, thread);
        logger.info("worker thread replaced", { thread: number });
      } catch (error) {
        logger.error("worker thread could not be replaced", { thread: number, reason: (error as Error).message });
        await thread.terminate();
      }
    });
  }

  /**
   * The first thread that runs checks that all ports can be bound, and selects the port number for port 0. Returns the
   * threads that have not applied the configuration yet.
   */
  async function commitFirst(threads: readonly Thread[]) {
    const known = serving?.ports ?? new Map<string, number>();
    for (const [index, thread] of threads.entries()) {
      try {
        const { ports = known } = requireSuccess(await thread.order({ kind: "commit", ports: known }));
        return { ports, others: threads.slice(index + 1) };
      } catch (error) {
        // A thread that ended is replaced with the new configuration, except at the start.
        if (serving === undefined || !(error instanceof ThreadEnded)) throw error;
      }
    }
    throw new Error("no thread is running");
  }

  /** Returns the threads that are prepared. A thread that ended is replaced with the new configuration. */
  async function prepareAll(threads: readonly Thread[], snapshot: Snapshot): Promise<Thread[]> {
    const prepared = threads.map(async (thread) => {
      try {
        requireSuccess(await thread.order({ kind: "prepare", snapshot }));
        return [thread];
      } catch (error) {
        // At the start, no thread is replaced.
        if (serving === undefined || !(error instanceof ThreadEnded)) throw error;
        return [];
      }
    });
    return (await Promise.all(prepared)).flat();
  }

  function responsive(): [number: number, thread: Thread][] {
    return [...running].filter(([, thread]) => watched.get(thread)?.isSlow !== true);
  }

  /** A thread that does not carry out the order in time is terminated, so that it cannot block the shutdown. */
  async function stopAll(order: Order, limitMs: number): Promise<void> {
    const late = wait(clock, limitMs).then(() => "late");
    await Promise.all(
      [...running].map(async ([number, thread]) => {
        if ((await Promise.race([countedOrder(thread, order), late])) !== "late") return;
        logger.error("worker thread does not shut down in time; terminating it", { thread: number });
        await thread.terminate();
      }),
    );
  }

  /** Stores the metrics that the report contains. */
  function countedOrder(thread: Thread, order: Order): Promise<void> {
    return thread.order(order).then(
      ({ metrics }) => {
        if (metrics !== undefined) counted.collected(thread, metrics);
      },
      () => undefined,
    );
  }

  async function start(): Promise<void> {
    for (const number of numbers) {
      const sockets = parts.sockets.filter(({ thread = 1 }) => thread === number);
      const thread = open(number, 0, sockets);
      for (const [other, peer] of running) connect(number, thread, other, peer);
      running.set(number, thread);
    }
  }

  async function apply({ listeners }: Topology): Promise<void> {
    if (isShuttingDown) throw new Error("the gateway is shutting down");
    const known = new Set([...(serving?.ports.values() ?? []), ...parts.sockets.map(({ port }) => port)]);
    for (const listener of listeners) {
      if (listener.port === 0 || known.has(listener.port)) continue;
      await probePort(listener.address, listener.port).catch((error) => {
        throw bindError(listener, error);
      });
    }
    if (running.size === 0) await start();
    let threads = [...running.values()];
    const snapshot: Snapshot = { texts: parts.texts(), memory: memory.all() };
    let ports: ReadonlyMap<string, number>;
    let others: readonly Thread[];
    try {
      threads = await prepareAll(threads, snapshot);
      ({ ports, others } = await commitFirst(threads));
    } catch (error) {
      await Promise.allSettled(threads.map((thread) => thread.order({ kind: "discard" })));
      throw error;
    }
    serving = { snapshot, ports, listeners };
    // The first thread already serves the configuration, so a thread that cannot apply it is replaced.
    await Promise.all(
      others.map(async (thread) => {
        const problem = await thread.order({ kind: "commit", ports }).then(problemOf, String);
        if (problem === undefined) return;
        logger.error("worker thread failed to apply the configuration; replacing it", { reason: problem });
        await thread.terminate();
      }),
    );
  }

  return {
    apply: (topology) => serialize(() => apply(topology)),
    ports: () => serving?.ports ?? new Map(),
    active: () => ({ connections: 0, requests: 0 }),
    notServing: () => (running.size === 0 ? (serving?.listeners.map(({ name }) => name) ?? []) : []),
    async close(limitMs, lingerMs = 0, isUpgraded = false) {
      isShuttingDown = true;
      // Threads forward requests to each other, so all of them drain before one shuts down.
      await stopAll({ kind: "drain", drainMs: limitMs, lingerMs, isUpgraded }, limitMs + DRAIN_PATIENCE_MS);
      await stopAll({ kind: "end" }, END_PATIENCE_MS);
      // Includes a thread that was starting as a replacement.
      await Promise.all([...watched.keys()].map((thread) => thread.terminate()));
    },
    async metrics() {
      const threads = responsive().map(([, thread]) => thread);
      const collected = threads.map((thread) => countedOrder(thread, { kind: "metrics" }));
      await Promise.race([Promise.all(collected), wait(clock, METRICS_LIMIT_MS)]);
      return counted.sum();
    },
    async ask(request) {
      const asked = await remoteRequest(request);
      return Promise.all(
        responsive()
          .sort(([one], [other]) => one - other)
          .map(([, thread]) => {
            const { port1, port2 } = new MessageChannel();
            const answer = readRemote(port1);
            thread.admin(asked, port2);
            return answer;
          }),
      );
    },
  };
}

/** Keeps the last metrics of each thread, so that sums do not decrease when a thread ends or does not respond. */
function createThreadMetrics() {
  const known = new Map<Thread, readonly MetricFamily[]>();
  let ended: readonly MetricFamily[] = [];
  return {
    collected: (thread: Thread, metrics: readonly MetricFamily[]) => void known.set(thread, metrics),
    ended(thread: Thread): void {
      ended = mergeFamilies([ended, cumulativeFamilies(known.get(thread) ?? [])]);
      known.delete(thread);
    },
    sum: () => mergeFamilies([ended, ...known.values()]),
  };
}

/** Connects two threads by a private channel, which closes when one of them exits. */
function connect(number: number, thread: Thread, peerNumber: number, peer: Thread): void {
  const { port1, port2 } = new MessageChannel();
  peer.connect(number, port1);
  thread.connect(peerNumber, port2);
}

function problemOf({ problems }: Report): string | undefined {
  return problems?.join("; ");
}

function requireSuccess(report: Report): Report {
  const problem = problemOf(report);
  if (problem !== undefined) throw new Error(problem);
  return report;
}

export interface ThreadHandlers {
  log(text: string): void;
  history(batch: RowBatch): void;
  audit(line: string): void;
  admin(request: RemoteRequest, port: MessagePort): void;
  store(question: StoreRequest): Promise<StoreResponse>;
  bus(message: BusMessage): void;
  ended(reason: string): void;
}

export interface Thread {
  order(order: Order): Promise<Report>;
  admin(request: RemoteRequest, port: MessagePort): void;
  connect(thread: number, port: MessagePort): void;
  bus(message: BusMessage): void;
  terminate(): Promise<void>;
}

class ThreadEnded extends Error {
  constructor(reason: string) {
    super(`the thread has ended: ${reason}`);
  }
}

export function openThread(worker: Worker, handlers: ThreadHandlers): Thread {
  const waiting = new Map<number, { resolve(report: Report): void; reject(error: Error): void }>();
  let nextId = 1;
  let endedWith: string | undefined;
  let fault: string | undefined;

  worker.on("message", (message: FromThread) => {
    if (message.kind === "log") handlers.log(message.text);
    else if (message.kind === "history") handlers.history(message.batch);
    else if (message.kind === "audit") handlers.audit(message.line);
    else if (message.kind === "admin") handlers.admin(message.request, message.port);
    else if (message.kind === "bus") handlers.bus(message.message);
    else if (message.kind === "store")
      void handlers
        .store(message.question)
        .then((answer) => worker.postMessage({ kind: "store", answer } satisfies ToThread));
    else {
      waiting.get(message.id)?.resolve(message.report);
      waiting.delete(message.id);
    }
  });
  // The `exit` event follows the `error` event.
  worker.on("error", (error) => {
    fault = error.message;
  });
  worker.on("exit", (code) => {
    endedWith = fault ?? `it ended with code ${code}`;
    for (const { reject } of waiting.values()) reject(new ThreadEnded(endedWith));
    waiting.clear();
    handlers.ended(endedWith);
  });

  return {
    order: (order) =>
      new Promise((resolve, reject) => {
        if (endedWith !== undefined) {
          reject(new ThreadEnded(endedWith));
          return;
        }
        const id = nextId++;
        waiting.set(id, { resolve, reject });
        worker.postMessage({ kind: "order", id, order } satisfies ToThread);
      }),
    admin: (request, port) => worker.postMessage({ kind: "admin", request, port } satisfies ToThread, [port]),
    connect(thread, port) {
      // If the thread has exited, closing the port notifies the thread at the other end.
      if (endedWith === undefined) worker.postMessage({ kind: "peer", thread, port } satisfies ToThread, [port]);
      else port.close();
    },
    bus: (message) => worker.postMessage({ kind: "bus", message } satisfies ToThread),
    async terminate() {
      await worker.terminate();
    },
  };
}

/**
 * Rejects if the address cannot be bound. Worker threads use `reusePort`, with which a second gateway could share the
 * port unnoticed, so the main thread first binds it exclusively.
 */
export function probePort(address: string | undefined, port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    const server = createServer((socket) => socket.destroy());
    server.once("error", reject);
    server.listen({ port, ...defined({ host: address }) }, () => server.close(() => resolve()));
  });
}
