/**
 * Loads the first configuration, which determines the number of worker threads. With several threads, it is compiled
 * again with rate limits in shared memory.
 */

import { availableParallelism } from "node:os";
import type { Worker } from "node:worker_threads";
import type { AdminEndpoint } from "../../admin/server/endpoint.ts";
import type { UiSource } from "../../backends/ui/source.ts";
import { clockStartMs } from "../../base/clock.ts";
import { createSharedMemory, type MainSharedMemory } from "../../base/shared-memory.ts";
import type { Sources } from "../../config/load/load.ts";
import type { WrittenProcess } from "../../config/schema/schema.ts";
import type { ClusterSource } from "../../kubernetes/follow-controller.ts";
import type { RowBatch } from "../../record/history/row-batch.ts";
import type { LogOutput } from "../../record/log/log-output.ts";
import type { OpenAuditFile } from "../audit.ts";
import { type ConfigLoader, createConfigLoader, type FirstLoad } from "../config-loader.ts";
import type { Services } from "../services.ts";
import type { HandedSockets } from "../upgrade/handed-sockets.ts";
import type { ThreadData } from "./messages.ts";
import { openThreadPool, type ThreadPool } from "./thread-pool.ts";

/** Identifies the main thread as the owner of a lock. Worker threads start at 1. */
const MAIN_THREAD = 1_000_000;

export type StartThread = (data: ThreadData) => Worker;

export interface ThreadPoolOptions {
  readonly output: LogOutput;
  readonly color?: boolean;
  readonly version: string;
  /** With a cluster, only one thread serves, because worker threads receive only source texts. */
  readonly cluster?: ClusterSource;
  readonly startThread?: StartThread;
}

export interface ThreadedLoad {
  readonly first: FirstLoad;
  readonly loader: ConfigLoader;
  /** The value is 1 if the main thread serves requests itself. */
  readonly threads: number;
  /** Returns undefined if the main thread serves requests itself. */
  openThreadPool(outputs: ThreadOutputs): ThreadPool | undefined;
}

/** The main thread's endpoints and outputs, which worker threads use. */
export interface ThreadOutputs {
  readonly auditFile: OpenAuditFile | undefined;
  readonly instanceId: string;
  endpoints(): readonly AdminEndpoint[];
  history(batch: RowBatch): void;
}

export function loadForThreads(
  options: ThreadPoolOptions,
  services: Services,
  sources: Sources,
  uiSource: UiSource,
  hasInheritedSockets: boolean,
  handed: HandedSockets,
): ThreadedLoad {
  const startThread = options.cluster ? undefined : options.startThread;
  let memory: MainSharedMemory | undefined;
  const loader = createConfigLoader(services, {
    sources,
    uiSource,
    cluster: options.cluster,
    thread: "main",
    shared: () => memory,
  });
  const single = loader.first();
  const around = surroundings({
    isCluster: options.cluster !== undefined,
    canStart: options.startThread !== undefined,
    hasInheritedSockets,
    previousThreads: handed.threads,
  });
  const { count, warning, note } = threadCount(single.config.settings.process, around);
  if (warning !== undefined) services.logger.warn(warning);
  if (note !== undefined) services.logger.info(note);
  if (count === 1 || startThread === undefined)
    return { first: single, loader, threads: 1, openThreadPool: () => undefined };

  single.discard();
  const shared = createSharedMemory(MAIN_THREAD);
  memory = shared;
  const { clock, logger, metrics, logging, environment, store, memory: budget } = services;
  return {
    first: loader.first(),
    loader,
    threads: count,
    openThreadPool: ({ auditFile, instanceId, endpoints, history }) =>
      openThreadPool({
        threads: count,
        clock,
        logger: logger.for("threads"),
        metrics,
        output: options.output,
        memory: shared,
        store,
        sockets: handed.forListeners,
        budget,
        data: {
          environment,
          color: options.color === true,
          version: options.version,
          clockStartMs: clockStartMs(),
          sources: sources.names,
          instanceId,
          auditFailing: auditFile?.failing,
        },
        texts: loader.texts,
        logFilter: () => logging.filter.text,
        endpoints,
        history,
        audit: (line) => auditFile?.write(line),
        start: startThread,
      }),
  };
}

export interface Surroundings {
  readonly platform: string;
  readonly node: string;
  readonly cores: number;
  readonly isCluster: boolean;
  /** False if the gateway is started by another program, such as a test. */
  readonly canStart: boolean;
  /** A service manager opens only one socket per address, and each thread would need one. */
  readonly hasInheritedSockets: boolean;
  /**
   * The number of threads of the previous process in an upgrade, or 0. Each of its sockets needs a thread, and no other
   * socket can share the port of a process with one thread.
   */
  readonly previousThreads: number;
}

export interface ThreadCount {
  readonly count: number;
  /** Explains why there are fewer threads than configured. */
  readonly warning?: string;
  /** Explains why `auto` selects one thread. */
  readonly note?: string;
}

export function surroundings(rest: Omit<Surroundings, "platform" | "node" | "cores">): Surroundings {
  const { platform, versions } = process;
  return { platform, node: versions.node, cores: availableParallelism(), ...rest };
}

export function threadCount({ workers }: Pick<WrittenProcess, "workers">, around: Surroundings): ThreadCount {
  const wanted = workers === "auto" ? around.cores : (workers ?? 1);
  const { previousThreads } = around;
  const why = obstacle(around);
  if (wanted === 1 && (why !== undefined || previousThreads <= 1)) return { count: 1 };
  if (why === undefined && previousThreads > 0 && previousThreads !== wanted)
    return {
      count: previousThreads,
      note: `an upgrade keeps the number of threads, ${previousThreads}; restart to use ${wanted}`,
    };
  if (why === undefined) return { count: wanted };
  // `auto` accepts any number, so one thread is not worth a warning.
  return workers === "auto"
    ? { count: 1, note: `config.workers is auto, and one thread serves: ${why}` }
    : { count: 1, warning: `config.workers is ${wanted}, but one thread serves: ${why}` };
}

function obstacle({ platform, node, isCluster, canStart, hasInheritedSockets }: Surroundings): string | undefined {
  if (isCluster) return "the data plane of a Kubernetes cluster has one thread";
  if (!canStart) return "this program has one thread";
  if (platform !== "linux") return "threads can share a port on Linux only";
  if (!canSharePorts(node)) return `threads can share a port with Node 22.12 or newer only, and this is ${node}`;
  if (hasInheritedSockets) return "the service manager opened the sockets, and a thread needs one of its own";
  return undefined;
}

/** Node.js added `reusePort` in 22.12 and 23.1. */
export function canSharePorts(node: string): boolean {
  const [major = 0, minor = 0] = node.split(".").map(Number);
  return major >= 24 || (major === 23 && minor >= 1) || (major === 22 && minor >= 12);
}
