/**
 * Suggests fixes for unknown fields: names from other programs, typos, and fields at the wrong level.
 */
import { z } from "zod";
import { lookupTable } from "../../base/lookup-table.ts";
import { suggestion } from "../../cel/values/nearest-name.ts";
import { below, knownKeys, unwrap } from "./schema-walk.ts";

/** A file with one of these names at the top level belongs to a program whose configuration `gwctl import` converts. */
const IMPORTED_NAMES: ReadonlySet<string> = new Set(["mcpServers", "model_list", "binds", "mcpProxy"]);

const FOREIGN_NAMES = lookupTable<string>({
  mcpServers: "mcp.targets",
  servers: "mcp.targets",
  listeners: "gateways",
  model_list: "llm.models",
  command: "stdio.cmd",
  localRateLimit: "rateLimit.local",
  remoteRateLimit: "rateLimit.global",
});

const MAX_PLACES = 3;

/** Checks for a name from another program, then a typo, then a field at the wrong level. */
export function unknownFieldHint(key: string, schemas: readonly z.ZodType[]): string {
  const known = knownKeys(schemas);
  const foreign = foreignWord(key, known);
  const hint = foreign === undefined ? suggestion(key, known) || fieldHint(key, schemas) : `: ${foreign}`;
  if (!IMPORTED_NAMES.has(key) || !ROOT.every((name) => known.includes(name))) return hint;
  return `${hint === "" ? ":" : `${hint}, or`} convert a file of another program with \`gwctl import <file>\``;
}

function fieldHint(key: string, schemas: readonly z.ZodType[]): string {
  const meant = Object.hasOwn(FOREIGN_NAMES, key) ? FOREIGN_NAMES[key] : undefined;
  if (meant !== undefined) {
    const here = foreignPlace(meant, schemas);
    return here === undefined ? "" : `: use \`${here}\``;
  }
  const places = placesOf(key, schemas);
  return places.length === 0 ? "" : `: move it below ${places.map((name) => `\`${name}\``).join(" or ")}`;
}

/** Returns the path relative to the current object, so `command` inside `stdio` is just `cmd`. */
function foreignPlace(meant: string, schemas: readonly z.ZodType[]): string | undefined {
  const [first = meant, last = meant] = meant.split(".");
  const known = knownKeys(schemas);
  if (known.includes(last)) return last;
  if (known.includes(first)) return meant;
  const [place, another] = placesOf(first, schemas);
  return place === undefined || another !== undefined ? undefined : `${place}.${meant}`;
}

/** Applies to values such as `port: "3000"`. */
export function quotesHint(expected: string, value: unknown): string {
  const isNumber = expected === "number" || expected === "int";
  return isNumber && typeof value === "string" && /^\d+$/.test(value) ? ": remove the quotes" : "";
}

/**
 * Other programs wrap a string (`authority: { full: x }`, `key: { value: x }`) or accept a command line (`stdio: "npx
 * -y x"`).
 */
export function objectHint(expected: string, value: unknown): string {
  if (expected === "object" && typeof value === "string" && value.includes(" "))
    return ": write `cmd` and `args` if it is a command";
  if (expected !== "string" || typeof value !== "object" || value === null || Array.isArray(value)) return "";
  const wrapped = ["full", "value", "exact"].find((name) => Object.hasOwn(value, name));
  return wrapped === undefined ? "" : `: write the text of \`${wrapped}\` itself`;
}

/**
 * Returns the fields that accept the key one level deeper, for hints about wrong indentation (`cmd` next to `stdio`) or
 * a policy outside `policies`. Returns none if too many fields or entries with user-defined names accept the key.
 */
function placesOf(key: string, schemas: readonly z.ZodType[]): string[] {
  const knows = (list: readonly z.ZodType[]): boolean => knownKeys(list).includes(key);
  const fields = [...new Set(knownKeys(schemas))].map((name) => ({ name, inner: below(schemas, name) }));
  const isOfEntries = fields.some(({ inner }) => knows(entriesOf(inner)));
  const names = fields.filter(({ inner }) => knows([...inner, ...elementsOf(inner)])).map(({ name }) => name);
  return isOfEntries || names.length > MAX_PLACES ? [] : names;
}

function elementsOf(schemas: readonly z.ZodType[]): z.ZodType[] {
  return schemas.flatMap((one) => (one instanceof z.ZodArray ? unwrap(one.element as z.ZodType) : []));
}

function entriesOf(schemas: readonly z.ZodType[]): z.ZodType[] {
  return schemas.flatMap((one) => (one instanceof z.ZodRecord ? unwrap(one.valueType as z.ZodType) : []));
}

export interface ForeignWord {
  readonly word: string;
  /** The hint applies only to objects that accept all of these fields. If the list is empty, it applies everywhere. */
  readonly beside: readonly string[];
  readonly say: string;
}

const GUIDE = "see docs/migrate.md";
const ROOT = ["gateways", "routes"];
const REMOTE = ["url", "forwardHeaders"];
const LIMIT = ["unit", "burst"];
const MODEL = ["provider", "params"];
const TARGET = ["stdio", "shared"];
const PROCESS = ["adminAddr", "sensitiveHeaders"];

const write = (beside: readonly string[], words: readonly string[], instead: string): ForeignWord[] =>
  words.map((word) => ({ word, beside, say: `write ${instead}` }));

const unsupported = (words: readonly string[], instead = ""): ForeignWord[] =>
  words.map((word) => ({ word, beside: [], say: `not supported here${instead === "" ? "" : `; ${instead}`}` }));

export const FOREIGN_WORDS: readonly ForeignWord[] = [
  // These names come from agentgateway.
  ...write(ROOT, ["binds"], `\`gateways\` and \`routes\` instead (${GUIDE})`),
  ...write(ROOT, ["backends"], "`backends` inside a route"),
  ...write(REMOTE, ["host", "port", "path"], "one `url` instead of `host`, `port` and `path`"),
  ...write(["exact", "regex", "name"], ["value"], "`exact` or `regex` beside `name`"),
  ...write(["file"], ["value", "location"], "the text of `value` as `key` itself, and `header` beside it"),
  ...write(
    LIMIT,
    ["maxTokens", "tokensPerFill", "fillInterval", "requestsPerUnit", "type"],
    "`requests` or `tokens`, and `unit`",
  ),
  ...write(["pathPrefix"], ["prefix"], "`pathPrefix`"),
  ...write(["pathPrefix"], ["type", "value"], "`pathPrefix`, `exact` or `regex` with the path as its value"),
  ...write(["openAI", "anthropic"], ["name", "type"], "the provider's name as the field, for example `openAI: {}`"),
  ...write(["provider", "groups"], ["routes"], "nothing: the format is recognized by the request's path"),
  ...write(MODEL, ["auth"], "`params.apiKey`"),
  ...write(MODEL, ["transformation"], '`params.model`, where `"*"` stands for what `*` in `name` matched'),
  ...write(MODEL, ["guardrails"], "`policies.ai.promptGuard` of the section or route"),
  ...write(["models"], ["guardrails"], "`policies.ai.promptGuard`"),
  ...write(PROCESS, ["mcp"], "`sessionIdleTtl` beside `targets`"),
  ...write(PROCESS, ["database"], "`history`"),
  ...write(PROCESS, ["readinessAddr"], "`statsAddr`, which also serves /healthz/ready"),
  ...write(["keepFailed"], ["otlpEndpoint", "randomSampling"], "`telemetry.otlp` below `config`"),
  ...write(PROCESS, ["modelCatalog"], "`modelCatalog` below `llm` or `ai`"),
  ...write(["targets", "prefixMode"], ["sessionTtl"], "`sessionIdleTtl`"),
  ...unsupported(["azureProjectName"], "Azure is reached by `azureResourceName`"),
  ...unsupported(["a2a"], "write a backend `a2a`"),
  ...unsupported(["tlsRoutes"], "write `tcpRoutes`"),
  ...unsupported(["routeGroups", "workloads"]),
  ...unsupported(["frontendPolicies"], "`gwctl import agentgateway` converts it to `config`"),
  ...unsupported(["networkAuthorization"], "write `authorization` with rules on `source.address`"),
  ...unsupported(["tokenExchange"], "write `backendAuth.oauth`"),
  ...unsupported(["inferenceRouting"], "write `endpointPicker`"),
  ...unsupported(["sessionAffinity"], "write `sessionPersistence`"),
  ...unsupported(["tunnelProtocol", "hbone", "evictionPolicy", "agentCore"]),
  { word: "name", beside: ["host", "weight"], say: "remove it; only a `service` or an `ai` provider has a name" },

  // These names come from LiteLLM.
  ...write(MODEL, ["model_name"], "`name`"),
  ...write(MODEL, ["litellm_params"], "`provider` and `params`"),
  ...write(["baseUrl", "apiKey"], ["api_base"], "`baseUrl`"),
  ...write(["baseUrl", "apiKey"], ["rpm", "tpm"], "`policies.rateLimit` of the section or route"),
  ...write(ROOT, ["router_settings"], `\`llm.virtualModels\` (${GUIDE})`),
  ...write(ROOT, ["litellm_settings"], `fields of \`llm\` and its \`policies\` (${GUIDE})`),
  ...write(ROOT, ["general_settings"], `\`policies.apiKey\` instead of \`master_key\` (${GUIDE})`),
  ...write(ROOT, ["environment_variables"], "`${NAME}` where a value is needed"),
  ...write(ROOT, ["mcp_servers"], "`mcp.targets`"),
  ...write(["models"], ["fallbacks", "router_settings"], "`virtualModels` with `failover`"),
  ...write(["models"], ["master_key"], "`policies.apiKey`"),
  ...unsupported(["model_info"], "write prices into `modelCatalog`"),
  ...unsupported(["max_budget"], "write `budgets` below `policies`"),
  ...unsupported(["callbacks", "success_callback"], "write `config.telemetry.otlp` or `config.history`"),
  ...unsupported(["drop_params"], "parameters that a provider does not know are rejected and named"),

  // These names come from supergateway and mcp-proxy.
  ...write(["targets"], ["outputTransport"], "nothing: `/mcp` and `/sse` are both served"),
  ...write(["targets"], ["streamableHttpPath", "ssePath", "messagePath"], "`routes[].matches` with an `mcp` backend"),
  ...write(["targets"], ["sessionTimeout"], "`sessionIdleTtl`"),
  ...write(["targets"], ["stateful"], "nothing: sessions are always kept"),
  ...write(["targets"], ["healthEndpoint"], "nothing: `/healthz/ready` is on the admin address"),
  ...write(ROOT, ["logLevel"], "`config.logging.level`"),
  ...write(["targets"], ["logLevel"], "`config.logging.level` beside `mcp`"),
  ...write(REMOTE, ["oauth2Bearer", "header"], "`headers`"),

  // These names come from MCP client configurations.
  ...write(TARGET, ["type", "transport"], "`stdio`, `mcp` or `sse`: the field's name says which it is"),
  ...write(TARGET, ["autoApprove", "alwaysAllow"], "`policies.mcpAuthorization`"),
  ...unsupported(["disabled"], "leave the entry out"),
];

export const FOREIGN_KINDS: Readonly<Record<string, string>> = {
  AIGatewayRoute: "write an HTTPRoute, and the providers as `services` or `llm` in the configuration file",
  AIServiceBackend: "write the provider as `ai` below `services` in the configuration file",
  BackendSecurityPolicy: "write the credential as `auth` of the `ai` backend",
  MCPRoute: "write an HTTPRoute, and the servers as `mcp` below `services` in the configuration file",
  BackendTrafficPolicy: "write a GatewayPolicy with `spec.traffic`",
  SecurityPolicy: "write a GatewayPolicy with `spec.traffic`",
  AgentgatewayPolicy: "write a GatewayPolicy",
  AgentgatewayBackend: "write the backend below `services` in the configuration file",
};

export function foreignWord(word: string, known: readonly string[]): string | undefined {
  return FOREIGN_WORDS.find((row) => row.word === word && row.beside.every((field) => known.includes(field)))?.say;
}
