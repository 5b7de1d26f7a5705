/**
 * Warns about expressions that cannot work: attributes that are never set at this point, objects compared with a
 * string, and names that do not exist in this configuration.
 */
import { compileExpression, type Expression } from "../../cel/expression.ts";
import { ATTRIBUTES } from "../../cel/values/attributes.ts";
import { suggestion } from "../../cel/values/nearest-name.ts";
import type { Scope } from "../../core/policy.ts";
import type { Path } from "../text/value-path.ts";
import { type Site, type SitedPolicy, type Warn, warningAt } from "./warnings.ts";

export function checkExpressions({ policy, site }: SitedPolicy, warn: Warn): void {
  for (const { source, path, moment } of expressionsOf(policy.kind, policy.config)) {
    const expression = compileExpression(source);
    for (const message of [
      ...absent(expression, moment, site),
      ...objects(expression),
      ...unknownNames(expression, site),
    ])
      warn(warningAt(policy.place, path, message));
  }
}

function absent(expression: Expression, moment: Moment, site: Site): string[] {
  const { tested } = expression.readings();
  const paths = [...expression.paths].filter((path) => moment !== "requestLimit" || !/^llm\b/.test(path));
  const reasons = new Map<string, string[]>();
  for (const path of paths) {
    const reason = unavailableReason(path, moment, site);
    if (reason === undefined || isTested(path, tested)) continue;
    reasons.set(reason, [...(reasons.get(reason) ?? []), path]);
  }
  return [...reasons].map(
    ([reason, list]) =>
      `${list.map((path) => `\`${path}\``).join(", ")} ${list.length === 1 ? "is" : "are"} never set here, and reading it always fails: ${reason}`,
  );
}

function isTested(path: string, tested: ReadonlySet<string>): boolean {
  return [...tested].some((one) => path === one || path.startsWith(`${one}.`) || one.startsWith(`${path}.`));
}

const FIELDS = ATTRIBUTES.flatMap(({ fields }) => fields);

/** Finds objects that are used like strings, as in `mcp.tool == "echo"`. */
function objects(expression: Expression): string[] {
  const paths = new Set(expression.readings().comparisons.map(({ path }) => path));
  return [...paths].flatMap((path) => {
    const inside = FIELDS.filter((field) => field.path.startsWith(`${path}.`));
    const own = FIELDS.find((field) => field.path === path);
    if (inside.length === 0 || (own !== undefined && own.type !== "map")) return [];
    const text = inside.find(({ path: one, type }) => type === "string" && !one.includes("<"));
    const instead = text === undefined ? "name one of its fields" : `did you mean \`${text.path}\`?`;
    return [`\`${path}\` is an object and never equals a string: ${instead}`];
  });
}

const NAMES: readonly { path: string; noun: string; of(site: Site): readonly string[] | undefined }[] = [
  ...["mcp.target", "mcp.tool.target", "mcp.prompt.target", "mcp.resource.target"].map((path) => ({
    path,
    noun: "MCP server",
    of: targetNames,
  })),
  {
    path: "proxy.route.name",
    noun: "route",
    of: ({ scope, routes, config }) => (scope === "gateway" ? routes : config.routes).map(({ name }) => name),
  },
  { path: "proxy.listener.name", noun: "gateway", of: ({ config }) => config.gateways.map(({ name }) => name) },
  { path: "backend.type", noun: "backend type", of: () => ["static", "mcp", "ai", "internal"] },
  { path: "backend.protocol", noun: "backend protocol", of: () => ["http", "mcp", "llm"] },
  { path: "request.scheme", noun: "scheme", of: () => ["http", "https"] },
];

function unknownNames(expression: Expression, site: Site): string[] {
  const messages = expression.readings().comparisons.flatMap(({ path, values }) => {
    const row = NAMES.find((one) => one.path === path);
    const known = row?.of(site);
    if (row === undefined || known === undefined) return [];
    return values
      .filter((value) => !known.includes(value))
      .map((value) => `there is no ${row.noun} named ${JSON.stringify(value)}${suggestion(value, known)}`);
  });
  return [...new Set(messages)];
}

function targetNames({ backends }: Site): readonly string[] | undefined {
  const names = backends
    .filter(({ key }) => key === "mcp")
    .flatMap(({ config }) => (config as { targets: readonly { name: string }[] }).targets.map(({ name }) => name));
  return names.length === 0 ? undefined : names;
}

// Availability depends on the phase, the scope, earlier policies, and backend kinds. The first row that excludes an
// attribute gives the reason. An attribute that some requests have counts as available.

interface Availability {
  /** The row also applies to the fields of the attribute. */
  readonly path: string;
  readonly neverAt?: readonly Moment[];
  readonly scopes?: readonly Scope[];
  readonly setBy?: readonly string[];
  /** Lists the backends whose requests have the attribute. */
  readonly backends?: readonly string[];
  readonly reason: string;
}

const BEFORE_RESPONSE: readonly Moment[] = ["access", "requestLimit", "tokenLimit", "llmRequest", "request", "item"];
const ONLY_THE_RESPONSE = "only the response tells it, and this runs before the request is sent";
const USAGE = [
  "responseModel",
  "inputTokens",
  "outputTokens",
  "totalTokens",
  "cachedInputTokens",
  "cacheCreationInputTokens",
  "reasoningTokens",
  "cost",
];

const AVAILABILITY: readonly Availability[] = [
  { path: "response", neverAt: BEFORE_RESPONSE, reason: ONLY_THE_RESPONSE },
  ...USAGE.map((name) => ({ path: `llm.${name}`, neverAt: BEFORE_RESPONSE, reason: ONLY_THE_RESPONSE })),
  {
    path: "jwt",
    setBy: ["jwtAuth", "mcpAuthentication", "oidc"],
    reason: "no policy here verifies a token; add `jwtAuth` or `mcpAuthentication`",
  },
  { path: "apiKey", setBy: ["apiKey"], reason: "no policy here checks API keys; add `apiKey`" },
  { path: "basicAuth", setBy: ["basicAuth"], reason: "no policy here checks passwords; add `basicAuth`" },
  { path: "extauthz", setBy: ["extAuthz"], reason: "no policy here calls an authorization service; add `extAuthz`" },
  {
    path: "mcpGuardrails",
    neverAt: ["access", "requestLimit", "tokenLimit", "llmRequest", "request"],
    reason: "the services of `mcpGuardrails` get messages after this; use it in `mcpAuthorization` or in logs",
  },
  { path: "mcpGuardrails", setBy: ["mcpGuardrails"], reason: "no policy here calls a service; add `mcpGuardrails`" },
  {
    path: "llmRequest",
    neverAt: ["access", "requestLimit", "tokenLimit", "request", "response", "item"],
    reason: "only `ai.transformations` read the body this way; use `json(request.body)`",
  },
  { path: "llm", backends: ["ai"], reason: "no LLM backend is reached from here" },
  { path: "mcp", backends: ["mcp"], reason: "no MCP backend is reached from here" },
  { path: "a2a", backends: ["a2a"], reason: "no A2A agent is reached from here" },
  {
    path: "backend",
    neverAt: ["access", "request"],
    scopes: ["gateway"],
    reason: "policies of a gateway run before a backend is chosen",
  },
  {
    path: "proxy.route",
    neverAt: ["access", "request"],
    scopes: ["gateway"],
    reason: "policies of a gateway run before a route is chosen",
  },
];

function unavailableReason(path: string, moment: Moment, site: Site): string | undefined {
  return AVAILABILITY.find((row) => isWithin(path, row.path) && excludes(row, moment, site))?.reason;
}

function excludes({ neverAt, scopes, setBy, backends }: Availability, moment: Moment, site: Site): boolean {
  if (scopes !== undefined && !scopes.includes(site.scope)) return false;
  if (neverAt?.includes(moment)) return true;
  if (setBy !== undefined) {
    // Gateway limits run after the policies of the route. Other gateway policies run before the policies of the route.
    const ran = moment === "access" || moment === "request" ? site.before : site.all;
    return !setBy.some((kind) => ran.has(kind));
  }
  if (backends === undefined || site.routes.length === 0) return false;
  if (site.backends.some(({ key }) => backends.includes(key))) return false;
  // Token limits, budgets, and access rules can parse requests to a host backend as LLM calls.
  const reads = site.all.has("rateLimit") || site.all.has("budgets") || moment === "access";
  return !(backends.includes("ai") && reads && site.backends.some(({ key }) => key === "host"));
}

function isWithin(path: string, parent: string): boolean {
  return path === parent || path.startsWith(`${parent}.`);
}

/**
 * `access` is authentication and authorization, `requestLimit` is admission, and `tokenLimit` runs after the body was
 * parsed as an LLM request, as does `llmRequest`, which computes fields of its body. `request` and `response` are transformations, and `item` runs for each tool, prompt, and
 * resource of an MCP server.
 */
export type Moment = "access" | "requestLimit" | "tokenLimit" | "llmRequest" | "request" | "response" | "item";

export interface ExpressionPlace {
  readonly policy: string;
  /** `*` matches every element or entry. */
  readonly at: readonly string[];
  readonly moment: Moment | ((beside: Readonly<Record<string, unknown>>) => Moment);
  /** Gives the length of the prefix of `at` that leads to the object whose fields determine the phase. */
  readonly decidedBy?: number;
}

export const EXPRESSION_PLACES: readonly ExpressionPlace[] = [
  { policy: "ai", at: ["transformations", "*"], moment: "llmRequest" },
  { policy: "authorization", at: ["rules", "*"], moment: "access" },
  { policy: "authorization", at: ["rules", "*", "*"], moment: "access" },
  { policy: "backendAuth", at: ["jwtSign", "expressions", "*"], moment: "request" },
  { policy: "delay", at: ["duration"], moment: "request" },
  { policy: "directResponse", at: ["bodyExpression"], moment: "request" },
  { policy: "directResponse", at: ["conditional", "*", "condition"], moment: "request" },
  { policy: "directResponse", at: ["conditional", "*", "bodyExpression"], moment: "request" },
  { policy: "extAuthz", at: ["context", "*"], moment: "access" },
  { policy: "extAuthz", at: ["cache", "key"], moment: "access" },
  { policy: "extAuthz", at: ["cache", "key", "*"], moment: "access" },
  { policy: "extAuthz", at: ["cache", "ttl"], moment: "response" },
  { policy: "extAuthz", at: ["path"], moment: "access" },
  { policy: "extAuthz", at: ["body"], moment: "access" },
  { policy: "extAuthz", at: ["redirect"], moment: "access" },
  { policy: "extAuthz", at: ["metadata", "*"], moment: "response" },
  { policy: "jwtAuth", at: ["location", "expression"], moment: "access" },
  { policy: "retry", at: ["condition"], moment: "response" },
  { policy: "retry", at: ["precondition"], moment: "request" },
  { policy: "mcpAuthorization", at: ["rules", "*"], moment: "item" },
  { policy: "mcpAuthorization", at: ["rules", "*", "*"], moment: "item" },
  { policy: "mcpGuardrails", at: ["processors", "*", "metadata", "*"], moment: "item" },
  {
    policy: "rateLimit",
    at: ["local", "*", "key"],
    moment: ({ tokens }) => (tokens === undefined ? "requestLimit" : "tokenLimit"),
    decidedBy: 2,
  },
  {
    policy: "rateLimit",
    at: ["global", "descriptors", "*", "entries", "*", "value"],
    moment: ({ type }) => (type === "tokens" ? "tokenLimit" : "requestLimit"),
    decidedBy: 3,
  },
  { policy: "budgets", at: ["limits", "*", "key"], moment: "tokenLimit" },
  { policy: "transformations", at: ["request", "set", "*"], moment: "request" },
  { policy: "transformations", at: ["request", "add", "*"], moment: "request" },
  { policy: "transformations", at: ["request", "body"], moment: "request" },
  { policy: "transformations", at: ["response", "set", "*"], moment: "response" },
  { policy: "transformations", at: ["response", "add", "*"], moment: "response" },
  { policy: "transformations", at: ["response", "body"], moment: "response" },
];

export interface PlacedExpression {
  readonly source: string;
  /** The path is relative to the policy. */
  readonly path: Path;
  readonly moment: Moment;
}

export function expressionsOf(policy: string, config: unknown): PlacedExpression[] {
  return EXPRESSION_PLACES.filter((place) => place.policy === policy).flatMap((place) =>
    found(config, place.at).map(({ source, path }) => ({ source, path, moment: momentOf(place, config, path) })),
  );
}

function momentOf({ moment, decidedBy = 0 }: ExpressionPlace, config: unknown, path: Path): Moment {
  if (typeof moment !== "function") return moment;
  const beside = path
    .slice(0, decidedBy)
    .reduce<unknown>((value, key) => (value as Record<string | number, unknown>)[key], config);
  return moment(beside as Readonly<Record<string, unknown>>);
}

function found(value: unknown, at: readonly string[], path: Path = []): { source: string; path: Path }[] {
  const [step, ...rest] = at;
  if (step === undefined) return typeof value === "string" ? [{ source: value, path }] : [];
  if (typeof value !== "object" || value === null) return [];
  if (step !== "*") {
    const inner = Object.hasOwn(value, step) ? (value as Record<string, unknown>)[step] : undefined;
    return found(inner, rest, [...path, step]);
  }
  const entries: [string | number, unknown][] = Array.isArray(value) ? [...value.entries()] : Object.entries(value);
  return entries.flatMap(([key, inner]) => found(inner, rest, [...path, key]));
}
