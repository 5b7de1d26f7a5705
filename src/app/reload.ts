/**
 * Reloads: a new configuration is prepared beside the running one and takes its place, or is refused and leaves
 * everything as it was. Here is what runs now, and how the last reload went.
 */

import type { Clock } from "../base/clock.ts";
import type { ConfigGeneration } from "../config/compile/resource-registry.ts";
import type { ReloadState } from "../config/dump.ts";
import type { Prepared } from "../config/prepare.ts";
import type { Topology } from "../core/topology.ts";
import type { Logger } from "../observe/log/logger.ts";
import type { Metrics } from "../observe/log/metrics.ts";
import type { Loaded } from "./config-loader.ts";
import { afterLoad, afterRefusal, afterRestore, firstLoad } from "./reload-state.ts";

export interface ReloadParts {
  readonly clock: Clock;
  /** The logger of the `config` module. */
  readonly logger: Logger;
  readonly metrics: Metrics;
  /** Names of the configuration's sources. */
  readonly sources: readonly string[];
  /** What the process started with. */
  readonly first: Loaded;
  begin(): ConfigGeneration;
  /** Throws when the sources cannot be read. */
  prepare(generation: ConfigGeneration, before: Loaded): Prepared;
  /** Makes the listeners serve it; rejects, with everything as it was, when one cannot be bound. */
  apply(topology: Topology): Promise<void>;
  /** A process that ends takes no new configuration. */
  isShuttingDown(): boolean;
}

export interface Reloads {
  /** The configuration that serves. */
  running(): Loaded;
  state(): ReloadState;
  /** One after the other; gives why it was refused, if it was. */
  reload(): Promise<readonly string[]>;
  refuse(problems: readonly string[]): void;
  /** What could not be read can be read again, and is what runs. */
  restored(): void;
}

export function createReloads(parts: ReloadParts): Reloads {
  const { clock, logger, first } = parts;
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

  function loaded(next: Loaded, before: Loaded): void {
    counter.labels("ok").add();
    const needsRestart = JSON.stringify(next.process) === JSON.stringify(before.process) ? [] : ["config"];
    state = afterLoad(state, now(), next.warnings, needsRestart);
    if (needsRestart.length > 0) logger.warn("`config:` changed: restart the gateway to apply it");
    for (const policy of before.security.filter((one) => !next.security.includes(one)))
      logger.warn("reload removed a security policy", { policy });
    for (const warning of next.warnings) logger.warn(warning);
    logger.info("configuration loaded", { generation: state.generation });
  }

  /** Prepared, and taken over by the listeners; or why not. */
  async function serving(generation: ConfigGeneration, before: Loaded): Promise<Prepared> {
    try {
      const next = parts.prepare(generation, before);
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
    // What is written under `config:` is that of the start until the next one.
    running = { ...next, process: before.process };
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
