/**
 * Opens the configured store and measures its operations. Policies and backends receive the store while the
 * configuration is compiled, before the store is open. Until it is open, operations are rejected.
 */

import type { Clock } from "../base/clock.ts";
import type { MemoryBudget, MemoryLimits } from "../base/memory-budget.ts";
import type { Logger } from "../record/log/logger.ts";
import { type Counter, DURATION_BUCKETS_SECONDS, type Histogram, type Metrics } from "../record/log/metrics.ts";
import { openFolderStore } from "./folder-store.ts";
import { createMemoryStore } from "./memory-store.ts";
import { createProcessBus, type ProcessBus } from "./process-bus.ts";
import { type Change, type Store, StoreUnavailable } from "./store.ts";
import type { TableLimits } from "./table.ts";

export type StoreSettings =
  | { readonly kind: "memory"; readonly content?: Iterable<Change>; readonly cacheBytes?: number | undefined }
  | { readonly kind: "folder"; readonly folder: string; readonly cacheBytes?: number | undefined }
  | {
      readonly kind: "redis";
      readonly url: string;
      readonly prefix: string;
      readonly timeoutMs: number;
      readonly ca?: string | undefined;
    };

export interface StoreEnv {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly metrics: Metrics;
  readonly memory: MemoryBudget;
}

export interface ConfigurableStore extends Store {
  /** Rejects if the store is unusable. An unavailable Redis is not an error. */
  open(settings: StoreSettings): Promise<void>;
  /** Switches to another store, for example the store of the next process, and returns the previous one. */
  switchTo(store: Store): Store | undefined;
  /** Sets whether another process uses this store through this process. */
  setServed(isServed: boolean): void;
  /** Connects the processes of an upgrade. A store with its own bus does not use it. */
  readonly processBus: ProcessBus;
  /** Contains 1 while `isShared` is true. Worker threads read it. */
  readonly sharedFlag: SharedArrayBuffer;
}

type Operation = "get" | "set" | "delete" | "replace" | "add" | "list" | "sync";

export function createConfigurableStore(env: StoreEnv): ConfigurableStore {
  const { clock, metrics } = env;
  let inner: Store | undefined;
  let isServed = false;
  const processBus = createProcessBus();
  const sharedFlag = new SharedArrayBuffer(4);
  const isShared = (): boolean => isServed || inner?.isShared === true;
  const updateFlag = (): void => void Atomics.store(new Int32Array(sharedFlag), 0, isShared() ? 1 : 0);
  let stopReclaiming: () => void = () => undefined;
  const outcomes = metrics.counter("gateway_store_operations_total", "Operations of the store by outcome.", [
    "operation",
    "outcome",
  ]);
  const durations = metrics.histogram(
    "gateway_store_operation_duration_seconds",
    "How long operations of the store took.",
    DURATION_BUCKETS_SECONDS,
    ["operation"],
  );

  const succeeded: Partial<Record<Operation, Counter>> = {};
  const times: Partial<Record<Operation, Histogram>> = {};

  async function measured<Result>(operation: Operation, work: (store: Store) => Promise<Result>): Promise<Result> {
    const startMs = clock.monotonicMs();
    try {
      if (inner === undefined) throw new StoreUnavailable("it is not open");
      const result = await work(inner);
      succeeded[operation] ??= outcomes.labels(operation, "ok");
      succeeded[operation].add();
      return result;
    } catch (error) {
      outcomes.labels(operation, error instanceof StoreUnavailable ? "unavailable" : "error").add();
      throw error;
    } finally {
      times[operation] ??= durations.labels(operation);
      times[operation].observe((clock.monotonicMs() - startMs) / 1000);
    }
  }

  return {
    get kind() {
      return inner?.kind ?? "memory";
    },
    get bus() {
      return inner?.bus ?? processBus;
    },
    get isShared() {
      return isShared();
    },
    processBus,
    sharedFlag,
    setServed(isNowServed) {
      isServed = isNowServed;
      updateFlag();
    },
    async open(settings) {
      inner = await openStore(settings, env);
      updateFlag();
      stopReclaiming();
      stopReclaiming = env.memory.onShortage("cache", { reclaim: () => inner?.dropCache?.() === true });
      metrics.gauge("gateway_store_up", "1 while the store can be used, 0 while it is degraded.", () => [
        [{ kind: inner?.kind ?? "memory" }, inner?.health().state === "up" ? 1 : 0],
      ]);
    },
    switchTo(store) {
      const before = inner;
      inner = store;
      updateFlag();
      return before;
    },
    get: (key) => measured("get", (store) => store.get(key)),
    set: (key, value, options) => measured("set", (store) => store.set(key, value, options)),
    delete: (key) => measured("delete", (store) => store.delete(key)),
    replace: (key, expected, value, options) =>
      measured("replace", (store) => store.replace(key, expected, value, options)),
    add: (key, amount, options) => measured("add", (store) => store.add(key, amount, options)),
    list: (prefix, cursor) => measured("list", (store) => store.list(prefix, cursor)),
    sync: () => measured("sync", (store) => store.sync()),
    health: () => inner?.health() ?? { state: "degraded", reason: "it is not open" },
    get bytes() {
      return inner?.bytes ?? 0;
    },
    dropCache: () => inner?.dropCache?.() === true,
    content: () => inner?.content?.(),
    async close() {
      stopReclaiming();
      await inner?.close();
    },
  };
}

async function openStore(settings: StoreSettings, { clock, logger, memory }: StoreEnv): Promise<Store> {
  switch (settings.kind) {
    case "memory":
      return createMemoryStore(clock, settings.content, tableLimits(memory.limits, settings.cacheBytes));
    case "folder":
      return openFolderStore(settings.folder, {
        clock,
        logger,
        limits: tableLimits(memory.limits, settings.cacheBytes),
      });
    case "redis": {
      // Avoids loading the Redis client if Redis is not configured.
      const { openRedisStore } = await import("./redis-store.ts");
      return openRedisStore(settings, logger, clock);
    }
  }
}

/** Increasing the cache size increases the total, so that sessions and logins keep their share. */
function tableLimits({ storeBytes, cacheBytes }: MemoryLimits, wantedBytes = cacheBytes): TableLimits {
  return { maxBytes: storeBytes + Math.max(0, wantedBytes - cacheBytes), cacheBytes: wantedBytes };
}
