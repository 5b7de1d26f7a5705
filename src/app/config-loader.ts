/**
 * Reads and compiles the configuration, at the start and for each reload.
 */
import type { UiSource } from "../backends/ui/source.ts";
import type { SharedMemory } from "../base/shared-memory.ts";
import { finish, runInSlices, type Steps } from "../base/sliced-work.ts";
import type { ConfigGeneration } from "../config/compile/resource-registry.ts";
import type { Sources, SourceText } from "../config/load/load.ts";
import { type Prepared, prepareConfigInSteps } from "../config/prepare.ts";
import { fileMark } from "../config/watch.ts";
import type { ClusterSource } from "../kubernetes/follow-controller.ts";
import type { Redaction } from "../observe/trace/redact.ts";
import type { Services } from "./services.ts";
import { asStartError, StartError } from "./start-error.ts";

export type Loaded = Extract<Prepared, { ok: true }>;

export interface FirstLoad {
  readonly config: Loaded;
  readonly content: string;
  /** Commits the resources, once the listeners serve the configuration. */
  serves(): void;
  discard(): void;
}

export interface ConfigLoader {
  /** Throws a StartError if the configuration is invalid. */
  first(): FirstLoad;
  /** Compiles the first configuration of a worker thread. The caller commits or discards the generation. */
  begin(generation: ConfigGeneration): Prepared;
  /** Throws if the sources cannot be read. */
  next(generation: ConfigGeneration, before: Loaded): Prepared;
  /** Like `next`, but lets other work run while a large configuration is parsed. Rejects if `next` would throw. */
  nextInSlices(generation: ConfigGeneration, before: Loaded): Promise<Prepared>;
  paths(): string[];
  /** Returns the `fileMark` of each file that the configuration names, taken when the last load read it. */
  marks(): ReadonlyMap<string, string>;
  content(): string;
  texts(): readonly SourceText[];
}

/** `shared` returns the memory for local rate limits if several threads serve. */
export function createConfigLoader(
  services: Services,
  sources: Pick<Sources, "read" | "paths" | "content">,
  uiSource: UiSource,
  shared: () => SharedMemory | undefined = () => undefined,
  cluster?: ClusterSource,
): ConfigLoader {
  const { clock, environment, logger, tasks, metrics, limits, memory, store, signingKey } = services;
  let readFiles: ReadonlyMap<string, string> = new Map();
  let texts: readonly SourceText[] = [];
  const content = (): string => sources.content(readFiles.keys());
  function* prepareInSteps(
    generation: ConfigGeneration,
    redaction: Redaction | undefined,
    before?: Loaded,
  ): Steps<Prepared> {
    const files = new Map<string, string>();
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
      fileRead: (path: string) => void files.set(path, fileMark(path)),
    };
    try {
      texts = sources.read();
      return yield* prepareConfigInSteps(texts, context, before);
    } finally {
      readFiles = files;
    }
  }
  const prepare = (generation: ConfigGeneration, redaction: Redaction | undefined, before?: Loaded): Prepared =>
    finish(prepareInSteps(generation, redaction, before));
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
    nextInSlices: (generation, before) =>
      runInSlices(prepareInSteps(generation, before.redaction, before), () => false),
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
