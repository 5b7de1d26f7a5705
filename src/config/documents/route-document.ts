/**
 * Translates an HTTPRoute or GRPCRoute document to routes of the standalone configuration, and its parentRefs to the
 * gateways and host names that serve it.
 */

import { lookupTable } from "../../base/lookup-table.ts";
import { suggestion } from "../../cel/values/nearest-name.ts";
import { canonicalPattern, matchesHost } from "../../http/host.ts";
import { defined } from "../../json/json.ts";
import { sessionPersistence } from "../../policies/session-persistence/policy.ts";
import type { Path } from "../text/value-path.ts";
import { type Fields, fieldsOf, isObject, listOf, textOf } from "../text/value-shapes.ts";
import type { FindBackend, FoundBackend } from "./backend-document.ts";
import {
  type BackendUse,
  createProblemList,
  DEFAULT_NAMESPACE,
  fullName,
  GATEWAY_API_GROUP,
  identityOf,
  type ObjectReference,
  type ParentOutcome,
  type ProblemList,
  type ResourceDocument,
  type RouteOutcome,
  referenceText,
  type Verdict,
  type WrittenRoute,
} from "./documents.ts";
import {
  commonMatches,
  type FindRoute,
  type FoundRoute,
  hasPath,
  hasUnclearPaths,
  inheritedPolicies,
  isRouteReference,
  MAX_DELEGATED_RULES,
  prefixOf,
  referenceFault,
  replacesPrefix,
} from "./route-delegation.ts";
import {
  type ClientCertificate,
  type GatewayListener,
  type GatewayTarget,
  labelsOf,
  type RouteTarget,
  routeReference,
  type TargetTable,
} from "./targets.ts";

interface TranslatedRoute {
  readonly target: RouteTarget;
  readonly routes: readonly WrittenRoute[];
  readonly outcome: RouteOutcome;
  readonly delegations: readonly Delegation[];
  /** The status of the route at a parent that delegates to it. */
  readonly asChild: Omit<ParentOutcome, "parentRef">;
}

/** Describes one written route that serves a rule of a child route. */
export interface Delegation {
  readonly route: string;
  /** The routes below the one that the Gateway serves, outermost first. */
  readonly chain: readonly { readonly document: ResourceDocument; readonly sectionName: string | undefined }[];
}

export interface RouteContext {
  readonly gateways: TargetTable<GatewayTarget>;
  readonly listenerSets: TargetTable<GatewayTarget>;
  readonly findBackend: FindBackend;
  readonly findRoute: FindRoute;
  readonly isCluster: boolean;
}

/** This placeholder replaces an unresolved reference, whose requests are rejected. */
const NOWHERE = { host: "reference.invalid:1" };
/** The policy `retry` has this limit, but the Gateway API has none. */
const MOST_RETRIES = 10;
export const NO_DEFAULT_GATEWAYS: Verdict = {
  isTrue: true,
  reason: "UnsupportedValue",
  message: "spec.useDefaultGateways is not supported: only the Gateways in parentRefs serve the route",
};
const RESOLVED: Verdict = { isTrue: true, reason: "ResolvedRefs", message: "All references resolved" };

export function translateRoute(
  document: ResourceDocument,
  context: RouteContext,
  problems: ProblemList,
): TranslatedRoute {
  const { namespace, name, kind } = identityOf(document);
  const isGrpc = kind === "GRPCRoute";
  const spec = fieldsOf(fieldsOf(document.value).spec);
  const found = findParents(spec, { ...context, namespace, kind, problems });
  const written = listOf(spec.rules);
  if (written.length === 0) problems.add(["spec", "rules"], "a list with at least one rule is required");
  const shortName = namespace === DEFAULT_NAMESPACE && !context.isCluster ? name : `${namespace}/${name}`;
  // An HTTPRoute may have the same name as a GRPCRoute.
  const prefix = isGrpc ? `grpc:${shortName}` : shortName;
  const routes: WrittenRoute[] = [];
  const rules: { sectionName: string | undefined; route: string }[] = [];
  const contents: RuleContent[] = [];
  const delegations: Delegation[] = [];
  const budget = { left: MAX_DELEGATED_RULES };

  for (const [i, rule] of written.entries()) {
    const path = ["spec", "rules", i];
    if (!isObject(rule)) {
      problems.add(path, "expected an object");
      continue;
    }
    const sectionName = textOf(rule.name);
    const ruleName = written.length === 1 ? prefix : `${prefix}/${sectionName ?? `rule${i}`}`;
    const source = `${kind} ${namespace}/${name}`;
    const { content: translated, delegated } = translateWholeRule(rule, path, {
      namespace,
      source,
      sessionKey: uidOf(document),
      isGrpc,
      findBackend: context.findBackend,
      findRoute: context.findRoute,
      ancestors: [fullName(document)],
      budget,
      problems,
    });
    contents.push(translated);
    for (const [j, { gateways, section, hostnames, except, port, clientCertificate }] of found.servedBy.entries()) {
      const isKnown = found.servedBy.slice(0, j).some((other) => other.gateways[0] === gateways[0]);
      const routeName = j === 0 ? ruleName : `${ruleName}@${gateways[0]}${isKnown ? `#${j}` : ""}`;
      // The rules of children come first, because they may have the same matches as the rule that delegates to them.
      for (const part of [...delegated, { content: translated, name: "", document, path, chain: [] }]) {
        const content = clientCertificate
          ? withClientCertificate(part.content, clientCertificate, part.document)
          : part.content;
        const name = part.name === "" ? routeName : `${routeName}/${part.name}`;
        routes.push({
          route: {
            name,
            gateways,
            ...(hostnames.length === 0 ? {} : { hostnames }),
            ...withPort(content.fields, port),
          },
          ...(except.length === 0 ? {} : { except }),
          ...defined({ section, closed: content.closed }),
          ...(content.closedBackends.size === 0 ? {} : { closedBackends: content.closedBackends }),
          ...(content.uses.length === 0 ? {} : { uses: content.uses }),
          document: part.document,
          path: part.path,
        });
        rules.push({ sectionName, route: name });
        if (part.chain.length > 0) delegations.push({ route: name, chain: part.chain });
      }
    }
  }
  const wholeOutcome = (accepted: Verdict) => {
    const outcome = outcomeOf(accepted, contents);
    // This gateway has no default Gateways, so only the parents serve the route.
    const isIgnored = (textOf(spec.useDefaultGateways) ?? "None") !== "None" && !outcome.partiallyInvalid;
    return { ...outcome, ...(isIgnored ? { partiallyInvalid: NO_DEFAULT_GATEWAYS } : {}) };
  };
  return {
    target: {
      reference: routeReference(namespace, name, kind),
      labels: labelsOf(document),
      rules,
      gateways: found.references,
    },
    routes,
    outcome: {
      document,
      parents: found.parents.map((parent) => ({ ...parent, ...wholeOutcome(parent.accepted) })),
    },
    delegations,
    asChild: wholeOutcome(ACCEPTED),
  };
}

function withClientCertificate(
  content: RuleContent,
  certificate: ClientCertificate,
  document: ResourceDocument,
): RuleContent {
  const closedBackends = new Map(content.closedBackends);
  const grant = (field: string, text: string): string =>
    document.confined?.grant(`${certificate.owner} ${field}`, text) ?? "";
  const backends = content.fields.backends?.map((backend, i) => {
    const policies = fieldsOf(backend.policies);
    // In a cluster, only a BackendTLSPolicy sets this policy on a backend.
    if (!isObject(policies.backendTLS)) return backend;
    if ("closed" in certificate) {
      if (!closedBackends.has(i)) closedBackends.set(i, certificate.closed);
      return backend;
    }
    const pair = { cert: grant("tls.crt", certificate.cert), key: grant("tls.key", certificate.key) };
    return { ...backend, policies: { ...policies, backendTLS: { ...policies.backendTLS, ...pair } } };
  });
  return { ...content, fields: { ...content.fields, ...(backends ? { backends } : {}) }, closedBackends };
}

/** A redirect without scheme and port keeps the port of the listener, regardless of the Host header. */
function withPort(fields: RuleContent["fields"], port: number | undefined): RuleContent["fields"] {
  const redirect = fieldsOf(fields.policies?.requestRedirect);
  if (port === undefined || fields.policies?.requestRedirect === undefined) return fields;
  if (redirect.scheme !== undefined || redirect.port !== undefined) return fields;
  return { ...fields, policies: { ...fields.policies, requestRedirect: { ...redirect, port } } };
}

function outcomeOf(accepted: Verdict, contents: readonly RuleContent[]) {
  const resolvedRefs = contents.find(({ unresolved }) => unresolved)?.unresolved ?? RESOLVED;
  const closed = contents.flatMap((content) => (content.closed === undefined ? [] : [content.closed]));
  const invalid: Verdict = { isTrue: true, reason: "UnsupportedValue", message: `Rules closed: ${closed.join("; ")}` };
  if (closed.length === 0) return { accepted, resolvedRefs, partiallyInvalid: undefined };
  if (closed.length < contents.length) return { accepted, resolvedRefs, partiallyInvalid: invalid };
  return {
    accepted: accepted.isTrue ? { ...invalid, isTrue: false } : accepted,
    resolvedRefs,
    partiallyInvalid: undefined,
  };
}

interface RuleContent {
  readonly fields: Pick<WrittenRoute["route"], "matches" | "policies" | "backends">;
  readonly closed: string | undefined;
  readonly closedBackends: ReadonlyMap<number, string>;
  readonly uses: readonly (BackendUse | undefined)[];
  readonly unresolved: Verdict | undefined;
}

interface RuleContext {
  readonly namespace: string;
  /** Names the route as the source of the policies that its filters set. */
  readonly source: string;
  /** Makes the session tokens of the route unpredictable for clients. Undefined for a document in a file. */
  readonly sessionKey: string | undefined;
  readonly isGrpc: boolean;
  readonly findBackend: FindBackend;
  readonly findRoute: FindRoute;
  /** Names the routes that delegate to this one, and itself. */
  readonly ancestors: readonly string[];
  /** Counts down the rules of children, to limit the result of nested delegation. */
  readonly budget: { left: number };
  readonly problems: ProblemList;
}

/** Holds a rule of a child route as the route that delegates to it serves it. */
interface DelegatedRule {
  readonly content: RuleContent;
  readonly name: string;
  readonly document: ResourceDocument;
  readonly path: Path;
  readonly chain: Delegation["chain"];
}

interface WholeRule {
  readonly content: RuleContent;
  readonly delegated: readonly DelegatedRule[];
}

function translateWholeRule(rule: Fields, path: Path, context: RuleContext): WholeRule {
  const isDelegating = !context.isGrpc && listOf(rule.backendRefs).some(isRouteReference);
  return isDelegating
    ? delegateRule(rule, path, context)
    : { content: translateRule(rule, path, context), delegated: [] };
}

/** Requests that match the rule but no rule of a child get 404, or 500 if a child cannot be used. */
function delegateRule(rule: Fields, path: Path, context: RuleContext): WholeRule {
  const { problems } = context;
  const { backendRefs, ...rest } = rule;
  const own = translateRule(rest, path, context);
  const matches = own.fields.matches ?? [];
  const policies = own.fields.policies ?? {};
  const references = listOf(backendRefs).map(fieldsOf);
  const faults = references.map(referenceFault);
  const fault =
    faults.find((one) => one !== undefined) ??
    (matches.some((match) => prefixOf(match) === undefined)
      ? "a rule that delegates supports only path matches of type PathPrefix"
      : replacesPrefix(policies)
        ? "a rule that delegates cannot replace the prefix of the path"
        : undefined);
  if (own.closed !== undefined || fault !== undefined) {
    const closed = own.closed ?? problems.add(path, `${fault}; the rule is blocked until this is fixed`).toLine();
    return { content: { ...own, closed }, delegated: [] };
  }
  let unresolved: Verdict | undefined;
  const delegated: DelegatedRule[] = [];
  const seen = new Set<string>();
  for (const [i, reference] of references.entries()) {
    const found = context.findRoute(reference);
    const key = "document" in found ? fullName(found.document) : "";
    const problem =
      "reason" in found
        ? found
        : context.ancestors.includes(key)
          ? { reason: "InvalidBackend", message: `HTTPRoute ${key} delegates to itself` }
          : undefined;
    if (problem || "reason" in found) {
      problems.add([...path, "backendRefs", i], `${problem?.message}; its requests get 500`);
      unresolved ??= { isTrue: false, reason: problem?.reason ?? "", message: problem?.message ?? "" };
      continue;
    }
    if (seen.has(key)) continue;
    seen.add(key);
    for (const [k, childRule] of listOf(fieldsOf(fieldsOf(found.document.value).spec).rules).entries()) {
      if (!isObject(childRule)) continue;
      context.budget.left -= 1;
      if (context.budget.left < 0) {
        const message = `more than ${MAX_DELEGATED_RULES} rules of other HTTPRoutes`;
        unresolved ??= { isTrue: false, reason: "InvalidBackend", message };
        break;
      }
      delegated.push(...rulesOfChild(childRule, k, { ...found, key, matches, policies }, context));
    }
  }
  return {
    content: {
      fields: {
        matches,
        ...(unresolved ? { backends: [NOWHERE] } : { policies: { directResponse: { status: 404 } } }),
      },
      closed: undefined,
      closedBackends: new Map(unresolved ? [[0, unresolved.message]] : []),
      uses: [],
      unresolved: unresolved ?? own.unresolved,
    },
    delegated,
  };
}

interface Child extends Extract<FoundRoute, { readonly document: unknown }> {
  /** The format is `namespace/name`. */
  readonly key: string;
  /** Has the matches and policies of the rule that delegates. */
  readonly matches: readonly Record<string, unknown>[];
  readonly policies: Fields;
}

function rulesOfChild(rule: Fields, index: number, child: Child, context: RuleContext): DelegatedRule[] {
  const { document, key } = child;
  const path = ["spec", "rules", index];
  const sectionName = textOf(rule.name);
  const { content, delegated } = translateWholeRule(rule, path, {
    namespace: identityOf(document).namespace,
    source: `HTTPRoute ${key}`,
    sessionKey: uidOf(document),
    isGrpc: false,
    findBackend: child.findBackend,
    findRoute: child.findRoute,
    ancestors: [...context.ancestors, key],
    budget: context.budget,
    // The translation of the child itself reports its problems.
    problems: createProblemList(document),
  });
  const name = `${key}/${sectionName ?? `rule${index}`}`;
  return [...delegated, { content, name: "", document, path, chain: [] }].flatMap((part) => {
    const own = part.content.fields.matches ?? [];
    const isUnclear = hasUnclearPaths(child.matches, own);
    const matches = isUnclear ? child.matches : commonMatches(child.matches, own);
    if (matches.length === 0) return [];
    const merged = inheritedPolicies(child.policies, part.content.fields.policies ?? {});
    // The replaced prefix is that of the common match.
    const isReplaced = replacesPrefix(part.content.fields.policies ?? {}) && !matches.every((one) => hasPath(own, one));
    const fault = isUnclear
      ? "a regular expression is not supported below the prefix of the rule that delegates to it"
      : isReplaced
        ? "it replaces a prefix that is shorter than that of the rule that delegates to it"
        : "twice" in merged
          ? `the rule that delegates to it also has ${merged.twice}`
          : hasPickedSession(merged.policies, part.content.fields.backends ?? [])
            ? PICKED_SESSION
            : undefined;
    const closed = fault === undefined ? part.content.closed : `${name}: ${fault}`;
    const { policies: _, ...fields } = part.content.fields;
    const policies = "twice" in merged ? {} : merged.policies;
    return [
      {
        ...part,
        name: part.name === "" ? name : `${name}/${part.name}`,
        content: {
          ...part.content,
          fields: { ...fields, matches, ...(Object.keys(policies).length === 0 ? {} : { policies }) },
          closed,
        },
        chain: [{ document, sectionName }, ...part.chain],
      },
    ];
  });
}

function translateRule(
  rule: Fields,
  path: Path,
  { namespace, source, sessionKey, isGrpc, findBackend, problems }: RuleContext,
): RuleContent {
  const translate = isGrpc ? translateGrpcMatch : translateMatch;
  let closed: string | undefined;
  const close = (at: Path, message: string): void => {
    closed ??= problems.add(at, `${message}; the rule is blocked until this is fixed`).toLine();
  };

  const matches: Record<string, unknown>[] = [];
  for (const [i, match] of listOf(rule.matches).entries()) {
    const translated = isObject(match) ? translate(match) : "expected an object";
    // An unsupported match must not match everything, so it is dropped and the rule keeps the other matches.
    if (typeof translated === "string") problems.add([...path, "matches", i], `${translated}; this match is ignored`);
    else matches.push(translated);
  }
  if (listOf(rule.matches).length > 0 && matches.length === 0)
    close([...path, "matches"], "none of the matches is supported");

  let unresolved: Verdict | undefined;
  const findMirror = (at: Path) => (reference: Fields, index: number) => {
    const found: FoundBackend =
      reference.kind === "Backend" || reference.kind === "InferencePool"
        ? { reason: "InvalidKind", message: "requests can be mirrored to a Service only" }
        : findBackend(reference, namespace);
    if ("backend" in found) {
      // `requestMirror` sends copies over HTTP/1.1 without TLS, so it ignores the protocol and cannot use a Service with
      // TLS settings.
      const { protocol: _, policies, ...backend } = found.backend;
      if (policies === undefined && found.closed === undefined) return backend;
      problems.add([...at, "filters", index], "requests cannot be mirrored over TLS; nothing is mirrored there");
      return undefined;
    }
    problems.add([...at, "filters", index], `${found.message}; nothing is mirrored there`);
    unresolved ??= { isTrue: false, reason: found.reason, message: found.message };
    return undefined;
  };
  const filters = translateFilters(filtersOf(rule), findMirror(path));
  if (filters.unsupported) close([...path, "filters", filters.unsupported.index], filters.unsupported.reason);
  const session = sessionOf(rule.sessionPersistence, sessionKey);
  if (session.unsupported !== undefined) close([...path, "sessionPersistence"], session.unsupported);

  const backends: Record<string, unknown>[] = [];
  const closedBackends = new Map<number, string>();
  const uses: (BackendUse | undefined)[] = [];
  for (const [i, reference] of listOf(rule.backendRefs).entries()) {
    const at = [...path, "backendRefs", i];
    const found = findBackend(fieldsOf(reference), namespace);
    if ("reason" in found) {
      const problem = problems.add(at, `${found.message}; its requests get 500`);
      unresolved ??= { isTrue: false, reason: found.reason, message: found.message };
      closedBackends.set(backends.length, problem.toLine());
    } else if (found.closed !== undefined)
      closedBackends.set(backends.length, problems.add(at, `${found.closed}; its requests get 500`).toLine());
    const own = translateFilters(filtersOf(fieldsOf(reference)), findMirror(at));
    if (own.unsupported) close([...at, "filters", own.unsupported.index], own.unsupported.reason);
    const { weight } = fieldsOf(reference);
    const backend: Fields = "backend" in found ? found.backend : NOWHERE;
    const policies = { ...fieldsOf(backend.policies), ...own.policies };
    uses.push("backend" in found ? useOf(found, own.policies, source) : undefined);
    backends.push({
      ...backend,
      ...defined({ weight }),
      ...(Object.keys(policies).length === 0 ? {} : { policies }),
    });
  }

  const policies = {
    ...filters.policies,
    ...timeoutsOf(rule.timeouts),
    ...retriesOf(rule.retry),
    ...session.policies,
  };
  if (hasPickedSession(policies, backends)) close([...path, "sessionPersistence"], PICKED_SESSION);
  return {
    fields: {
      ...(matches.length === 0 ? { matches: [{ path: { pathPrefix: "/" } }] } : { matches }),
      ...(Object.keys(policies).length === 0 ? {} : { policies }),
      ...(backends.length === 0 ? {} : { backends }),
    },
    closed,
    closedBackends,
    uses,
    unresolved,
  };
}

function useOf(
  { backend, reference, portName, policySource = "" }: Extract<FoundBackend, { readonly backend: unknown }>,
  filters: Fields,
  source: string,
): BackendUse {
  const policyKinds = new Map(Object.keys(fieldsOf(backend.policies)).map((kind) => [kind, policySource]));
  for (const kind of Object.keys(filters)) policyKinds.set(kind, source);
  return { reference, portName, policyKinds };
}

/** Absent fields have the defaults of the policy `retry`. */
function retriesOf(written: unknown): Record<string, unknown> {
  if (!isObject(written)) return {};
  const { attempts, codes, backoff } = written;
  if (attempts === 0) return {};
  const retry = {
    ...(attempts === undefined ? {} : { attempts: Math.min(Number(attempts), MOST_RETRIES) }),
    ...defined({ codes, backoff }),
  };
  return { retry };
}

function timeoutsOf(written: unknown): Record<string, unknown> {
  if (!isObject(written)) return {};
  const { request, backendRequest } = written;
  const timeout = {
    ...defined({ requestTimeout: request, backendRequestTimeout: backendRequest }),
  };
  return Object.keys(timeout).length === 0 ? {} : { timeout };
}

const PICKED_SESSION =
  "session persistence is not supported for an InferencePool, whose endpoint picker selects the pod";

function hasPickedSession(policies: Fields, backends: readonly Fields[]): boolean {
  if (policies.sessionPersistence === undefined) return false;
  return backends.some((backend) => fieldsOf(backend.policies).endpointPicker !== undefined);
}

interface TranslatedSession {
  readonly policies: { readonly sessionPersistence?: Fields };
  readonly unsupported?: string;
}

function sessionOf(written: unknown, key: string | undefined): TranslatedSession {
  if (written === undefined) return { policies: {} };
  const { type = "Cookie", sessionName, absoluteTimeout, idleTimeout, cookieConfig, ...others } = fieldsOf(written);
  const { lifetimeType, ...otherCookieFields } = fieldsOf(cookieConfig);
  const [unknown] = [...Object.keys(others), ...Object.keys(otherCookieFields)];
  if (unknown !== undefined) return { policies: {}, unsupported: `${unknown} is not supported` };
  const config = {
    type: String(type).toLowerCase(),
    ...defined({ name: sessionName, absoluteTimeout, idleTimeout }),
    ...(lifetimeType === undefined ? {} : { lifetime: String(lifetimeType).toLowerCase() }),
    ...defined({ key }),
  };
  const [issue] = sessionPersistence.schema.safeParse(config).error?.issues ?? [];
  if (issue === undefined) return { policies: { sessionPersistence: config } };
  const field = SESSION_FIELDS[String(issue.path[0])] ?? String(issue.path[0]);
  return { policies: {}, unsupported: `${field}: ${issue.message}` };
}

/** Maps the fields of the policy to those of the Gateway API, for those whose names differ. */
const SESSION_FIELDS = lookupTable<string>({ name: "sessionName", lifetime: "cookieConfig.lifetimeType" });

function uidOf(document: ResourceDocument): string | undefined {
  return textOf(fieldsOf(fieldsOf(document.value).metadata).uid);
}

// A rule with an unsupported filter rejects all requests, because the filter may protect the backend.

interface TranslatedFilters {
  readonly policies: Readonly<Record<string, unknown>>;
  readonly unsupported: { readonly index: number; readonly reason: string } | undefined;
}

type Filter = (fields: Fields) => readonly [kind: string, config: unknown] | string;

const FILTERS = lookupTable<{ readonly field: string; readonly translate: Filter }>({
  RequestHeaderModifier: {
    field: "requestHeaderModifier",
    translate: (fields) => ["requestHeaderModifier", headerChanges(fields)],
  },
  ResponseHeaderModifier: {
    field: "responseHeaderModifier",
    translate: (fields) => ["responseHeaderModifier", headerChanges(fields)],
  },
  RequestRedirect: { field: "requestRedirect", translate: redirect },
  URLRewrite: { field: "urlRewrite", translate: rewrite },
  CORS: { field: "cors", translate: cors },
});

/** If `findMirror` returns undefined, the mirror is omitted. */
function translateFilters(
  filters: readonly unknown[],
  findMirror: (reference: Fields, index: number) => Fields | undefined,
): TranslatedFilters {
  const policies: Record<string, unknown> = {};
  const mirrors: Record<string, unknown>[] = [];
  for (const [index, filter] of filters.entries()) {
    const type = isObject(filter) ? String(filter.type) : "";
    if (type === "RequestMirror" && isObject(filter) && isObject(filter.requestMirror)) {
      const { backendRef, percent, fraction } = filter.requestMirror;
      const found = isObject(backendRef) ? findMirror(backendRef, index) : undefined;
      if (found) mirrors.push({ ...found, ...sharePercent(percent, fraction) });
      continue;
    }
    const known = FILTERS[type];
    const fields = known && isObject(filter) ? filter[known.field] : undefined;
    if (!known)
      return { policies, unsupported: { index, reason: `the filter ${type || "without a type"} is not supported` } };
    if (!isObject(fields)) return { policies, unsupported: { index, reason: `\`${known.field}\` is missing` } };
    const translated = known.translate(fields);
    if (typeof translated === "string") return { policies, unsupported: { index, reason: translated } };
    const [kind, config] = translated;
    if (policies[kind] !== undefined) return { policies, unsupported: { index, reason: `${type} is given twice` } };
    policies[kind] = config;
  }
  if (mirrors.length > 0) policies.requestMirror = mirrors;
  return { policies, unsupported: undefined };
}

function sharePercent(percent: unknown, fraction: unknown): { percent?: unknown } {
  if (percent !== undefined) return { percent };
  if (!isObject(fraction)) return {};
  const { numerator, denominator = 100 } = fraction;
  return { percent: (Number(numerator) / Number(denominator)) * 100 };
}

function headerChanges({ set, add, remove }: Fields): Record<string, unknown> {
  return {
    ...(set === undefined ? {} : { set: namedValues(set) }),
    ...(add === undefined ? {} : { add: namedValues(add) }),
    ...defined({ remove }),
  };
}

function namedValues(list: unknown): unknown {
  if (!Array.isArray(list)) return list;
  return Object.fromEntries(list.filter(isObject).map(({ name, value }) => [String(name), value]));
}

function redirect({ scheme, hostname, port, path, statusCode }: Fields): readonly [string, unknown] | string {
  const changed = pathChange(path);
  if (typeof changed === "string") return changed;
  return [
    "requestRedirect",
    {
      ...defined({ scheme, authority: hostname, port }),
      ...changed,
      ...defined({ status: statusCode }),
    },
  ];
}

function rewrite({ hostname, path }: Fields): readonly [string, unknown] | string {
  const changed = pathChange(path);
  if (typeof changed === "string") return changed;
  return ["urlRewrite", { ...defined({ authority: hostname }), ...changed }];
}

function pathChange(path: unknown): { path?: unknown } | string {
  if (path === undefined) return {};
  if (!isObject(path)) return "expected `path` to be an object";
  if (path.type === "ReplaceFullPath") return { path: { full: path.replaceFullPath } };
  if (path.type === "ReplacePrefixMatch") return { path: { prefix: path.replacePrefixMatch } };
  return `the path modifier ${String(path.type)} is not supported`;
}

/** These are the defaults of the Gateway API, which differ from those of the policy `cors`. */
const CORS_METHODS = ["GET", "HEAD", "POST"];
const CORS_MAX_AGE_S = 5;

function cors({ maxAge = CORS_MAX_AGE_S, allowMethods, ...fields }: Fields): readonly [string, unknown] {
  const methods = listOf(allowMethods).length === 0 ? CORS_METHODS : allowMethods;
  return ["cors", { ...fields, allowMethods: methods, maxAge: typeof maxAge === "number" ? `${maxAge}s` : maxAge }];
}

function filtersOf(holder: Fields): readonly unknown[] {
  return listOf(holder.filters);
}

/** Returns a string with the reason if the match is not supported. */
function translateMatch({ path, headers, queryParams, method }: Fields): Record<string, unknown> | string {
  const translatedPath = path === undefined ? {} : translatePath(path);
  if (typeof translatedPath === "string") return translatedPath;
  const translatedHeaders = translateValues(headers, "header");
  if (typeof translatedHeaders === "string") return translatedHeaders;
  const translatedQuery = translateValues(queryParams, "query");
  if (typeof translatedQuery === "string") return translatedQuery;
  return {
    ...translatedPath,
    ...defined({ method }),
    ...(translatedHeaders.length === 0 ? {} : { headers: translatedHeaders }),
    ...(translatedQuery.length === 0 ? {} : { query: translatedQuery }),
  };
}

/** A gRPC call has the path `/service/method`. */
export function translateGrpcMatch({ method, headers }: Fields): Record<string, unknown> | string {
  const path = method === undefined ? { pathPrefix: "/" } : grpcPath(method);
  if (typeof path === "string") return path;
  const translatedHeaders = translateValues(headers, "header");
  if (typeof translatedHeaders === "string") return translatedHeaders;
  return { path, ...(translatedHeaders.length === 0 ? {} : { headers: translatedHeaders }) };
}

function grpcPath(written: unknown): Record<string, unknown> | string {
  if (!isObject(written)) return "expected `method` to be an object";
  const { type = "Exact", service, method } = written;
  const isText = (value: unknown): boolean => value === undefined || (typeof value === "string" && value !== "");
  if (!isText(service) || !isText(method) || (service === undefined && method === undefined))
    return "expected `service` or `method`";
  if (type === "RegularExpression")
    return {
      regex: `/${service === undefined ? "[^/]+" : `(?:${service})`}/${method === undefined ? "[^/]+" : `(?:${method})`}`,
    };
  if (type !== "Exact") return `the method match ${String(type)} is not supported`;
  if (method === undefined) return { pathPrefix: `/${String(service)}` };
  if (service === undefined) return { regex: `/[^/]+/${String(method).replace(/[^A-Za-z0-9_]/g, "\\$&")}` };
  return { exact: `/${String(service)}/${String(method)}` };
}

function translatePath(path: unknown): { path: Record<string, unknown> } | string {
  if (!isObject(path)) return "expected `path` to be an object";
  const { type = "PathPrefix", value = "/" } = path;
  if (type === "Exact") return { path: { exact: value } };
  if (type === "PathPrefix") return { path: { pathPrefix: value } };
  if (type === "RegularExpression") return { path: { regex: value } };
  return `the path match ${String(type)} is not supported`;
}

function translateValues(written: unknown, what: string): Record<string, unknown>[] | string {
  const values: Record<string, unknown>[] = [];
  for (const match of listOf(written)) {
    if (!isObject(match)) return `expected a ${what} match to be an object`;
    const { type = "Exact", name, value } = match;
    if (type === "Exact") values.push({ name, exact: value });
    else if (type === "RegularExpression") values.push({ name, regex: value });
    else return `the ${what} match ${String(type)} is not supported`;
  }
  return values;
}

interface Parents {
  readonly references: readonly ObjectReference[];
  readonly servedBy: readonly ServedBy[];
  readonly parents: readonly { readonly parentRef: Fields; readonly accepted: Verdict }[];
}

/** These gateways serve the route under the same host names. An empty list of host names means any name. */
interface ServedBy {
  readonly gateways: readonly string[];
  readonly section: string | undefined;
  readonly hostnames: readonly string[];
  /** More specific listeners of the same port handle these host names. */
  readonly except: readonly string[];
  readonly port: number | undefined;
  readonly clientCertificate: ClientCertificate | undefined;
}

const ACCEPTED: Verdict = { isTrue: true, reason: "Accepted", message: "Route accepted" };

interface ParentContext {
  readonly namespace: string;
  readonly kind: string;
  readonly gateways: TargetTable<GatewayTarget>;
  readonly listenerSets: TargetTable<GatewayTarget>;
  readonly problems: ProblemList;
  /** In a cluster, an unknown Gateway may belong to another controller. */
  readonly isCluster: boolean;
}

export function findParents(spec: Fields, context: ParentContext): Parents {
  const { problems, namespace, kind } = context;
  const references = new Map<string, ObjectReference>();
  const parents: { parentRef: Fields; accepted: Verdict }[] = [];
  const served = new ServedNames();
  const counted = new Set<GatewayListener>();
  const own = listOf(spec.hostnames).map(String);
  const parentRefs = listOf(spec.parentRefs);
  if (parentRefs.length === 0 && !context.isCluster)
    problems.add(["spec", "parentRefs"], "a list with at least one Gateway is required");

  for (const [i, parentRef] of parentRefs.entries()) {
    const path = ["spec", "parentRefs", i];
    const found = isObject(parentRef) ? findParent(parentRef, path, context) : undefined;
    if (!found || !isObject(parentRef)) continue;
    const named = found.listeners.filter(
      ({ sectionName, port }) =>
        (parentRef.sectionName === undefined || parentRef.sectionName === sectionName) &&
        (parentRef.port === undefined || parentRef.port === port),
    );
    const admitted = named.filter((listener) => listener.admits(namespace, kind));
    const fitting = admitted.flatMap((listener) => {
      const hostnames = commonHostnames(own, listener.hostname);
      return hostnames === undefined ? [] : [{ listener, hostnames }];
    });
    for (const { listener, hostnames } of fitting) {
      if (listener.outcome && !counted.has(listener)) listener.outcome.attachedRoutes += 1;
      counted.add(listener);
      if (listener.gateway === undefined) continue;
      const isApart = context.isCluster || listener.section !== undefined;
      const except = isApart ? moreSpecific(listener, found.merged ?? found.listeners) : [];
      const { gateway, section } = listener;
      const { clientCertificate } = found;
      const port = context.isCluster ? listener.port : undefined;
      served.add({ gateway, section, except, port, clientCertificate }, hostnames);
      const gatewayOfListener = found.gateway ?? found.reference;
      references.set(referenceText(gatewayOfListener), gatewayOfListener);
    }
    const accepted = verdictOf(named.length, admitted.length, fitting.length, found);
    const isServed = fitting.some(({ listener }) => listener.gateway !== undefined);
    if (!accepted.isTrue || !isServed)
      problems.add(
        path,
        `no listener of ${referenceText(found.reference)} serves this route: see sectionName, port, hostnames and allowedRoutes`,
      );
    parents.push({ parentRef, accepted });
  }
  return { references: [...references.values()], servedBy: served.groups(), parents };
}

function verdictOf(named: number, admitted: number, fitting: number, { reference, refusal }: GatewayTarget): Verdict {
  if (fitting > 0) return ACCEPTED;
  const no = (reason: string, what: string): Verdict => ({
    isTrue: false,
    reason,
    message: `${referenceText(reference)} has no listener ${what}`,
  });
  if (refusal !== undefined) return no("NoMatchingParent", "because it is not accepted");
  if (named === 0) return no("NoMatchingParent", "with this sectionName and port");
  if (admitted === 0) return no("NotAllowedByListeners", "whose allowedRoutes admit this route");
  return no("NoMatchingListenerHostname", "with a hostname in common with this route");
}

/** Returns host names of more specific listeners on the same port, which this listener must not serve. */
function moreSpecific(listener: GatewayListener, all: readonly GatewayListener[]): string[] {
  return all.flatMap(({ gateway, port, hostname }) =>
    gateway !== undefined && port === listener.port && hostname !== undefined && hostname !== listener.hostname
      ? covers(listener.hostname ?? "*", hostname)
        ? [hostname]
        : []
      : [],
  );
}

interface ServedKey {
  readonly gateway: string;
  readonly section: string | undefined;
  readonly except: readonly string[];
  readonly port: number | undefined;
  readonly clientCertificate: ClientCertificate | undefined;
}

class ServedNames {
  readonly #entries = new Map<string, ServedKey & { names: Set<string> }>();

  add(served: ServedKey, hostnames: readonly string[]): void {
    const key = `${served.gateway} ${served.section ?? ""} ${served.except.join()}`;
    const entry = this.#entries.get(key) ?? { ...served, names: new Set<string>() };
    // An empty list means any name.
    for (const one of hostnames.length === 0 ? ["*"] : hostnames) entry.names.add(one);
    this.#entries.set(key, entry);
  }

  groups(): ServedBy[] {
    const groups = new Map<string, ServedBy & { gateways: string[] }>();
    for (const { gateway, names, ...served } of this.#entries.values()) {
      const hostnames = names.has("*") ? [] : [...names].sort();
      const { section, except, port, clientCertificate } = served;
      const key = `${hostnames.join()} ${except.join()} ${port ?? ""} ${section ?? ""} ${clientCertificate?.owner ?? ""}`;
      const group = groups.get(key) ?? { gateways: [], hostnames, section, except, port, clientCertificate };
      group.gateways.push(gateway);
      groups.set(key, group);
    }
    return [...groups.values()];
  }
}

function findParent(
  parent: Fields,
  path: Path,
  { namespace, gateways, listenerSets, problems, isCluster }: ParentContext,
): GatewayTarget | undefined {
  const kind = textOf(parent.kind) ?? "Gateway";
  const name = textOf(parent.name) ?? "";
  if (isCluster && (textOf(parent.group) ?? GATEWAY_API_GROUP) !== GATEWAY_API_GROUP) return undefined;
  // The translation of the parent route reports whether it delegates to this one.
  if (kind === "HTTPRoute") return undefined;
  if (kind !== "Gateway" && kind !== "ListenerSet") {
    if (!isCluster) problems.add([...path, "kind"], `${kind} is not supported: use Gateway or ListenerSet`);
    return undefined;
  }
  const table = kind === "Gateway" ? gateways : listenerSets;
  const inNamespace = textOf(parent.namespace) ?? namespace;
  const found = table.find(inNamespace, name);
  if (!found && !isCluster)
    problems.add(path, `${kind} ${inNamespace}/${name} was not found${suggestion(name, table.names(inNamespace))}`);
  return found;
}

/** An empty list means any name. Returns undefined if the route and the listener have no host name in common. */
function commonHostnames(route: readonly string[], listener: string | undefined): string[] | undefined {
  if (listener === undefined || listener === "*") return [...route];
  if (route.length === 0) return [listener];
  const common = route.flatMap((name) => (covers(listener, name) ? [name] : covers(name, listener) ? [listener] : []));
  return common.length === 0 ? undefined : [...new Set(common)];
}

/** `*.example.com` covers `a.example.com` and `*.a.example.com`, but not `example.com`. */
function covers(pattern: string, name: string): boolean {
  return matchesHost(canonicalPattern(pattern), canonicalPattern(name));
}
