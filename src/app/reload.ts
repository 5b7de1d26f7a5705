/**
 * Compiles a changed configuration next to the running one, then applies or rejects it.
 */
import type { Clock } from "../base/clock.ts";
import { runInSlices, type Steps } from "../base/sliced-work.ts";
import type { ConfigGeneration } from "../config/compile/resource-registry.ts";
import { configDump, type ReloadState } from "../config/dump.ts";
import { changesBetween } from "../config/dump-changes.ts";
import type { Prepared, PreparedConfig } from "../config/prepare.ts";
import type { Topology } from "../core/topology.ts";
import type { Applied, ClusterSource } from "../kubernetes/follow-controller.ts";
import type { LogFields, Logger } from "../record/log/logger.ts";
import type { Metrics } from "../record/log/metrics.ts";
import type { ConfigLoader } from "./config-loader.ts";
import type { Services } from "./services.ts";
import { type Watch, watchFiles } from "./watch.ts";

export interface ReloadParts {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly metrics: Metrics;
  readonly sources: readonly string[];
  begin(): ConfigGeneration;
  /** Throws if the sources cannot be read. */
  load(generation: ConfigGeneration, before: PreparedConfig): Steps<Prepared>;
  /** Rejects if a listener cannot be bound. */
  apply(topology: Topology): Promise<void>;
  isShuttingDown(): boolean;
}

export interface Reloads {
  running(): PreparedConfig;
  state(): ReloadState;
  /** Runs one reload at a time. Resolves with the problems of a rejected configuration. */
  reload(): Promise<readonly string[]>;
  refuse(problems: readonly string[]): void;
  /** Called when the sources are readable again and match the running configuration. */
  restored(): void;
}

/** `first` is not one of the parts, which are used for as long as the process runs. */
export function createReloads(parts: ReloadParts, first: PreparedConfig): Reloads {
  const { clock, logger } = parts;
  const counter = parts.metrics.counter("gateway_config_reloads_total", "Configuration loads, by result.", ["result"]);
  const now = (): Date => new Date(clock.now());
  let running = first;
  let state = firstLoad(now(), parts.sources, first.warnings);

  function refuse(problems: readonly string[]): void {
    counter.labels("refused").add();
    state = afterRefusal(state, now(), problems);
    for (const problem of problems) logger.error(problem);
    logger.error("configuration rejected; the previous one stays active", { problems: problems.length });
  }

  function loaded(next: PreparedConfig, before: PreparedConfig): void {
    counter.labels("ok").add();
    const needsRestart =
      JSON.stringify(next.settings.process) === JSON.stringify(before.settings.process) ? [] : ["config"];
    state = afterLoad(state, now(), next.warnings, needsRestart);
    if (needsRestart.length > 0) logger.warn("`config:` changed: restart the gateway to apply it");
    for (const policy of before.security.filter((one) => !next.security.includes(one)))
      logger.warn("reload removed a security policy", { policy });
    for (const warning of next.warnings) logger.warn(warning);
    logger.info("configuration loaded", { generation: state.generation, ...reloadChanges(before, next) });
  }

  async function serving(generation: ConfigGeneration, before: PreparedConfig): Promise<Prepared> {
    try {
      const next = await runInSlices(parts.load(generation, before), () => false);
      if (parts.isShuttingDown()) return { ok: false, problems: ["the gateway is shutting down"] };
      if (next.ok) await parts.apply(next.topology);
      return next;
    } catch (error) {
      return { ok: false, problems: [(error as Error).message] };
    }
  }

  let last: Promise<readonly string[]> = Promise.resolve([]);
  async function reloadNow(): Promise<readonly string[]> {
    if (parts.isShuttingDown()) return [];
    const generation = parts.begin();
    const before = running;
    const next = await serving(generation, before);
    if (!next.ok) {
      generation.discard();
      refuse(next.problems);
      return next.problems;
    }
    // Changes of `config:` need a restart.
    running = { ...next, settings: before.settings };
    generation.commit();
    loaded(next, before);
    return [];
  }

  return {
    running: () => running,
    state: () => state,
    refuse,
    reload() {
      last = last.then(reloadNow, reloadNow);
      return last;
    },
    restored() {
      state = afterRestore(state);
      logger.info("configuration is readable again and unchanged");
    },
  };
}

/** More names are counted. */
const MAX_NAMES = 10;
/** Comparing larger configurations would delay requests. */
const MAX_COMPARED_ROUTES = 500;

/** Describes what a reload added, changed, and removed, for example `changed="route shop, backend shop/backend0"`. */
function reloadChanges(before: PreparedConfig, next: PreparedConfig): LogFields {
  if ([before, next].some(({ topology }) => countRoutes(topology) > MAX_COMPARED_ROUTES)) return {};
  const changes = changesBetween(dumpOf(before), dumpOf(next));
  if (changes.length === 0) return { changed: "nothing" };
  return Object.fromEntries(
    (["added", "changed", "removed"] as const).flatMap((kind) => {
      const names = changes
        .filter(({ change }) => change === kind)
        .map(({ what, name }) => (what === "config" ? name : `${what} ${name}`));
      const more = names.length > MAX_NAMES ? `, and ${names.length - MAX_NAMES} more` : "";
      return names.length === 0 ? [] : [[kind, `${names.slice(0, MAX_NAMES).join(", ")}${more}`]];
    }),
  );
}

function countRoutes({ listeners }: Topology): number {
  return listeners.reduce((sum, { routes }) => sum + routes.length, 0);
}

function dumpOf(loaded: PreparedConfig): Readonly<Record<string, unknown>> {
  return configDump({
    ...loaded,
    ...loaded.settings,
    version: "",
    reload: { loadedAt: "", generation: 0, warnings: [], sources: [], needsRestart: [] },
    ports: new Map(),
  });
}

export function firstLoad(at: Date, sources: readonly string[], warnings: readonly string[]): ReloadState {
  return { loadedAt: at.toISOString(), generation: 1, warnings, sources, needsRestart: [] };
}

export function afterLoad(
  state: ReloadState,
  at: Date,
  warnings: readonly string[],
  needsRestart: readonly string[],
): ReloadState {
  return {
    loadedAt: at.toISOString(),
    generation: state.generation + 1,
    warnings,
    sources: state.sources,
    needsRestart,
  };
}

export function afterRefusal(state: ReloadState, at: Date, problems: readonly string[]): ReloadState {
  return { ...state, refused: { at: at.toISOString(), problems } };
}

export function afterRestore({ refused: _, ...rest }: ReloadState): ReloadState {
  return rest;
}

/** `loaded` is the content of the running configuration. A difference from the current content triggers a reload. */
export function watchConfig(
  { clock, logger }: Pick<Services, "clock" | "logger">,
  loader: Pick<ConfigLoader, "paths" | "marks" | "content">,
  reloads: Reloads,
  loaded: string,
): Watch {
  return watchFiles({
    clock,
    paths: loader.paths,
    marks: loader.marks,
    loaded,
    read: loader.content,
    onChange: () =>
      reloads.reload().then(
        () => undefined,
        (error) => logger.error("reload failed", { error: (error as Error).stack ?? String(error) }),
      ),
    onUnreadable: (error) => reloads.refuse([error.message]),
    onRestored: reloads.restored,
  });
}

export interface FollowedCluster {
  stop(): void;
}

export function followCluster(source: ClusterSource, reloads: Reloads): FollowedCluster {
  let isStopped = false;
  let isRunning = false;
  let loaded = source.current()?.version;
  const failures = (): Applied["failures"] => reloads.running().failures ?? [];
  if (loaded !== undefined) source.applied(loaded, { isServed: true, problems: [], failures: failures() });

  async function run(): Promise<void> {
    if (isRunning) return;
    isRunning = true;
    try {
      while (!isStopped && source.current() !== undefined && source.current()?.version !== loaded) {
        const version = source.current()?.version as string;
        loaded = version;
        const problems = await reloads.reload();
        source.applied(version, { isServed: problems.length === 0, problems, failures: failures() });
      }
    } finally {
      isRunning = false;
    }
  }

  source.onChange(() => void run());
  void run();
  return {
    stop() {
      isStopped = true;
    },
  };
}
