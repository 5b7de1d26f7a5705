/**
 * Reviews which routes, MCP tools, and models each principal may use, with dry runs instead of traffic.
 */
import { newForm } from "../../base/form.ts";
import type { GivenToken, RecordedIdentity, StoredKeyIdentity } from "../../core/dry-env.ts";
import { ERRORS } from "../../core/errors.ts";
import type { Exchange, Step } from "../../core/exchange.ts";
import type { CompiledPolicy, CompiledScope, ConfiguredPrincipal } from "../../core/policy.ts";
import { keyPrincipal, personName, shownPrincipal, tokenPrincipal } from "../../core/principal.ts";
import type { Claims } from "../../core/request-attributes.ts";
import type { Listener, Route, RouteMatch, Topology } from "../../core/topology.ts";
import { matchPattern } from "../../llm/request/read-request.ts";
import { policies } from "../../policies/index.ts";
import type { RecordedRequest } from "../../record/recorded-request.ts";
import type { DryRunner, Walked } from "./dry-run.ts";

type AccessKind = "route" | "tool" | "model";

export interface Principal {
  readonly name: string;
  readonly kind: "anonymous" | "token" | ConfiguredPrincipal["kind"];
  readonly attributes: Readonly<Record<string, unknown>>;
  readonly recorded?: RecordedIdentity;
  readonly given?: GivenToken;
}

export interface AccessItem {
  readonly kind: AccessKind;
  /** A tool is named `server/tool`. */
  readonly name: string;
  readonly listener: string;
  readonly route: string;
}

export interface AccessReason {
  readonly allowed: boolean;
  readonly code: string | null;
  readonly policy: string | null;
  readonly rule: string | null;
  /** Locates the rule or the policy, for example `config.yaml:12:5`. */
  readonly at: string | null;
  readonly text: string;
}

/** `results[item][principal]` is an index into `reasons`, because many results have the same reason. */
export interface AccessReview {
  readonly principals: readonly Pick<Principal, "name" | "kind" | "attributes">[];
  readonly items: readonly AccessItem[];
  readonly reasons: readonly AccessReason[];
  readonly results: readonly (readonly number[])[];
  readonly notes: readonly string[];
}

export interface NamedTool {
  /** If undefined, the tool belongs to every backend that has the target. */
  readonly backend?: string;
  readonly target: string;
  readonly tool: string;
}

export interface NamedItems {
  readonly tools: readonly NamedTool[];
  readonly models: readonly string[];
}

/** Parses items such as `tool:files/delete_file` and `model:gpt-5`. */
export function namedItems(items: readonly string[]): NamedItems {
  return {
    tools: items.flatMap((item) => {
      const [, target, tool] = /^tool:([^/]+)\/(.+)$/s.exec(item) ?? [];
      return target === undefined || tool === undefined ? [] : [{ target, tool }];
    }),
    models: items.flatMap((item) => (item.startsWith("model:") ? [item.slice("model:".length)] : [])),
  };
}

interface AccessScope {
  readonly topology: Topology;
  readonly runner: DryRunner;
  readonly principals: readonly Principal[];
  readonly named: NamedItems;
  isWanted?(kind: AccessKind, name: string): boolean;
}

export async function reviewAccess(
  { topology, runner, principals, named, isWanted = () => true }: AccessScope,
  yieldThread: () => Promise<void> | undefined = () => undefined,
): Promise<AccessReview> {
  const notes = new Set<string>();
  const groups = topology.listeners.flatMap((listener) =>
    listener.routes.flatMap((route) => itemGroups(listener, route, named, isWanted, notes)),
  );
  const reasons = createReasons(topology);
  const items: AccessItem[] = [];
  const results: number[][] = [];
  for (const group of groups) {
    const columns = group.items.map((): number[] => []);
    let elsewhere: string | undefined;
    for (const principal of principals) {
      let walked: Walked | undefined;
      for (const [index, item] of group.items.entries()) {
        if (walked === undefined || item.kind !== "tool") {
          const walking = walkItem(runner, group, item, principal);
          walked = walking instanceof Promise ? await walking : walking;
          const { route } = walked.exchange;
          if (route !== undefined && route !== group.route.name) elsewhere = route;
        }
        columns[index]?.push(reasons.add(decide(walked, item), group));
        if (!holdsForTools(walked, item)) walked = undefined;
        const pause = yieldThread();
        if (pause !== undefined) await pause;
      }
      if (elsewhere !== undefined) break;
    }
    if (elsewhere === undefined) {
      items.push(...group.items.map(({ kind, name }) => itemOf(group, kind, name)));
      results.push(...columns);
    } else notes.add(`route ${group.route.name} is not reviewed: its requests reach route ${elsewhere}`);
  }
  return {
    principals: principals.map(({ name, kind, attributes }) => ({ name, kind, attributes })),
    items,
    reasons: reasons.all,
    results,
    notes: [...notes],
  };
}

interface ItemGroup {
  readonly listener: Listener;
  readonly route: Route;
  readonly request: RecordedRequest;
  readonly items: readonly GroupItem[];
}

interface GroupItem {
  readonly kind: AccessKind;
  readonly name: string;
  readonly attributes: Pick<RecordedRequest, "mcp" | "llm">;
}

function itemOf({ listener, route }: ItemGroup, kind: AccessKind, name: string): AccessItem {
  return { kind, name, listener: listener.name, route: route.name };
}

function itemGroups(
  listener: Listener,
  route: Route,
  named: NamedItems,
  isWanted: NonNullable<AccessScope["isWanted"]>,
  notes: Set<string>,
): ItemGroup[] {
  const backends = new Set(route.backends.map(({ backend }) => backend.attributes.name));
  const described = route.backends.map(({ backend }) => ({ type: backend.attributes.type, ...backend.describe() }));
  const servers = new Set(described.flatMap(serverNames));
  const models = [...new Set(described.flatMap((backend) => modelNames(backend, named.models)))];
  const isLlm = described.some(({ type }) => type === "ai");
  const found: GroupItem[] = [
    ...models.map((name): GroupItem => ({ kind: "model", name, attributes: { llm: { requestModel: name } } })),
    ...named.tools
      .filter(({ backend, target }) => servers.has(target) && (backend === undefined || backends.has(backend)))
      .map(toolItem),
  ];
  // A rule about models may deny a request without a model, so a route with known models is reviewed by model.
  if (models.length === 0)
    found.push({
      kind: "route",
      name: route.name,
      attributes: servers.size > 0 ? { mcp: { methodName: "initialize" } } : {},
    });
  const items = found.filter(({ kind, name }) => isWanted(kind, name));
  if (items.length === 0) return [];
  const request = exampleRequest(listener, route, isLlm, servers.size > 0);
  if (typeof request !== "string") return [{ listener, route, request, items }];
  notes.add(`route ${route.name} is not reviewed: ${request}`);
  return [];
}

function toolItem({ target, tool }: NamedTool): GroupItem {
  const mcp = { methodName: "tools/call", target, tool: { name: tool, target } };
  return { kind: "tool", name: `${target}/${tool}`, attributes: { mcp } };
}

function serverNames({ targets, type }: Readonly<Record<string, unknown>>): string[] {
  if (type !== "mcp" || !Array.isArray(targets)) return [];
  return targets.map(({ name }: { readonly name: string }) => name);
}

function modelNames(
  { models, modelPatterns, type }: Readonly<Record<string, unknown>>,
  named: readonly string[],
): readonly string[] {
  if (type !== "ai" || !Array.isArray(models)) return [];
  const patterns: readonly string[] = Array.isArray(modelPatterns) ? modelPatterns : [];
  const isCovered = (model: string): boolean =>
    (models.length === 0 && patterns.length === 0) || patterns.some((one) => matchPattern(one, model) !== undefined);
  return [...models, ...named.filter(isCovered)];
}

/** Returns a request for the route's first match, or the reason why there is none. */
function exampleRequest(listener: Listener, route: Route, isLlm: boolean, isMcp: boolean): RecordedRequest | string {
  const [match] = route.matches;
  if (match === undefined) return "it has no match";
  const path = examplePath(match, isLlm);
  if (path === undefined) return "its path is a regular expression";
  const headers: string[] = [];
  for (const { name, exact } of match.headers ?? []) {
    if (exact === undefined) return `the header ${name} is matched with a regular expression`;
    headers.push(name.toLowerCase(), exact);
  }
  const query = newForm();
  for (const { name, exact } of match.query ?? []) {
    if (exact === undefined) return `the parameter ${name} is matched with a regular expression`;
    query.append(name, exact);
  }
  return {
    id: "access-review",
    at: 0,
    durationMs: 0,
    listener: listener.name,
    method: match.method ?? (isLlm || isMcp ? "POST" : "GET"),
    scheme: listener.tls ? "https" : "http",
    host: exampleHost(route),
    path,
    query: query.toString(),
    source: "127.0.0.1",
    route: route.name,
    status: null,
    code: null,
    subject: null,
    policies: [],
    principals: [],
    headers,
  };
}

const CHAT_PATH = "/v1/chat/completions";

function examplePath({ path }: RouteMatch, isLlm: boolean): string | undefined {
  if ("exact" in path) return path.exact;
  if (!("pathPrefix" in path)) return undefined;
  const prefix = path.pathPrefix.replace(/\/$/, "");
  if (!isLlm) return prefix === "" ? "/" : prefix;
  return prefix.endsWith("/v1") ? `${prefix.slice(0, -"/v1".length)}${CHAT_PATH}` : `${prefix}${CHAT_PATH}`;
}

function exampleHost({ hostnames }: Route): string {
  const [hostname = "localhost"] = hostnames;
  return hostname.startsWith("*") ? `any${hostname.slice(1)}` : hostname;
}

function walkItem(
  runner: DryRunner,
  { request }: ItemGroup,
  { attributes }: GroupItem,
  { recorded, given }: Principal,
): Walked | Promise<Walked> {
  return runner.walk({ ...request, ...attributes }, { isFree: true, client: { recorded, given } });
}

/**
 * Returns whether the run for a tool also holds for other tools of the route. A rule of `authorization` that reads the
 * message needs a run for each tool.
 */
function holdsForTools({ exchange }: Walked, { kind }: GroupItem): boolean {
  return kind === "tool" && !exchange.mcp.isJudged;
}

interface Decision {
  readonly isAllowed: boolean;
  readonly exchange: Exchange;
  /** Names the policy that decided, if no step does. */
  readonly policy?: string;
}

const ITEM_RULES = "mcpAuthorization";

function decide({ exchange, called }: Walked, { attributes: { mcp } }: GroupItem): Decision {
  if (mcp?.tool === undefined || called === undefined) {
    // A security policy that responds itself does not admit the client, for example if it redirects to the login page.
    const isStopped = exchange.steps.some(({ policy, verdict }) => verdict === "answered" && SECURITY.has(policy));
    return { isAllowed: called !== undefined || (exchange.failure === undefined && !isStopped), exchange };
  }
  const { access } = exchange.mcp;
  if (access === undefined) return { isAllowed: true, exchange };
  const { name, target } = mcp.tool;
  // The run may have been for another tool, and denials of listed items are not recorded.
  exchange.attributes.mcp = { methodName: "tools/call" };
  exchange.decidedBy = undefined;
  return { isAllowed: access.allows("tool", name, target, {}), exchange, policy: ITEM_RULES };
}

const SECURITY: ReadonlySet<string> = new Set(
  policies.filter(({ role }) => role === "security").map(({ kind }) => kind),
);

function createReasons({ listeners }: Topology) {
  const all: AccessReason[] = [];
  const indexes = new Map<string, number>();
  /** Contains the indexes by what decided, so that most decisions need no position. */
  const byGroup = new Map<ItemGroup, Map<string, number>>();

  function position(group: ItemGroup, phase: string, kind: string, rule: string | undefined): string | null {
    const compiled = scopesOf(listeners, group, phase)
      .flatMap(policiesIn)
      .find((policy) => policy.kind === kind);
    return compiled?.writtenAt?.(rule) ?? null;
  }

  function indexOf(reason: Omit<AccessReason, "text">): number {
    const key = `${reason.allowed} ${reason.code} ${reason.policy} ${reason.at} ${reason.rule}`;
    const known = indexes.get(key);
    if (known !== undefined) return known;
    indexes.set(key, all.length);
    return all.push({ ...reason, text: reasonText(reason) }) - 1;
  }

  return {
    all,
    add({ isAllowed, exchange, policy }: Decision, group: ItemGroup): number {
      const { failure, steps, decidedBy } = exchange;
      const step =
        policy === undefined
          ? isAllowed
            ? admittingStep(exchange)
            : steps.findLast(({ verdict }) => verdict !== "passed")
          : steps.findLast((one) => one.policy === policy);
      const rule = decidedBy !== undefined && decidedBy.policy === step?.policy ? decidedBy.rule : undefined;
      const code = policy === undefined ? (failure?.code ?? null) : "authorization_denied";
      const decided = byGroup.get(group) ?? new Map<string, number>();
      byGroup.set(group, decided);
      const key = `${isAllowed} ${code} ${step?.phase} ${step?.policy} ${rule}`;
      const known = decided.get(key);
      if (known !== undefined) return known;
      const index = indexOf({
        allowed: isAllowed,
        code: isAllowed ? null : code,
        policy: step?.policy ?? null,
        rule: rule ?? null,
        at: step === undefined ? null : position(group, step.phase, step.policy, rule),
      });
      decided.set(key, index);
      return index;
    },
  };
}

/** Prefers authorization rules to authentication. */
function admittingStep({ steps }: Exchange): Step | undefined {
  const passed = steps.filter(({ verdict }) => verdict === "passed");
  return (
    passed.findLast(({ policy }) => policy === ITEM_RULES || policy === "authorization") ??
    passed.findLast(({ policy }) => SECURITY.has(policy))
  );
}

function reasonText({ allowed, code, policy, rule, at }: Omit<AccessReason, "text">): string {
  const place = at === null ? "" : ` (${at})`;
  if (allowed && policy === null) return "no policy restricts it";
  if (allowed) return `admitted by ${policy}${place}${rule === null ? "" : `: ${rule}`}`;
  const message = code !== null && Object.hasOwn(ERRORS, code) ? ERRORS[code as keyof typeof ERRORS].message : code;
  const denied = policy === null ? `${message}` : `${policy}${place}: ${message ?? "not admitted"}`;
  return rule === null ? denied : `${denied}: ${rule}`;
}

function scopesOf(listeners: readonly Listener[], { listener, route }: ItemGroup, phase: string): CompiledScope[] {
  const { policies: gateway, sections = [] } = listeners.find(({ name }) => name === listener.name) ?? listener;
  if (phase === "gateway") return [...sections.map((section) => section.policies), gateway];
  if (phase === "route") return [route.policies];
  return route.backends.map((one) => one.policies);
}

function policiesIn(scope: CompiledScope): readonly CompiledPolicy[] {
  return [...(scope.preface?.access ?? []), ...scope.access, ...scope.shape, ...scope.body];
}

/** Lists the API keys and users that the policies of listeners and routes configure, once each. */
export function configuredPrincipals({ listeners }: Topology): Principal[] {
  const scopes = listeners.flatMap((listener) => [
    listener.policies,
    ...(listener.sections ?? []).map((section) => section.policies),
    ...listener.routes.map((route) => route.policies),
  ]);
  const found = new Map<string, ConfiguredPrincipal>();
  for (const { hooks } of scopes.flatMap(policiesIn))
    for (const one of hooks.clients?.configured?.() ?? []) found.set(one.principal, one);
  return [...found.values()].map(({ kind, principal, attributes }) => ({
    name: principalName(kind, attributes, principal),
    kind,
    attributes,
    recorded: { principals: [principal] },
  }));
}

export function storedPrincipals(keys: readonly StoredKeyIdentity[]): Principal[] {
  return keys.map((storedKey) => {
    const principal = shownPrincipal(keyPrincipal(Buffer.from(storedKey.digest)));
    const attributes = storedKey.metadata;
    const name = principalName("key", attributes, principal);
    return { name, kind: "key", attributes, recorded: { principals: [principal], storedKey } };
  });
}

function principalName(kind: ConfiguredPrincipal["kind"], attributes: object, principal: string): string {
  const by = kind === "key" ? { apiKey: attributes } : { basicAuth: attributes };
  return personName(by, principal) ?? principal;
}

/** Lists the users with tokens in recorded requests, each with the claims of the last request in `traffic`. */
export function recordedPrincipals(traffic: Iterable<RecordedRequest>, nowMs: number): Principal[] {
  const found = new Map<string, Claims>();
  for (const { claims } of traffic)
    if (claims !== undefined) found.set(tokenPrincipal(claims, JSON.stringify(claims)), claims);
  return [...found].map(([principal, claims]) => ({
    name: personName({ jwt: claims }, principal) ?? shownPrincipal(principal),
    kind: "token",
    attributes: claims,
    recorded: { principals: [], claims: unexpired(claims, nowMs) },
  }));
}

/** Sets a valid lifetime, because the review is about the user and not about one token. */
function unexpired(claims: Claims, nowMs: number): Claims {
  const nowSeconds = Math.floor(nowMs / 1_000);
  return { ...claims, exp: nowSeconds + 3_600, iat: nowSeconds };
}

export interface ClaimSet {
  readonly name: string;
  readonly claims: Claims;
}

/** Claims with `iss` are checked like those of a token. Others count as verified. */
export function claimPrincipals(sets: readonly ClaimSet[], nowMs: number): Principal[] {
  return sets.map(({ name, claims }) => ({
    name,
    kind: "token",
    attributes: claims,
    ...(claims.iss === undefined
      ? { given: { claims } }
      : { recorded: { principals: [], claims: unexpired(claims, nowMs) } }),
  }));
}

export const ANONYMOUS: Principal = { name: "anonymous", kind: "anonymous", attributes: {} };

/** Adds a number to a name that repeats an earlier one. */
export function withUniqueNames(principals: readonly Principal[]): Principal[] {
  const used = new Set<string>();
  return principals.map((principal) => {
    let name = principal.name;
    for (let i = 2; used.has(name); i++) name = `${principal.name} (${i})`;
    used.add(name);
    return { ...principal, name };
  });
}
