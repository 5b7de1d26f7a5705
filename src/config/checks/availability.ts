/**
 * Which attributes can be there: at which moment, at which scope, behind which policies, for which kinds of backends. One
 * table; the first row that excludes an attribute says why. Only what is certain is said: an attribute that is there for
 * some requests is there.
 */
import type { Scope } from "../../core/policy.ts";
import type { Moment } from "./policy-expressions.ts";
import type { Site } from "./site.ts";

export interface Availability {
  /** The attribute with everything below it. */
  readonly path: string;
  /** Never there at these moments, optionally only at some scopes. */
  readonly neverAt?: readonly Moment[];
  readonly scopes?: readonly Scope[];
  /** There only behind one of these policies. */
  readonly setBy?: readonly string[];
  /** There only if requests can reach such a backend, or a plain one whose LLM calls are counted. */
  readonly backends?: readonly string[];
  readonly reason: string;
}

const BEFORE_RESPONSE: readonly Moment[] = ["access", "requestLimit", "tokenLimit", "request", "item"];
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

export const AVAILABILITY: readonly Availability[] = [
  { path: "response", neverAt: BEFORE_RESPONSE, reason: ONLY_THE_RESPONSE },
  ...USAGE.map((name) => ({ path: `llm.${name}`, neverAt: BEFORE_RESPONSE, reason: ONLY_THE_RESPONSE })),
  {
    path: "jwt",
    setBy: ["jwtAuth", "mcpAuthentication", "oidc"],
    reason: "no policy here verifies a token; add `jwtAuth` or `mcpAuthentication`",
  },
  { path: "apiKey", setBy: ["apiKey"], reason: "no policy here checks API keys; add `apiKey`" },
  { path: "basicAuth", setBy: ["basicAuth"], reason: "no policy here checks passwords; add `basicAuth`" },
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

/** Why an attribute can never be read there; undefined if it can. */
export function neverThere(path: string, moment: Moment, site: Site): string | undefined {
  return AVAILABILITY.find((row) => isWithin(path, row.path) && excludes(row, moment, site))?.reason;
}

function excludes({ neverAt, scopes, setBy, backends }: Availability, moment: Moment, site: Site): boolean {
  if (scopes !== undefined && !scopes.includes(site.scope)) return false;
  if (neverAt?.includes(moment)) return true;
  if (setBy !== undefined) {
    // Limits of a gateway are asked when the route's policies have run; its other policies run before them.
    const ran = moment === "access" || moment === "request" ? site.before : site.all;
    return !setBy.some((kind) => ran.has(kind));
  }
  if (backends === undefined || site.routes.length === 0) return false;
  if (site.backends.some(({ key }) => backends.includes(key))) return false;
  // A token limit makes LLM calls of what goes to a plain backend.
  const reads = site.all.has("rateLimit") || site.all.has("budgets") || moment === "access";
  return !(backends.includes("ai") && reads && site.backends.some(({ key }) => key === "host"));
}

function isWithin(path: string, parent: string): boolean {
  return path === parent || path.startsWith(`${parent}.`);
}
