/**
 * Reads and compiles the configuration, at the start and for each reload.
 */

import type { UiSource } from "../backends/ui/source.ts";
import { LivingObjects } from "../base/living-objects.ts";
import type { SharedMemory } from "../base/shared-memory.ts";
import { finish, type Steps } from "../base/sliced-work.ts";
import type { ConfigGeneration } from "../config/compile/resource-registry.ts";
import type { Sources, SourceText } from "../config/load/load.ts";
import { type Prepared, type PreparedConfig, type PreviousConfig, prepareConfig } from "../config/prepare.ts";
import { EgressGuard } from "../http/egress-guard.ts";
import type { ClusterSource } from "../kubernetes/follow-controller.ts";
import type { Redaction } from "../record/trace/redact.ts";
import type { Services } from "./services.ts";
import { asStartError, StartError } from "./start-error.ts";
import { fileMark } from "./watch.ts";

export interface FirstLoad {
  readonly config: PreparedConfig;
  readonly content: string;
  /** Commits the resources, once the listeners serve the configuration. */
  serves(): void;
  discard(): void;
}

export interface ConfigLoader {
  /** Throws a StartError if the configuration is invalid. */
  first(): FirstLoad;
  /**
   * Compiles the current sources to follow `before`, if there is a configuration before. The caller commits or discards
   * the generation. Throws if the sources cannot be read.
   */
  load(generation: ConfigGeneration, before?: PreparedConfig): Steps<Prepared>;
  paths(): string[];
  /** Returns the `fileMark` of each file that the configuration names, taken when the last load read it. */
  marks(): ReadonlyMap<string, string>;
  content(): string;
  texts(): readonly SourceText[];
}

export interface LoaderOptions {
  readonly sources: Pick<Sources, "read" | "paths" | "content">;
  readonly uiSource: UiSource;
  readonly cluster?: ClusterSource | undefined;
  /** Labels the metrics of this thread. */
  readonly thread: string;
  /** Returns the memory for local rate limits if several threads serve. */
  shared(): SharedMemory | undefined;
}

export function createConfigLoader(
  services: Services,
  { sources, uiSource, cluster, thread, shared }: LoaderOptions,
): ConfigLoader {
  const { clock, environment, logger, tasks, metrics, limits, memory, store, signingKey } = services;
  const generations = new LivingObjects();
  metrics.gauge(
    "gateway_config_generations",
    "Configurations in memory: the one that is served, and earlier ones that requests still use or that were not yet collected.",
    () => [[{ thread }, generations.count()]],
  );
  let readFiles: ReadonlyMap<string, string> = new Map();
  let texts: readonly SourceText[] = [];
  const content = (): string => sources.content(readFiles.keys());
  /** Resources can retain the parameters of this generator, so the configuration before is not one of them. */
  function* loadAfter(
    previous: PreviousConfig | undefined,
    redaction: Redaction | undefined,
    generation: ConfigGeneration,
  ): Steps<Prepared> {
    const files = new Map<string, string>();
    const context = {
      clock,
      environment,
      fetcher: services.fetcher,
      logger,
      tasks,
      metrics,
      limits,
      memory,
      store,
      signingKey,
      shared: shared(),
      redaction,
      generation,
      internals: { uiSource },
      egress: (author: "configuration" | "document") => EgressGuard.for(author),
      cluster: cluster?.current()?.input,
      endpoints: cluster?.endpoints,
      fileRead: (path: string) => void files.set(path, fileMark(path)),
    };
    try {
      texts = sources.read();
      const prepared = yield* prepareConfig(texts, context, previous);
      if (prepared.ok) generations.add(prepared.topology);
      return prepared;
    } finally {
      readFiles = files;
    }
  }
  const load = (generation: ConfigGeneration, before?: PreparedConfig): Steps<Prepared> => {
    const previous = before && { isServing: before.topology.listeners.length > 0, resources: before.resources };
    return loadAfter(previous, before?.settings.redaction, generation);
  };
  return {
    first() {
      const generation = services.resources.begin();
      try {
        const config = finish(load(generation));
        if (!config.ok) throw new StartError(config.problems);
        return { config, content: content(), ...settled(generation) };
      } catch (error) {
        generation.discard();
        throw asStartError(error);
      }
    },
    load,
    paths: () => [...sources.paths(), ...readFiles.keys()],
    marks: () => readFiles,
    content,
    texts: () => texts,
  };
}

function settled(generation: ConfigGeneration): Pick<FirstLoad, "serves" | "discard"> {
  let isOpen = true;
  const once = (settle: () => void) => (): void => {
    if (isOpen) settle();
    isOpen = false;
  };
  return { serves: once(generation.commit), discard: once(generation.discard) };
}
