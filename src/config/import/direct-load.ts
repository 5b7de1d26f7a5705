/**
 * Recognizes a configuration of agentgateway, so that the gateway can load it without a conversion by the user. It is
 * loaded only if every setting has a counterpart.
 */
import { parseYaml, yamlText } from "../../base/yaml-text.ts";
import { ConfigError } from "../../core/config-error.ts";
import type { SourceDocument } from "../text/yaml-source.ts";
import { importAgentgateway } from "./agentgateway.ts";
import { type Conversion, isObject, type Values } from "./conversion.ts";

/** Each of these top-level fields belongs to agentgateway's layout. Other fields have a meaning in both programs. */
const FIELDS: readonly [name: string, isForeign: (value: unknown) => boolean, ours: string][] = [
  ["binds", Array.isArray, "`gateways` and `routes`"],
  ["frontendPolicies", isObject, "`config.telemetry`, `config.logging`, and `authorization` of gateways"],
  ["policies", Array.isArray, "`policies` of a gateway or route"],
  ["backends", Array.isArray, "`backends` of a route"],
];
const SCHEMA_COMMENT = /^#\s*yaml-language-server:\s*\$schema=\S*agentgateway/m;
const CONVERT = "convert it with `gwctl import <file>` and check the result";

export interface ForeignSource {
  /** The converted configuration as YAML, with references to environment variables. */
  readonly text: string;
  readonly warnings: readonly ConfigError[];
  /** Lists settings without a counterpart. The configuration must not be loaded if there are any. */
  readonly problems: readonly ConfigError[];
}

/** Returns undefined if the document is not a configuration of agentgateway. */
export function convertForeign(document: SourceDocument, text: string): ForeignSource | undefined {
  const { value } = document;
  if (!isObject(value) || !(hasForeignLayout(value) || SCHEMA_COMMENT.test(text))) return undefined;
  const conversion = convert(text);
  if (conversion === undefined) return undefined;
  const at = document.position([]);
  return {
    text: yamlText(conversion.config),
    warnings: warningsOf(value, document, conversion),
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
  return FIELDS.some(([name, isForeign]) => isForeign(value[name]));
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
    return importAgentgateway(parseYaml(text));
  } catch {
    // A file with several documents is not a configuration of agentgateway.
    return undefined;
  }
}

function warningsOf(value: Values, document: SourceDocument, { differs }: Conversion): ConfigError[] {
  const whole = `a configuration of agentgateway, converted when it is loaded; \`gwctl import\` writes the result to a file`;
  return [
    new ConfigError(document.position([]), "", whole),
    ...FIELDS.filter(([name, isForeign]) => isForeign(value[name])).map(
      ([name, , ours]) => new ConfigError(document.position([name], "key"), name, `is called ${ours} here`),
    ),
    ...[...new Set(differs)].map(
      (line) => new ConfigError(document.position([]), "", `works differently here: ${line}`),
    ),
  ];
}
