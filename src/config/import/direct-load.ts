/**
 * Recognizes a configuration of agentgateway, so that the gateway can load it without a conversion by the user. It is
 * loaded only if every setting has a counterpart.
 */
import { peerInput } from "../../base/peer-inputs.ts";
import { readYaml } from "../../base/read-yaml.ts";
import { yamlText } from "../../base/yaml-text.ts";
import { ConfigError } from "../../core/config-error.ts";
import { pathText } from "../text/value-path.ts";
import type { SourceDocument } from "../text/yaml-source.ts";
import { importAgentgateway } from "./agentgateway.ts";
import { asObject, type Conversion, isObject, type Values } from "./conversion.ts";

const IMPORTED = peerInput("file/configuration");

type Path = readonly (string | number)[];
type ForeignField = readonly [path: Path, isForeign: (value: unknown) => boolean, ours: string];

/** Each of these top-level fields belongs to agentgateway's layout. */
const LAYOUT: readonly ForeignField[] = [
  [["binds"], Array.isArray, "`gateways` and `routes`"],
  [["frontendPolicies"], isObject, "`config.telemetry`, `config.logging`, and `authorization` of gateways"],
  [["policies"], Array.isArray, "`policies` of a gateway or route"],
  [["backends"], Array.isArray, "`backends` of a route"],
];
/** These settings of agentgateway can also be a mistake in a configuration of this gateway. */
const SETTINGS: readonly ForeignField[] = [
  [["config", "tracing"], (value) => isObject(value) && "otlpEndpoint" in value, "`config.telemetry.otlp`"],
  [["config", "mcp"], isObject, "`sessionIdleTtl` next to `targets`"],
  [["config", "database"], isObject, "`config.history`"],
  [["llm", "providers"], Array.isArray, "`providers`, with only `name`, `provider`, and `params`,"],
  [["llm", "virtualModels"], (value) => /\bllmRequest\b/.test(JSON.stringify(value)), "`json(request.body)`"],
];
/** These policies have other names here. */
const POLICIES: ReadonlyMap<string, string> = new Map([
  ["localRateLimit", "`rateLimit.local`"],
  ["remoteRateLimit", "`rateLimit.global`"],
]);
const SCHEMA_COMMENT = /^#\s*yaml-language-server:\s*\$schema=\S*agentgateway/m;
const CONVERT = "convert it with `gwctl import <file>` and check the result";

export interface ForeignSource {
  /** False if the document could also be a configuration of this gateway with a mistake. */
  readonly isCertain: boolean;
  /** The converted configuration as YAML, with references to environment variables. */
  readonly text: string;
  readonly warnings: readonly ConfigError[];
  /** Lists settings without a counterpart. The configuration must not be loaded if there are any. */
  readonly problems: readonly ConfigError[];
}

/** Returns undefined if the document is not a configuration of agentgateway. */
export function convertForeign(document: SourceDocument, text: string): ForeignSource | undefined {
  const { value } = document;
  if (!isObject(value)) return undefined;
  const isCertain = hasForeignLayout(value) || SCHEMA_COMMENT.test(text);
  const found = [...[...LAYOUT, ...SETTINGS].filter((field) => isIn(value, field)), ...foreignPolicies(value)];
  // Several plain rules are alternatives there, and all of them are required here.
  if (!isCertain && (found.length === 0 || hasSeveralPlainRules(value))) return undefined;
  const conversion = convert(text);
  if (conversion === undefined) return undefined;
  const at = document.position([]);
  return {
    isCertain,
    text: yamlText(conversion.config),
    warnings: warningsOf(found, document, conversion),
    problems: [
      ...conversion.leftOut.map(
        (line) => new ConfigError(at, "", `agentgateway's setting has no counterpart: ${line}`),
      ),
      ...conversion.closed.map((line) => new ConfigError(at, "", `a protection would be missing: ${line}`)),
    ],
  };
}

/** Returns whether a top-level field belongs to the layout of agentgateway. */
export function hasForeignLayout(value: Values): boolean {
  return LAYOUT.some((field) => isIn(value, field));
}

function isIn(document: Values, [path, isForeign]: ForeignField): boolean {
  const value = path.reduce<unknown>((inner, key) => asObject(inner)[key], document);
  return value !== undefined && isForeign(value);
}

function foreignPolicies(value: unknown, path: Path = []): ForeignField[] {
  if (typeof value !== "object" || value === null) return [];
  return Object.entries(value).flatMap(([key, inner]): ForeignField[] => {
    const at = [...path, Array.isArray(value) ? Number(key) : key];
    const ours = path.at(-1) === "policies" ? POLICIES.get(key) : undefined;
    return ours === undefined ? foreignPolicies(inner, at) : [[at, () => true, ours]];
  });
}

function hasSeveralPlainRules(value: unknown): boolean {
  if (typeof value !== "object" || value === null) return false;
  return Object.entries(value).some(([key, inner]) => {
    const isPlain = key === "rules" && Array.isArray(inner);
    const plain = isPlain ? inner.filter((rule) => typeof rule === "string") : [];
    return plain.length > 1 || hasSeveralPlainRules(inner);
  });
}

/** The summary of a configuration that cannot be loaded, before the list of its settings. */
export function notLoadable(document: SourceDocument): ConfigError {
  return new ConfigError(document.position([]), "", `this configuration of agentgateway cannot be loaded: ${CONVERT}`);
}

/**
 * Parses the text again, because the values of the document contain the values of variables, in which a dollar sign is
 * no reference.
 */
function convert(text: string): Conversion | undefined {
  try {
    return importAgentgateway(readYaml(IMPORTED, text));
  } catch {
    // A file with several documents is not a configuration of agentgateway.
    return undefined;
  }
}

function warningsOf(found: readonly ForeignField[], document: SourceDocument, { differs }: Conversion): ConfigError[] {
  const whole = `a configuration of agentgateway, converted when it is loaded; \`gwctl import\` writes the result to a file`;
  return [
    new ConfigError(document.position([]), "", whole),
    ...found.map(
      ([path, , ours]) => new ConfigError(document.position(path, "key"), pathText(path), `is called ${ours} here`),
    ),
    ...[...new Set(differs)].map(
      (line) => new ConfigError(document.position([]), "", `works differently here: ${line}`),
    ),
  ];
}
