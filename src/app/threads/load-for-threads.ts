/**
 * The first load of the configuration, which says how many threads serve. If it is more than one, it is compiled once
 * more, with local limits that count in memory which all threads share.
 */
import type { Worker } from "node:worker_threads";
import type { AdminEndpoint } from "../../admin/server/endpoint.ts";
import type { UiSource } from "../../backends/ui/source.ts";
import { clockStartMs } from "../../base/clock.ts";
import { createSharedMemory, type OwnedSharedMemory } from "../../base/shared-memory.ts";
import type { Sources } from "../../config/load/load.ts";
import type { ClusterSource } from "../../kubernetes/follow-controller.ts";
import type { LogOutput } from "../../observe/log/log-output.ts";
import { type ConfigLoader, createConfigLoader, type FirstLoad } from "../config-loader.ts";
import type { Services } from "../services.ts";
import type { ThreadData } from "./messages.ts";
import { surroundings, threadCount } from "./thread-count.ts";
import { openThreadPool, type ThreadPool } from "./thread-pool.ts";

/** What the main thread marks its locks with: no thread that serves has this number. */
const MAIN_THREAD = 1_000_000;

export type StartThread = (data: ThreadData) => Worker;

export interface ThreadPoolOptions {
  readonly output: LogOutput;
  readonly color?: boolean;
  readonly version: string;
  /** A cluster whose documents are served besides: by one thread, since the others load from texts. */
  readonly cluster?: ClusterSource;
  /** Starts a thread that serves; undefined where this form of the program has none. */
  readonly startThread?: StartThread;
}

export interface ThreadedLoad {
  readonly first: FirstLoad;
  readonly loader: ConfigLoader;
  /** Undefined if one thread serves: this one. */
  openThreadPool(endpoints: () => readonly AdminEndpoint[]): ThreadPool | undefined;
}

/** Throws StartError. */
export function loadForThreads(
  options: ThreadPoolOptions,
  services: Services,
  sources: Sources,
  uiSource: UiSource,
  hasInheritedSockets: boolean,
): ThreadedLoad {
  const startThread = options.cluster ? undefined : options.startThread;
  let memory: OwnedSharedMemory | undefined;
  const loader = createConfigLoader(services, sources, uiSource, () => memory, options.cluster);
  const single = loader.first();
  const around = surroundings({ canStart: startThread !== undefined, hasInheritedSockets });
  const { count, warning, note } = threadCount(single.config.process, around);
  if (warning !== undefined) services.logger.warn(warning);
  if (note !== undefined) services.logger.info(note);
  if (count === 1 || startThread === undefined) return { first: single, loader, openThreadPool: () => undefined };

  single.discard();
  const shared = createSharedMemory(MAIN_THREAD);
  memory = shared;
  const { clock, logger, logging, environment, store, memory: budget } = services;
  return {
    first: loader.first(),
    loader,
    openThreadPool: (endpoints) =>
      openThreadPool({
        threads: count,
        clock,
        logger: logger.for("threads"),
        output: options.output,
        memory: shared,
        store,
        budget,
        data: {
          environment,
          color: options.color === true,
          version: options.version,
          clockStartMs: clockStartMs(),
          sources: sources.names,
        },
        texts: loader.texts,
        logFilter: () => logging.filter.text,
        endpoints,
        start: startThread,
      }),
  };
}
