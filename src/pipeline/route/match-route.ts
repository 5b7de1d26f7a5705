/**
 * Matches requests to routes. The routes of a listener are sorted once, at configuration load, by precedence (hostname,
 * exact path, longest prefix, regex, method, headers, query, order), and the first match wins. Then it chooses a backend
 * of the route: that of the client's session, or a canary that takes the request. Otherwise the choice is random by
 * weight. Ejected backends are skipped if others are available.
 */
import { readForm } from "../../base/form.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { linearRegex } from "../../base/regex.ts";
import { GatewayError } from "../../core/errors.ts";
import type { Exchange, GatewayRequest } from "../../core/exchange.ts";
import type {
  Listener,
  ListenerScopes,
  ListenerSection,
  Route,
  RouteMatch,
  ValueMatch,
  WeightedBackend,
} from "../../core/topology.ts";
import {
  type CanonicalHost,
  canonicalPattern,
  canonicalServerName,
  createHostTable,
  type HostTable,
  hostOf,
  matchesHost,
} from "../../http/host.ts";
import { alternativePaths, findAmbiguity, mayBeAmbiguous } from "../../http/request-path.ts";

const PATTERN = peerInput("file/pattern");
const QUERY = peerInput("client/query");

export interface RouteTable {
  /**
   * `path` replaces the request's path in the match. Throws a GatewayError if a header or query parameter of the match
   * is ambiguous.
   */
  match(request: GatewayRequest, path?: string): Route | undefined;
  /** Returns the names of all routes whose host name matches, for traces and errors. */
  evaluated(request: GatewayRequest): string[];
}

interface Candidate {
  readonly route: Route;
  readonly host: CanonicalHost;
  readonly except: readonly CanonicalHost[];
  readonly path: PathTest;
  readonly method: string | undefined;
  readonly headers: readonly ValueTest[];
  readonly query: readonly ValueTest[];
  readonly order: number;
}

interface PathTest {
  readonly rank: 0 | 1 | 2;
  readonly length: number;
  test(path: string): boolean;
}

interface ValueTest {
  readonly name: string;
  test(value: string): boolean;
}

export function createRouteTable(routes: readonly Route[]): RouteTable {
  const candidates: Candidate[] = [];
  for (const route of routes) {
    for (const host of route.hostnames.length === 0 ? ["*"] : route.hostnames) {
      for (const match of route.matches)
        candidates.push(candidate(route, canonicalPattern(host), match, candidates.length));
    }
  }
  candidates.sort(byPrecedence);

  // Listeners with a single catch-all route skip the matching.
  const only =
    candidates.length === 1 && isCatchAll(candidates[0] as Candidate) ? (candidates[0] as Candidate).route : undefined;

  return {
    match(request, path = request.path) {
      if (only) return only;
      const host = hostOf(request.host);
      for (const one of candidates)
        if (hostFits(one, host) && one.path.test(path) && restMatches(one, request)) return one.route;
      return undefined;
    },
    evaluated(request) {
      const host = hostOf(request.host);
      return [...new Set(candidates.filter((one) => hostFits(one, host)).map((one) => one.route.name))];
    },
  };
}

function candidate(route: Route, host: CanonicalHost, match: RouteMatch, order: number): Candidate {
  return {
    route,
    host,
    except: (route.except ?? []).map(canonicalPattern),
    path: pathTest(match),
    method: match.method,
    headers: (match.headers ?? []).map((header) => valueTest({ ...header, name: header.name.toLowerCase() })),
    query: (match.query ?? []).map(valueTest),
    order,
  };
}

function pathTest({ path }: RouteMatch): PathTest {
  if ("exact" in path) return { rank: 0, length: path.exact.length, test: (value) => value === path.exact };
  if ("regex" in path) {
    const regex = linearRegex(PATTERN, `^(?:${path.regex})$`);
    return { rank: 2, length: path.regex.length, test: (value) => regex.test(value) };
  }
  // A prefix ends at a segment boundary, so `/mcp` matches `/mcp/x` but not `/mcpx`.
  const prefix = path.pathPrefix.replace(/\/+$/, "");
  const withSlash = `${prefix}/`;
  return {
    rank: 1,
    length: prefix.length,
    test: (value) => value === prefix || value.startsWith(withSlash) || (prefix === "" && value === "*"),
  };
}

function valueTest(match: ValueMatch): ValueTest {
  if (match.exact !== undefined) return { name: match.name, test: (value) => value === match.exact };
  const regex = linearRegex(PATTERN, `^(?:${match.regex ?? ".*"})$`);
  return { name: match.name, test: (value) => regex.test(value) };
}

function byPrecedence(a: Candidate, b: Candidate): number {
  return (
    hostRank(b.host) - hostRank(a.host) ||
    a.path.rank - b.path.rank ||
    b.path.length - a.path.length ||
    Number(b.method !== undefined) - Number(a.method !== undefined) ||
    b.headers.length - a.headers.length ||
    b.query.length - a.query.length ||
    a.order - b.order
  );
}

/** Exact names rank first, then wildcards by length, then any host. */
function hostRank(host: string): number {
  if (host === "*") return 0;
  return host.startsWith("*.") ? host.length : 10_000 + host.length;
}

function hostFits(one: Candidate, host: CanonicalHost): boolean {
  if (!matchesHost(one.host, host)) return false;
  return one.except.length === 0 || !one.except.some((pattern) => matchesHost(pattern, host));
}

function restMatches(one: Candidate, request: GatewayRequest): boolean {
  return (
    (one.method === undefined || one.method === methodForMatching(request)) &&
    (one.headers.length === 0 || one.headers.every((test) => headerMatches(test, request))) &&
    (one.query.length === 0 || queryMatches(one.query, request.query))
  );
}

/** A preflight request matches the route of the method in `access-control-request-method`. */
function methodForMatching(request: GatewayRequest): string {
  if (request.method !== "OPTIONS") return request.method;
  return request.headers.get("access-control-request-method") ?? request.method;
}

function headerMatches(test: ValueTest, { headers }: GatewayRequest): boolean {
  if (headers.isAmbiguous(test.name)) throw ambiguous(`the header ${test.name}`, "is repeated or has another spelling");
  return valueMatches(test, headers.get(test.name));
}

function ambiguous(what: string, problem: string): GatewayError {
  return new GatewayError("bad_request", { message: `bad request: ${what}, which chooses the route, ${problem}` });
}

function valueMatches(test: ValueTest, value: string | undefined): boolean {
  return value !== undefined && test.test(value);
}

function queryMatches(tests: readonly ValueTest[], query: string): boolean {
  const parameters = readForm(QUERY, query);
  return tests.every((test) => {
    const values = parameters.getAll(test.name);
    if (values.length > 1) throw ambiguous(`the query parameter ${test.name}`, "is repeated");
    return valueMatches(test, values[0]);
  });
}

function isCatchAll(one: Candidate): boolean {
  return (
    one.host === "*" &&
    one.except.length === 0 &&
    one.path.rank === 1 &&
    one.path.length === 0 &&
    one.method === undefined &&
    one.headers.length === 0 &&
    one.query.length === 0
  );
}

export function rejectMisdirected(
  parts: HostTable<string> | undefined,
  { source: { serverName }, request }: Pick<Exchange, "source" | "request">,
): void {
  if (parts === undefined || serverName === undefined) return;
  const host = hostOf(request.host);
  if (parts.find(canonicalServerName(serverName)) === parts.find(host)) return;
  throw new GatewayError("misdirected_request", {
    detail: `the connection is for ${serverName}, the request for ${host}`,
  });
}

const sectionNames = new WeakMap<readonly ListenerSection[], HostTable<ListenerScopes>>();

/** Returns the policies of the listener, or those of the listener with the request's host name on a shared port. */
export function selectScopes(listener: Listener, request: GatewayRequest): ListenerScopes {
  const { sections } = listener;
  if (sections === undefined) return listener;
  const entries = (one: ListenerSection): [string, ListenerScopes][] =>
    one.hostname === undefined ? [] : [[one.hostname, one]];
  const names = sectionNames.get(sections) ?? createHostTable(sections.flatMap(entries));
  sectionNames.set(sections, names);
  const found = names.find(hostOf(request.host));
  return found ?? sections.find(({ hostname }) => hostname === undefined) ?? listener;
}

/**
 * Returns the route whose preface runs before the access policies of the gateway, if there are any. The policies may
 * change the request, so that another route matches it later.
 */
export function matchEarly(scopes: ListenerScopes, table: RouteTable, request: GatewayRequest): Route | undefined {
  return scopes.policies.access.length === 0 ? undefined : table.match(request);
}

const SHOWN_ROUTES = 10;

export function rejectAmbiguousPath(request: GatewayRequest, route: Route, table: RouteTable): void {
  const { path } = request;
  if (!mayBeAmbiguous(path)) return;
  const ambiguity = findAmbiguity(path);
  if (!(route.protection === "paths" && ambiguity !== undefined) && !alternativePaths(path).some(isProtectedElsewhere))
    return;
  throw new GatewayError("bad_request", {
    message: `bad request: ${ambiguity ?? "an ambiguous spelling"} in the path of a protected route`,
  });

  function isProtectedElsewhere(reading: string): boolean {
    const other = table.match(request, reading);
    return other !== undefined && other !== route && other.protection !== "none";
  }
}

export function routeNotFound(request: GatewayRequest, table: RouteTable): GatewayError {
  const { method, host, path } = request;
  const names = table.evaluated(request);
  const tried = names.length === 0 ? "no route has this host name" : `tried ${names.slice(0, SHOWN_ROUTES).join(", ")}`;
  return new GatewayError("route_not_found", { detail: `nothing matches ${method} ${host}${path}: ${tried}` });
}

/** `random` returns a number in [0, 1). */
export function chooseBackend(route: Route, random: () => number, exchange?: Exchange): WeightedBackend | undefined {
  const { backends, totalWeight } = route;
  if (backends.length === 1) return totalWeight > 0 ? backends[0] : undefined;
  if (exchange !== undefined)
    for (const candidate of backends)
      if (candidate.canary?.takes(exchange, random) && candidate.backend.routing?.health?.isEjected !== true)
        return candidate;
  if (totalWeight <= 0) return undefined;
  const ejectedWeight = totalEjectedWeight(backends);
  // If all backends are ejected, trying one is better than failing.
  const skipsEjected = ejectedWeight > 0 && ejectedWeight < totalWeight;
  let remaining = random() * (skipsEjected ? totalWeight - ejectedWeight : totalWeight);
  for (const candidate of backends) {
    if (skipsEjected && candidate.backend.routing?.health?.isEjected) continue;
    remaining -= candidate.weight;
    if (remaining < 0) return candidate;
  }
  return backends.findLast(
    (candidate) => candidate.weight > 0 && !(skipsEjected && candidate.backend.routing?.health?.isEjected),
  );
}

/**
 * Returns the backend of the client's session, even if its weight is 0, and sets its endpoint. Returns undefined if the
 * client has no session, or the backend is ejected and others are available.
 */
export function chooseBySession(route: Route, exchange: Exchange): WeightedBackend | undefined {
  const server = route.policies.settings.sessions?.find(exchange, route);
  const chosen = server && route.backends[server.index];
  if (chosen === undefined) return undefined;
  const isAvailable = ({ weight, backend }: WeightedBackend): boolean =>
    weight > 0 && backend.routing?.health?.isEjected !== true;
  if (chosen.backend.routing?.health?.isEjected === true && route.backends.some(isAvailable)) return undefined;
  exchange.upstream.preferred = server?.address;
  return chosen;
}

function totalEjectedWeight(backends: readonly WeightedBackend[]): number {
  let weight = 0;
  for (const candidate of backends) if (candidate.backend.routing?.health?.isEjected) weight += candidate.weight;
  return weight;
}
