/**
 * Prepares a configuration: loads it, attaches resource documents, and compiles it. It opens no listener, so that a
 * reload can be prepared next to the running configuration and discarded.
 */
import { createRequire } from "node:module";
import { dirname } from "node:path";
import { onDemand } from "../base/on-demand.ts";
import type { Steps } from "../base/sliced-work.ts";
import { ConfigError } from "../core/config-error.ts";
import type { Topology } from "../core/topology.ts";
import { policies } from "../policies/index.ts";
import { createRedaction, type Redaction } from "../record/trace/redact.ts";
import { isSensitiveName } from "../record/trace/sensitive-names.ts";
import { checkConfig, exposedAdminWarnings } from "./checks/check-config.ts";
import type { AttachedResources } from "./compile/attach-resources.ts";
import { type CompileContext, compileConfig, type ResourceFailure } from "./compile/compile.ts";
import type { Cluster } from "./documents/cluster.ts";
import type { PolicyResource } from "./documents/documents.ts";
import { loadConfig, loadForeign, type PlacedTest, type SourceText, type UnsetPlace } from "./load/load.ts";
import { fieldPlace, type NormalConfig } from "./load/normal-config.ts";
import { plainDollarWarnings } from "./schema/environment-values.ts";
import { configSchema, type WrittenProcess } from "./schema/schema.ts";
import { secretsInConfig } from "./schema/shown-config.ts";
import type { Environment } from "./text/env.ts";
import { pathText } from "./text/value-path.ts";
import type { SourceDocument } from "./text/yaml-source.ts";

const require = createRequire(import.meta.url);
const documents = onDemand<typeof import("./compile/attach-resources.ts")>(() =>
  require("./compile/attach-resources.js"),
);

const NO_RESOURCES: AttachedResources = { resources: [], problems: [] };
const NOTHING_SERVED = "no listeners: the configuration has no `gateways`, `mcp` or `llm`";
const EMPTY = "the configuration is empty";
/** A shorter environment value may be an ordinary word. */
const MIN_KEY_CHARS = 12;

export interface Finding {
  readonly severity: "error" | "warning" | "note";
  readonly problem: ConfigError;
}

/**
 * The part of a configuration that stays in effect until a restart. It is used as long as the process runs, so it refers
 * to no other part of the configuration, and has no functions that could.
 */
export interface ProcessSettings {
  readonly process: WrittenProcess;
  /** The positions of fields of `config`, or only their paths if they are not set. */
  readonly places: Readonly<Record<"adminAddr" | "statsAddr" | "store" | "history", string>>;
  /** Paths in `config` are relative to this folder. */
  readonly folder: string;
  /** Hides the secrets of all configurations so far, and the headers and parameters that carry credentials. */
  readonly redaction: Redaction;
}

/**
 * What the next configuration needs of the running one. It is not the running configuration itself: whatever refers to
 * its predecessor retains all predecessors.
 */
export interface PreviousConfig {
  readonly isServing: boolean;
  readonly resources: readonly PolicyResource[];
}

export interface PreparedConfig {
  readonly ok: true;
  readonly topology: Topology;
  readonly settings: ProcessSettings;
  readonly resources: readonly PolicyResource[];
  readonly failures?: readonly { readonly document: unknown; readonly message: string }[];
  readonly services: Readonly<Record<string, unknown>>;
  readonly warnings: readonly string[];
  readonly findings: readonly Finding[];
  /** Names the security policies, for example `route tools: mcpAuthentication`. */
  readonly security: readonly string[];
  readonly tests: readonly PlacedTest[];
  readonly sources: readonly SourceText[];
}

export type Prepared =
  | PreparedConfig
  | { readonly ok: false; readonly problems: readonly string[]; readonly findings?: readonly Finding[] };

export interface ClusterInput {
  readonly documents: readonly SourceDocument[];
  readonly cluster: Cluster;
}

export interface PrepareContext extends Omit<CompileContext, "redaction"> {
  readonly environment: Environment;
  /** If undefined, a new redaction with the sensitive headers of the file is created. */
  readonly redaction: Redaction | undefined;
  readonly cluster?: ClusterInput | undefined;
  /** If true, unset variables become notes, and placeholders replace their values. */
  readonly allowUnset?: boolean;
}

export function* prepareConfig(
  sources: readonly SourceText[],
  context: PrepareContext,
  previous?: PreviousConfig,
): Steps<Prepared> {
  const options = { allowUnset: context.allowUnset === true };
  const own = yield* loadConfig(sources, context.environment, options);
  const loaded = own.ok ? own : yield* loadForeign(own, sources, context.environment, options);
  if (!loaded.ok) return refused(loaded.problems);
  yield;
  const { config } = loaded;
  // An empty file is probably a failed save.
  if (loaded.isEmpty && previous?.isServing) {
    const at = sources.length === 0 ? undefined : loaded.standalone.position([]);
    return refused([new ConfigError(at, "", EMPTY)]);
  }
  const redaction = context.redaction ?? createRedaction(config.process.sensitiveHeaders);
  redaction.hideValues(secretsInConfig(configSchema.shape.config, config.process, redaction));
  redaction.hideValues(secretsInConfig(configSchema.shape.services, config.services, redaction));
  redaction.hideValues(secretVariables(context.environment));
  const attach = (found: readonly SourceDocument[], cluster?: Cluster): AttachedResources => {
    if (found.length === 0) return NO_RESOURCES;
    return documents().attachResources(config, found, context.clock.now(), previous?.resources, redaction, cluster);
  };
  const attached = attach(loaded.resources);
  const joined = context.cluster ? attach(context.cluster.documents, context.cluster.cluster) : NO_RESOURCES;
  const resources = [...attached.resources, ...joined.resources];
  const { cluster: _, ...compiling } = context;
  const compiled = compileConfig(config, { ...compiling, redaction });
  const problems = compiled.problems.filter((problem) => !isUnset(problem, loaded.unset));
  if (problems.length > 0) return refused(problems);
  const servesNothing = compiled.topology.listeners.length === 0;
  const { adminAddr, statsAddr } = config.process;
  if (servesNothing && previous === undefined && adminAddr === "off" && statsAddr === undefined) {
    const at = loaded.standalone.position(["config", "adminAddr"]);
    // Without a listener, the process would exit immediately.
    return refused([new ConfigError(at, "config.adminAddr", `${NOTHING_SERVED}, and the admin interface is off`)]);
  }
  const checked = checkConfig(config);
  const warnings = [
    ...loaded.warnings,
    ...attached.problems,
    ...joined.problems,
    ...compiled.failures.map(failureOf),
    ...compiled.warnings,
    ...checked.warnings,
    ...exposedAdminWarnings(config, loaded.standalone),
    ...plainDollarWarnings(configSchema, loaded.standalone, context.environment),
    ...(servesNothing ? [nothingServed(sources, loaded.isEmpty)] : []),
  ].filter((warning) => !isUnset(warning, loaded.unset));
  return {
    ok: true,
    topology: compiled.topology,
    settings: {
      process: config.process,
      places: placesOf(config.process, loaded.standalone),
      folder: dirname(loaded.standalone.file),
      redaction,
    },
    resources: resources.length === 0 ? [] : documents().withFailures(resources, compiled.failures),
    failures: compiled.failures.map(({ policy, message }) => ({ document: policy.place.document.value, message })),
    services: config.services,
    warnings: warnings.map((warning) => warning.toLine()),
    findings: [
      ...warnings.map((problem) => ({ severity: "warning", problem }) as const),
      ...[...checked.notes, ...loaded.unset.map(unsetNote)].map((problem) => ({ severity: "note", problem }) as const),
    ],
    security: securityOf(config),
    tests: loaded.tests,
    sources,
  };
}

function placesOf(process: WrittenProcess, document: SourceDocument): ProcessSettings["places"] {
  const placeOf = (field: keyof ProcessSettings["places"]): string =>
    process[field] === undefined ? `config.${field}` : fieldPlace({ document, path: ["config"] }, field);
  return {
    adminAddr: placeOf("adminAddr"),
    statsAddr: placeOf("statsAddr"),
    store: placeOf("store"),
    history: placeOf("history"),
  };
}

/** Providers read keys from the environment if the configuration has none. Paths are not keys. */
function secretVariables(environment: Environment): string[] {
  return Object.entries(environment).flatMap(([name, value]) =>
    value !== undefined && value.length >= MIN_KEY_CHARS && !value.startsWith("/") && isSensitiveName(name, "argument")
      ? [value]
      : [],
  );
}

function failureOf({ policy: { place }, message }: ResourceFailure): ConfigError {
  return new ConfigError(place.document.position(place.path), pathText(place.path), message);
}

function nothingServed(sources: readonly SourceText[], isEmpty: boolean): ConfigError {
  const [first] = sources;
  if (!isEmpty || first === undefined) return new ConfigError(undefined, "", NOTHING_SERVED);
  return new ConfigError({ file: first.file, line: 1, column: 1 }, "", `${EMPTY}, so nothing is served`);
}

function isUnset({ position, path }: ConfigError, unset: readonly UnsetPlace[]): boolean {
  const field = path.replace(/^\S+ \S+: /, "");
  return unset.some(({ document, path: at }) => {
    const written = pathText(at);
    const isBelow = field !== "" && written.startsWith(field) && /^[.[]/.test(written.slice(field.length));
    return document.file === position?.file && (written === field || isBelow);
  });
}

function unsetNote({ document, path, names }: UnsetPlace): ConfigError {
  const which = `${names.length === 1 ? "variable" : "variables"} ${names.join(", ")}`;
  return new ConfigError(document.position(path), pathText(path), `not checked: environment ${which} not set`);
}

function refused(problems: readonly ConfigError[]): Prepared {
  return {
    ok: false,
    problems: problems.map((problem) => problem.toLine()),
    findings: problems.map((problem) => ({ severity: "error", problem })),
  };
}

function securityOf(config: NormalConfig): string[] {
  const kinds = new Set(policies.filter(({ role }) => role === "security").map(({ kind }) => kind));
  return [...config.gateways, ...config.routes].flatMap(({ policies: placed }) =>
    placed
      // A policy in shadow mode protects nothing, so it does not count.
      .filter(({ kind, config: written }) => kinds.has(kind) && (written as { mode?: unknown }).mode !== "shadow")
      .map(({ kind, owner }) => `${owner}: ${kind}`),
  );
}
