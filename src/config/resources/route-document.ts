/**
 * An HTTPRoute document (gateway.networking.k8s.io) → routes of the standalone configuration, one for each rule.
 * A part of a rule that we cannot honour closes the rule (500): serving it without would be something else than what
 * was asked for. Services are looked up in the `services` map of the standalone document.
 */
import { nearestName, suggestion } from "../../cel/values/nearest-name.ts";
import type { Path } from "../text/value-path.ts";
import {
  DEFAULT_NAMESPACE,
  type ObjectReference,
  type ResourceDocument,
  type ResourceInput,
  type WrittenRoute,
} from "./documents.ts";
import { isObject } from "./parts.ts";
import { identityOf, listOf, type ProblemList, referenceText, textOf } from "./problem-list.ts";
import { filtersOf, translateFilters } from "./route-filters.ts";
import { commonHostnames } from "./route-hostnames.ts";
import { translateMatch } from "./route-matches.ts";
import { type GatewayTarget, gatewayReference, type RouteTarget, routeReference, type TargetTable } from "./targets.ts";

export interface TranslatedRoute {
  readonly target: RouteTarget;
  readonly routes: readonly WrittenRoute[];
}

type Services = ResourceInput["standalone"]["services"];

export function translateRoute(
  document: ResourceDocument,
  gateways: TargetTable<GatewayTarget>,
  services: Services,
  problems: ProblemList,
): TranslatedRoute {
  const { namespace, name } = identityOf(document);
  const spec = isObject(document.value) && isObject(document.value.spec) ? document.value.spec : {};
  const parents = findParents(spec, namespace, gateways, problems);
  const written = listOf(spec.rules);
  if (written.length === 0) problems.add(["spec", "rules"], "a list with at least one rule is needed");
  const prefix = namespace === DEFAULT_NAMESPACE ? name : `${namespace}/${name}`;
  const routes: WrittenRoute[] = [];
  const rules: { sectionName: string | undefined; route: string }[] = [];

  for (const [i, rule] of written.entries()) {
    const path = ["spec", "rules", i];
    if (!isObject(rule)) {
      problems.add(path, "expected an object");
      continue;
    }
    const sectionName = textOf(rule.name);
    const ruleName = written.length === 1 ? prefix : `${prefix}/${sectionName ?? `rule${i}`}`;
    const content = translateRule(rule, path, namespace, services, problems);
    for (const [j, served] of parents.servedBy.entries()) {
      const routeName = j === 0 ? ruleName : `${ruleName}@${served.gateways[0]}`;
      const hostnames = served.hostnames.length === 0 ? {} : { hostnames: served.hostnames };
      routes.push({
        route: { name: routeName, gateways: served.gateways, ...hostnames, ...content.fields },
        ...(content.closed === undefined ? {} : { closed: content.closed }),
        document,
        path,
      });
      rules.push({ sectionName, route: routeName });
    }
  }
  return { target: { reference: routeReference(namespace, name), rules, gateways: parents.references }, routes };
}

interface Parents {
  readonly references: readonly ObjectReference[];
  /** Gateways that serve the route under the same host names; the names are empty where any will do. */
  readonly servedBy: readonly { readonly gateways: string[]; readonly hostnames: readonly string[] }[];
}

function findParents(
  spec: Readonly<Record<string, unknown>>,
  namespace: string,
  gateways: TargetTable<GatewayTarget>,
  problems: ProblemList,
): Parents {
  const references = new Map<string, ObjectReference>();
  const hostnamesOf = new Map<string, Set<string>>();
  const own = listOf(spec.hostnames).map(String);
  const parentRefs = listOf(spec.parentRefs);
  if (parentRefs.length === 0) problems.add(["spec", "parentRefs"], "a list with at least one Gateway is needed");

  for (const [i, parent] of parentRefs.entries()) {
    const path = ["spec", "parentRefs", i];
    const found = isObject(parent) ? findParent(parent, path, namespace, gateways, problems) : undefined;
    if (!found || !isObject(parent)) continue;
    const listeners = found.listeners.filter(
      (listener) =>
        listener.admits(namespace) &&
        (parent.sectionName === undefined || parent.sectionName === listener.sectionName) &&
        (parent.port === undefined || parent.port === listener.port),
    );
    let isServed = false;
    for (const { gateway, hostname } of listeners) {
      const common = commonHostnames(own, hostname);
      if (common === undefined) continue;
      isServed = true;
      const names = hostnamesOf.get(gateway) ?? new Set<string>();
      // No name at all means any: it covers the names of other listeners on the same port.
      for (const one of common.length === 0 ? ["*"] : common) names.add(one);
      hostnamesOf.set(gateway, names);
    }
    if (isServed) references.set(referenceText(found.reference), found.reference);
    else
      problems.add(
        path,
        `no listener of ${referenceText(found.reference)} serves this route: see sectionName, port, hostnames and allowedRoutes`,
      );
  }

  const groups = new Map<string, { gateways: string[]; hostnames: readonly string[] }>();
  for (const [gateway, names] of hostnamesOf) {
    const hostnames = names.has("*") ? [] : [...names].sort();
    const group = groups.get(hostnames.join()) ?? { gateways: [], hostnames };
    group.gateways.push(gateway);
    groups.set(hostnames.join(), group);
  }
  return { references: [...references.values()], servedBy: [...groups.values()] };
}

function findParent(
  parent: Readonly<Record<string, unknown>>,
  path: Path,
  namespace: string,
  gateways: TargetTable<GatewayTarget>,
  problems: ProblemList,
): GatewayTarget | undefined {
  const kind = textOf(parent.kind) ?? "Gateway";
  const name = textOf(parent.name) ?? "";
  if (kind !== "Gateway") {
    problems.add([...path, "kind"], `${kind} is not supported: use Gateway`);
    return undefined;
  }
  const wanted = gatewayReference(textOf(parent.namespace) ?? namespace, name);
  const found = gateways.find(wanted.namespace, wanted.name);
  if (!found)
    problems.add(path, `${referenceText(wanted)} was not found${suggestion(name, gateways.names(wanted.namespace))}`);
  return found;
}

interface RuleContent {
  readonly fields: Pick<WrittenRoute["route"], "matches" | "policies" | "backends">;
  readonly closed: string | undefined;
}

function translateRule(
  rule: Readonly<Record<string, unknown>>,
  path: Path,
  namespace: string,
  services: Services,
  problems: ProblemList,
): RuleContent {
  let closed: string | undefined;
  const close = (at: Path, message: string): void => {
    closed ??= problems.add(at, `${message}; the rule is closed until this is mended`).toLine();
  };

  const matches: Record<string, unknown>[] = [];
  for (const [i, match] of listOf(rule.matches).entries()) {
    const translated = isObject(match) ? translateMatch(match) : "expected an object";
    // A match that cannot be told must not become a match of everything: the rule keeps the others.
    if (typeof translated === "string") problems.add([...path, "matches", i], `${translated}; this match is left out`);
    else matches.push(translated);
  }
  if (listOf(rule.matches).length > 0 && matches.length === 0)
    close([...path, "matches"], "none of the matches is supported");

  const filters = translateFilters(filtersOf(rule));
  if (filters.unsupported) close([...path, "filters", filters.unsupported.index], filters.unsupported.reason);
  if (rule.sessionPersistence !== undefined) problems.add([...path, "sessionPersistence"], "not supported, ignored");

  const backends: Record<string, unknown>[] = [];
  for (const [i, reference] of listOf(rule.backendRefs).entries()) {
    const at = [...path, "backendRefs", i];
    const backend = isObject(reference) ? findBackend(reference, at, namespace, services, problems) : undefined;
    if (!backend || !isObject(reference)) continue;
    const own = translateFilters(filtersOf(reference));
    if (own.unsupported) close([...at, "filters", own.unsupported.index], own.unsupported.reason);
    const weight = reference.weight === undefined ? {} : { weight: reference.weight };
    const policies = Object.keys(own.policies).length === 0 ? {} : { policies: own.policies };
    backends.push({ ...backend, ...weight, ...policies });
  }

  const policies = { ...filters.policies, ...timeoutsOf(rule.timeouts) };
  return {
    fields: {
      ...(matches.length === 0 ? { matches: [{ path: { pathPrefix: "/" } }] } : { matches }),
      ...(Object.keys(policies).length === 0 ? {} : { policies }),
      ...(backends.length === 0 ? {} : { backends }),
    },
    closed,
  };
}

/** Zero means no limit there; ours is then the default of the backend. */
function timeoutsOf(written: unknown): Record<string, unknown> {
  if (!isObject(written)) return {};
  const isSet = (value: unknown): boolean => value !== undefined && !/^0(?:ms|s|m|h)?$/.test(String(value));
  const timeout = {
    ...(isSet(written.request) ? { requestTimeout: written.request } : {}),
    ...(isSet(written.backendRequest) ? { backendRequestTimeout: written.backendRequest } : {}),
  };
  return Object.keys(timeout).length === 0 ? {} : { timeout };
}

function findBackend(
  reference: Readonly<Record<string, unknown>>,
  path: Path,
  namespace: string,
  services: Services,
  problems: ProblemList,
): Record<string, unknown> | undefined {
  const kind = textOf(reference.kind) ?? "Service";
  const name = textOf(reference.name) ?? "";
  const inNamespace = textOf(reference.namespace) ?? namespace;
  if (kind !== "Service") {
    problems.add([...path, "kind"], `${kind} is not supported: use Service`);
    return undefined;
  }
  const port = reference.port === undefined ? "" : `:${String(reference.port)}`;
  const candidates = [`${inNamespace}/${name}${port}`, `${inNamespace}/${name}`, `${name}${port}`, name];
  const found = candidates.map((key) => services[key]).find((service) => service !== undefined);
  if (found === undefined) {
    const near = nearestName(name, Object.keys(services).map(serviceName));
    problems.add(
      path,
      `Service ${inNamespace}/${name} was not found${near === undefined || near === name ? "" : ` (did you mean "${near}"?)`}: add it to \`services\` of the standalone document, for example \`${name}${port}: 127.0.0.1:8080\``,
    );
    return undefined;
  }
  if (typeof found !== "string") return { ...found };
  return { host: found.includes(":") || port === "" ? found : `${found}${port}` };
}

/** The name alone, of `namespace/name:port`. */
function serviceName(key: string): string {
  return key.slice(key.indexOf("/") + 1).replace(/:\d+$/, "");
}
