/**
 * From texts to something that can serve: load, attach resource documents, compile. Nothing is opened to the
 * outside, so that a reload can be prepared beside the running configuration and thrown away.
 */
import { ConfigError } from "../core/errors.ts";
import type { Topology } from "../core/topology.ts";
import { policies } from "../policies/index.ts";
import { createRedaction, type Redaction } from "../trace/redact.ts";
import { attachResources, withFailures } from "./compile/attach-resources.ts";
import { type CompileContext, compileConfig, type ResourceFailure } from "./compile/compile.ts";
import { fieldPlace } from "./load/field-place.ts";
import { loadConfig, type SourceText } from "./load/load.ts";
import type { NormalConfig } from "./load/normal-config.ts";
import type { PolicyResource } from "./resources/documents.ts";
import { plainDollarWarnings } from "./schema/plain-dollars.ts";
import { configSchema, type WrittenProcess } from "./schema/schema.ts";
import type { Environment } from "./text/env.ts";
import { pathText } from "./text/yaml-source.ts";

const NOTHING_SERVED = "nothing is served: the configuration has neither `gateways` nor `mcp` nor `llm`";

export type Prepared =
  | {
      readonly ok: true;
      readonly topology: Topology;
      readonly process: WrittenProcess;
      /** Where an address of the process itself stands; only its path if nobody wrote it. */
      processWrittenAt(field: "adminAddr" | "statsAddr"): string;
      /** Knows the headers and parameters in which this configuration reads and adds credentials. */
      readonly redaction: Redaction;
      readonly resources: readonly PolicyResource[];
      readonly services: Readonly<Record<string, unknown>>;
      readonly warnings: readonly string[];
      /** `route tools: mcpAuthentication`, for noticing what a reload takes away. */
      readonly security: readonly string[];
    }
  | { readonly ok: false; readonly problems: readonly string[] };

export interface PrepareContext extends Omit<CompileContext, "redaction"> {
  readonly environment: Environment;
  /** That of the running process; undefined at start, when the file's own sensitive headers count. */
  readonly redaction: Redaction | undefined;
}

export function prepareConfig(sources: readonly SourceText[], context: PrepareContext, before?: Prepared): Prepared {
  const loaded = loadConfig(sources, context.environment);
  if (!loaded.ok) return refused(loaded.problems);
  const { config } = loaded;
  // What a failed save leaves behind; whoever wants nothing served stops the process or writes `{}`.
  if (loaded.isEmpty && before?.ok && before.topology.listeners.length > 0) {
    const at = sources.length === 0 ? undefined : loaded.standalone.position([]);
    return refused([new ConfigError(at, "", "the configuration is empty")]);
  }
  const redaction = context.redaction ?? createRedaction(config.process.sensitiveHeaders);
  const attached = attachResources(
    config,
    loaded.resources,
    context.clock.now(),
    before?.ok ? before.resources : undefined,
    redaction,
  );
  const compiled = compileConfig(config, { ...context, redaction });
  if (compiled.problems.length > 0) return refused(compiled.problems);
  const servesNothing = compiled.topology.listeners.length === 0;
  const { adminAddr, statsAddr } = config.process;
  if (servesNothing && before === undefined && adminAddr === "off" && statsAddr === undefined) {
    const at = loaded.standalone.position(["config", "adminAddr"]);
    // Without any socket the process would end at once.
    return refused([new ConfigError(at, "config.adminAddr", `${NOTHING_SERVED}, and the admin interface is off`)]);
  }
  return {
    ok: true,
    topology: compiled.topology,
    process: config.process,
    processWrittenAt: (field) =>
      config.process[field] === undefined
        ? `config.${field}`
        : fieldPlace({ document: loaded.standalone, path: ["config"] }, field),
    redaction,
    resources: withFailures(attached.resources, compiled.failures),
    services: config.services,
    warnings: [
      ...attached.problems.map((problem) => problem.toLine()),
      ...compiled.failures.map(failureLine),
      ...compiled.warnings,
      ...plainDollarWarnings(configSchema, loaded.standalone, context.environment),
      ...(servesNothing ? [NOTHING_SERVED] : []),
    ],
    security: securityOf(config),
  };
}

function failureLine({ policy: { place }, message }: ResourceFailure): string {
  return new ConfigError(place.document.position(place.path), pathText(place.path), message).toLine();
}

function refused(problems: readonly ConfigError[]): Prepared {
  return { ok: false, problems: problems.map((problem) => problem.toLine()) };
}

function securityOf(config: NormalConfig): string[] {
  const kinds = new Set(policies.filter(({ role }) => role === "security").map(({ kind }) => kind));
  return [...config.gateways, ...config.routes].flatMap(({ policies: placed }) =>
    placed.filter(({ kind }) => kinds.has(kind)).map(({ kind, owner }) => `${owner}: ${kind}`),
  );
}
