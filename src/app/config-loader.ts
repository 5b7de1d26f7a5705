/**
 * Reads and compiles the configuration, at the start and for each reload, with the same services. It remembers which
 * other files (keys, certificates) the last attempt read, so that the watcher looks at them too.
 */
import type { UiSource } from "../backends/ui/source.ts";
import type { SharedMemory } from "../base/shared-memory.ts";
import type { ConfigGeneration } from "../config/compile/resource-registry.ts";
import type { Sources, SourceText } from "../config/load/load.ts";
import { type Prepared, prepareConfig } from "../config/prepare.ts";
import type { ClusterSource } from "../kubernetes/follow-controller.ts";
import type { Redaction } from "../observe/trace/redact.ts";
import type { Services } from "./services.ts";
import { asStartError, StartError } from "./start-error.ts";

/** A configuration that can serve. */
export type Loaded = Extract<Prepared, { ok: true }>;

export interface FirstLoad {
  readonly config: Loaded;
  /** All that it was made of, by which a later change is noticed. */
  readonly content: string;
  /** The listeners serve it: what it opened stays. */
  serves(): void;
  /** The gateway ends: what it opened is closed, unless it serves and others have it in hand. */
  discard(): void;
}

export interface ConfigLoader {
  /** At the start; throws StartError. */
  first(): FirstLoad;
  /** Like `first`, for a thread: the main thread has it in hand what becomes of it. */
  begin(generation: ConfigGeneration): Prepared;
  /** Beside a running one; throws when the sources cannot be read. */
  next(generation: ConfigGeneration, before: Loaded): Prepared;
  /** Every path to look at now. */
  paths(): string[];
  content(): string;
  /** What was read last, as all threads get it. */
  texts(): readonly SourceText[];
}

/** `shared`: where local limits count, if several threads serve. */
export function createConfigLoader(
  services: Services,
  sources: Pick<Sources, "read" | "paths" | "content">,
  uiSource: UiSource,
  shared: () => SharedMemory | undefined = () => undefined,
  cluster?: ClusterSource,
): ConfigLoader {
  const { clock, environment, logger, tasks, metrics, limits, memory, store, signingKey } = services;
  const readFiles = new Set<string>();
  let texts: readonly SourceText[] = [];
  const content = (): string => sources.content(readFiles);
  const prepare = (generation: ConfigGeneration, redaction: Redaction | undefined, before?: Loaded): Prepared => {
    readFiles.clear();
    const context = {
      clock,
      environment,
      fetch: services.fetcher.fetch,
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
      cluster: cluster?.current()?.input,
      endpoints: cluster?.endpoints,
      fileRead: (path: string) => void readFiles.add(path),
    };
    texts = sources.read();
    return prepareConfig(texts, context, before);
  };
  return {
    first() {
      const generation = services.resources.begin();
      try {
        const config = prepare(generation, undefined);
        if (!config.ok) throw new StartError(config.problems);
        return { config, content: content(), ...settled(generation) };
      } catch (error) {
        generation.discard();
        throw asStartError(error);
      }
    },
    begin: (generation) => prepare(generation, undefined),
    next: (generation, before) => prepare(generation, before.redaction, before),
    paths: () => [...sources.paths(), ...readFiles],
    content,
    texts: () => texts,
  };
}

/** A generation is committed or discarded, and only once. */
function settled(generation: ConfigGeneration): Pick<FirstLoad, "serves" | "discard"> {
  let isOpen = true;
  const once = (settle: () => void) => (): void => {
    if (isOpen) settle();
    isOpen = false;
  };
  return { serves: once(generation.commit), discard: once(generation.discard) };
}
