/**
 * Translates all documents of a load to additions to the standalone configuration. In a conflict, the older document
 * takes precedence, then the name that sorts first.
 */

import type { z } from "zod";
import { suggestion } from "../../cel/values/nearest-name.ts";
import { ConfigError } from "../../core/config-error.ts";
import { createRedaction, REDACTED, type Redaction } from "../../record/trace/redact.ts";
import { backendName } from "../load/normal-config.ts";
import { FOREIGN_KINDS } from "../schema/field-hints.ts";
import { shownConfig } from "../schema/shown-config.ts";
import type { Path } from "../text/value-path.ts";
import { fieldsOf, isObject, listOf, textOf } from "../text/value-shapes.ts";
import { backendOutcome, backendsOfCluster, backendsOfFiles, type FindBackend } from "./backend-document.ts";
import { type Cluster, keyOf, specOf } from "./cluster.ts";
import {
  type Attachment,
  type BackendOutcome,
  type Closure,
  createProblemList,
  DATA_PLANE_PORTS,
  fullName,
  GATEWAY_API_GROUP,
  type GatewayOutcome,
  identityOf,
  type ListenerSetOutcome,
  type ObjectReference,
  type ParentOutcome,
  POLICY_API_GROUP,
  POLICY_API_VERSION,
  type PolicyResource,
  type ProblemList,
  type ResourceDocument,
  type ResourceInput,
  type ResourceResult,
  type RouteOutcome,
  referenceText,
  type TargetName,
  type WrittenGateway,
  type WrittenRoute,
  type WrittenTcpRoute,
} from "./documents.ts";
import { translateGateway } from "./gateway-document.ts";
import { PARAMETERS_KIND } from "./gateway-parameters.ts";
import { withPools } from "./inference-pool.ts";
import { type ListenerSetDocument, parentOfSet } from "./listener-set.ts";
import { type PolicyContext, policySource, translatePolicy } from "./policy-document.ts";
import { findParts, type Part, partsOf, specSchema } from "./policy-spec.ts";
import { createFindRoute, refersTo } from "./route-delegation.ts";
import { type Delegation, type RouteContext, translateRoute } from "./route-document.ts";
import {
  BackendTargets,
  type GatewayTarget,
  type Labels,
  labelsOf,
  type RouteTarget,
  standaloneGateway,
  standaloneRoute,
  TargetTable,
} from "./targets.ts";
import { translateTcpRoute } from "./tcp-route-document.ts";

export function translateResources(input: ResourceInput): ResourceResult {
  const { standalone } = input;
  // Each document has one recording, although a child route is translated again for each route that delegates to it.
  const clusters = new Map<ResourceDocument, Cluster | undefined>();
  const clusterFor = (document: ResourceDocument): Cluster | undefined => {
    if (!clusters.has(document))
      clusters.set(document, input.cluster && (input.recorded?.(document, input.cluster) ?? input.cluster));
    return clusters.get(document);
  };
  // Documents of a cluster cannot refer to the standalone configuration.
  const isCluster = input.cluster !== undefined;
  const findBackendFor = (document: ResourceDocument): FindBackend => {
    const cluster = clusterFor(document);
    return cluster
      ? withPools(backendsOfCluster(cluster, document), cluster, document)
      : backendsOfFiles(standalone.services, input.documents, document);
  };
  const problemLists: ProblemList[] = [];
  const listenerSetTargets = new TargetTable<GatewayTarget>([]);
  const gatewayTargets = new TargetTable(isCluster ? [] : standalone.gateways.map(standaloneGateway));
  const routeTargets = new TargetTable(isCluster ? [] : standalone.routes.map(standaloneRoute));
  const grpcTargets = new TargetTable<RouteTarget>([]);
  const backendTargets = new BackendTargets();
  const taken = takenKindsOf(input);
  const gateways: WrittenGateway[] = [];
  const routes: WrittenRoute[] = [];
  const tcpRoutes: WrittenTcpRoute[] = [];
  const attachments: Attachment[] = [];
  const closures: Closure[] = [];
  const gatewayOutcomes: GatewayOutcome[] = [];
  const listenerSetOutcomes: ListenerSetOutcome[] = [];
  const routeOutcomes: RouteOutcome[] = [];
  const backendOutcomes: BackendOutcome[] = [];

  function each(
    kind: string,
    group: string,
    translate: (document: ResourceDocument, list: ProblemList) => void,
    documents = inOrder(input.documents, kind),
  ): void {
    for (const document of documents) {
      const list = createProblemList(document);
      const { apiVersion, name } = identityOf(document);
      if (group !== "" && !apiVersion.startsWith(`${group}/`)) list.add(["apiVersion"], `expected ${group}/v1`);
      else if (group !== "" && name === "") list.add(["metadata", "name"], "required field is missing");
      else translate(document, list);
      problemLists.push(list);
    }
  }

  const takenPorts = new Set(
    standalone.gateways.flatMap(({ port }) => (port === undefined || port === 0 ? [] : [port])),
  );
  const sectioned = sectionedGateways(input.documents);
  const sets = new Map<string, ListenerSetDocument[]>();
  const setNames = new Set<string>();
  each("ListenerSet", GATEWAY_API_GROUP, (document, list) => {
    if (setNames.has(fullName(document))) {
      list.add(["metadata", "name"], "another ListenerSet has this name");
      return;
    }
    setNames.add(fullName(document));
    const parent = parentOfSet(document);
    const key = parent ? keyOf(parent.namespace, parent.name) : "";
    sets.set(key, [...(sets.get(key) ?? []), { document, problems: list }]);
  });
  each("Gateway", GATEWAY_API_GROUP, (document, list) => {
    const { namespace, name } = identityOf(document);
    if (gatewayTargets.has(namespace, name)) {
      list.add(["metadata", "name"], "another Gateway has this name");
      return;
    }
    const translated = translateGateway(
      document,
      isCluster ? new Set([...takenPorts, ...DATA_PLANE_PORTS]) : takenPorts,
      list,
      clusterFor(document),
      sectioned.has(fullName(document)),
      sets.get(keyOf(namespace, name)) ?? [],
    );
    gatewayTargets.addDocument(translated.target);
    for (const target of translated.setTargets) listenerSetTargets.addDocument(target);
    gateways.push(...translated.gateways);
    gatewayOutcomes.push(translated.outcome);
    listenerSetOutcomes.push(...translated.setOutcomes);
  });
  // In a cluster, the set may belong to another controller.
  for (const { document, problems } of isCluster ? [] : [...sets.values()].flat()) {
    const { namespace, name } = identityOf(document);
    if (!listenerSetTargets.has(namespace, name)) problems.add(["spec", "parentRef"], "the Gateway was not found");
  }
  const routeContext = (document: ResourceDocument): RouteContext => ({
    gateways: gatewayTargets,
    listenerSets: listenerSetTargets,
    findBackend: findBackendFor(document),
    findRoute: createFindRoute(input.documents, document, clusterFor(document), findBackendFor),
    isCluster,
  });
  const delegations: ParentDelegation[] = [];
  const asChild = new Map<string, Omit<ParentOutcome, "parentRef">>();

  const addRoute = (targets: TargetTable<RouteTarget>) => (document: ResourceDocument, list: ProblemList) => {
    const { namespace, name, kind } = identityOf(document);
    if (targets.has(namespace, name)) {
      list.add(["metadata", "name"], `another ${kind} has this name`);
      return;
    }
    const translated = translateRoute(document, routeContext(document), list);
    const dropped: string[] = [];
    const usable = translated.routes.flatMap((route) => checkedRoute(route, input, list, dropped));
    routeOutcomes.push(withClosedRules(translated.outcome, translated.routes, usable, dropped));
    for (const { route, uses = [] } of usable)
      for (const [i, use] of route.backends === undefined ? [] : uses.entries()) {
        if (!use) continue;
        const backend = backendName(route.name, i);
        backendTargets.add(use, backend, false, translated.target.gateways);
        const kinds = taken({ kind: "backend", name: backend });
        for (const [policy, source] of use.policyKinds) kinds.set(policy, source);
      }
    const names = new Set(usable.map(({ route }) => route.name));
    if (kind === "HTTPRoute") asChild.set(fullName(document), translated.asChild);
    for (const delegation of translated.delegations)
      if (names.has(delegation.route)) delegations.push({ parent: document, delegation });
    targets.addDocument({
      ...translated.target,
      rules: translated.target.rules.filter(({ route }) => names.has(route)),
    });
    for (const { route } of usable) {
      const kinds = taken({ kind: "route", name: route.name });
      for (const policy of Object.keys(route.policies ?? {})) kinds.set(policy, `${kind} ${fullName(document)}`);
    }
    routes.push(...usable);
  };
  each("HTTPRoute", GATEWAY_API_GROUP, addRoute(routeTargets));
  each("GRPCRoute", GATEWAY_API_GROUP, addRoute(grpcTargets));
  const outcomesWithChildren = routeOutcomes.map((outcome) => withParentRoutes(outcome, delegations, asChild));
  for (const kind of ["TLSRoute", "TCPRoute"])
    each(kind, GATEWAY_API_GROUP, (document, list) => {
      const translated = translateTcpRoute(document, routeContext(document), list);
      tcpRoutes.push(...translated.routes);
      for (const { name, backends } of translated.routes.slice(0, 1))
        for (const [i, { use }] of backends.entries())
          if (use) backendTargets.add(use, backendName(name, i), true, translated.gateways);
      routeOutcomes.push(translated.outcome);
    });

  each("Backend", "", (document, list) => {
    if (identityOf(document).apiVersion === POLICY_API_VERSION || isCluster)
      backendOutcomes.push(backendOutcome(document, list, clusterFor(document)));
  });

  const parts = partsOf(input.policies);
  const schema = specSchema(input.policies);
  const redaction = input.redaction ?? createRedaction([]);
  const shown = (spec: unknown): unknown => shownSpec(spec, { parts, schema }, redaction);
  const resources = new Map<ResourceDocument, PolicyResource>();
  const names = new Set<string>();
  const policyContext = (document: ResourceDocument, takenKinds: PolicyContext["takenKinds"]): PolicyContext => ({
    parts,
    gateways: gatewayTargets,
    listenerSets: listenerSetTargets,
    routes: routeTargets,
    grpcRoutes: grpcTargets,
    backends: backendTargets,
    backendExists: (reference, portName) => backendExists(reference, portName, input),
    backendLabels: (reference) => backendLabels(reference, input),
    takenKinds,
    nowMs: input.nowMs,
    previous: input.previous?.find(({ metadata }) => keyOf(metadata.namespace, metadata.name) === fullName(document)),
    shown,
    isDuplicate: names.has(fullName(document)),
    cluster: clusterFor(document),
  });
  const addPolicy = (document: ResourceDocument, list: ProblemList): void => {
    const context = {
      ...policyContext(document, taken),
      reservedKind: (route: string, kind: string) => reserved.get(`${route} ${kind}`),
    };
    names.add(fullName(document));
    const translated = translatePolicy(document, context, list);
    attachments.push(...translated.attachments);
    closures.push(...translated.closures);
    resources.set(document, translated.resource);
  };
  // A policy for a route that delegates takes precedence over one for the child, whose author may be another team.
  const delegated = new Set(delegations.map(({ delegation }) => delegation.route));
  const reserved = new Map<string, string>();
  const deepest = Math.max(0, ...delegations.map(({ delegation }) => delegation.chain.length));
  for (let depth = 0; depth < deepest; depth += 1) {
    for (const document of policiesInOrder(input.documents)) {
      const context = policyContext(document, () => new Map());
      const { attachments: own } = translatePolicy(document, context, createProblemList(document));
      for (const { target, kind } of own) {
        const key = `${target.name} ${kind}`;
        if (target.kind === "route" && delegated.has(target.name) && !reserved.has(key))
          reserved.set(key, policySource(document));
      }
    }
    addChildren(routeTargets, delegations, depth);
  }
  each("GatewayPolicy", "", addPolicy, policiesInOrder(input.documents));

  const policies = input.documents.flatMap((document) => resources.get(document) ?? []);
  return {
    gateways,
    routes,
    tcpRoutes,
    attachments,
    closures,
    gatewayOutcomes,
    listenerSetOutcomes,
    routeOutcomes: [...outcomesWithChildren, ...routeOutcomes.slice(outcomesWithChildren.length)],
    childRoutes: childRoutesOf(delegations),
    backendOutcomes,
    policies,
    problems: [...problemLists.flatMap(({ all }) => all), ...(isCluster ? [] : unknownKinds(input.documents))],
  };
}

const KINDS = [
  "Gateway",
  "ListenerSet",
  "HTTPRoute",
  "GRPCRoute",
  "TLSRoute",
  "TCPRoute",
  "GatewayPolicy",
  "Backend",
  PARAMETERS_KIND,
];
/** These kinds are often in the same folder and are ignored without a warning. */
const SILENT_KINDS = new Set(["GatewayClass", "Namespace", "ReferenceGrant", "CustomResourceDefinition"]);

/** Returns the names that policies refer to with a `sectionName`. */
function sectionedGateways(documents: readonly ResourceDocument[]): Set<string> {
  const names = new Set<string>();
  for (const document of documents) {
    if (kindOf(document) !== "GatewayPolicy") continue;
    const { targetRefs, targetRef } = fieldsOf(fieldsOf(document.value).spec);
    for (const reference of [targetRefs, targetRef].flat().map(fieldsOf))
      if (reference.sectionName !== undefined) names.add(`${identityOf(document).namespace}/${String(reference.name)}`);
  }
  return names;
}

/**
 * The owner of a ListenerSet must not replace a policy of the Gateway, so policies that target a Gateway come first.
 */
function policiesInOrder(documents: readonly ResourceDocument[]): ResourceDocument[] {
  const all = inOrder(documents, "GatewayPolicy");
  const isOnlyForSets = (document: ResourceDocument): boolean => {
    const { targetRefs, targetSelectors } = fieldsOf(fieldsOf(document.value).spec);
    const kinds = [targetRefs, targetSelectors].flat().map((target) => fieldsOf(target).kind);
    return kinds.includes("ListenerSet") && !kinds.includes("Gateway");
  };
  return [...all.filter((document) => !isOnlyForSets(document)), ...all.filter(isOnlyForSets)];
}

/** Makes the routes of this depth targets of policies for the rules that they serve below another route. */
function addChildren(targets: TargetTable<RouteTarget>, delegations: readonly ParentDelegation[], depth: number): void {
  for (const { parent, delegation } of delegations) {
    const link = delegation.chain[depth];
    if (!link) continue;
    const { namespace, name } = identityOf(link.document);
    const child = targets.find(namespace, name);
    const { namespace: parentNamespace, name: parentName } = identityOf(parent);
    const gateways = [...(child?.gateways ?? []), ...(targets.find(parentNamespace, parentName)?.gateways ?? [])];
    if (!child) continue;
    targets.addDocument({
      ...child,
      rules: [...child.rules, { sectionName: link.sectionName, route: delegation.route }],
      gateways: [...new Map(gateways.map((gateway) => [referenceText(gateway), gateway])).values()],
    });
  }
}

interface ParentDelegation {
  readonly parent: ResourceDocument;
  readonly delegation: Delegation;
}

function childRoutesOf(delegations: readonly ParentDelegation[]): Map<ResourceDocument, Set<ResourceDocument>> {
  const children = new Map<ResourceDocument, Set<ResourceDocument>>();
  for (const { parent, delegation } of delegations) {
    const known = children.get(parent) ?? new Set();
    children.set(parent, known);
    for (const { document } of delegation.chain) known.add(document);
  }
  return children;
}

/** Adds the status for each parentRef that names an HTTPRoute that delegates to this one. */
function withParentRoutes(
  outcome: RouteOutcome,
  delegations: readonly ParentDelegation[],
  asChild: ReadonlyMap<string, Omit<ParentOutcome, "parentRef">>,
): RouteOutcome {
  const { document, parents } = outcome;
  const own = asChild.get(fullName(document));
  const { kind, namespace } = identityOf(document);
  if (own === undefined || kind !== "HTTPRoute") return outcome;
  const parentsOf = ({ parent, delegation: { chain } }: ParentDelegation): ResourceDocument[] =>
    chain.flatMap((link, i) => (link.document === document ? [chain[i - 1]?.document ?? parent] : []));
  const delegating = delegations.flatMap(parentsOf);
  const added = listOf(fieldsOf(fieldsOf(document.value).spec).parentRefs)
    .map(fieldsOf)
    .filter((parentRef) => delegating.some((parent) => refersTo(parentRef, namespace, parent)))
    .map((parentRef) => ({ parentRef, ...own }));
  return added.length === 0 ? outcome : { ...outcome, parents: [...parents, ...added] };
}

function unknownKinds(documents: readonly ResourceDocument[]): ConfigError[] {
  return documents.flatMap((document) => {
    const kind = kindOf(document);
    const { apiVersion } = identityOf(document);
    // Other projects also define a kind `Backend`.
    const isOurs = kind !== "Backend" || apiVersion === POLICY_API_VERSION;
    if ((KINDS.includes(kind) && isOurs) || SILENT_KINDS.has(kind)) return [];
    return [
      new ConfigError(
        document.position(["kind"]),
        "kind",
        `${kind === "" ? "a document without a kind" : kind} is not supported, ignored${kindHint(kind)}`,
      ),
    ];
  });
}

/**
 * A document of our own group with an unknown kind may be a misspelled security policy, so it is treated as a policy.
 */
function kindOf(document: ResourceDocument): string {
  const { kind, apiVersion } = identityOf(document);
  const isPolicy = apiVersion.startsWith(`${POLICY_API_GROUP}/`) && !KINDS.includes(kind);
  return isPolicy ? "GatewayPolicy" : kind;
}

function kindHint(kind: string): string {
  return Object.hasOwn(FOREIGN_KINDS, kind) ? `: ${FOREIGN_KINDS[kind]}` : suggestion(kind, KINDS);
}

function inOrder(documents: readonly ResourceDocument[], kind: string): ResourceDocument[] {
  const created = (document: ResourceDocument): string => {
    const metadata = isObject(document.value) && isObject(document.value.metadata) ? document.value.metadata : {};
    return textOf(metadata.creationTimestamp) ?? "";
  };
  const key = (document: ResourceDocument): string => `${created(document)} ${fullName(document)}`;
  return documents
    .filter((document) => kindOf(document) === kind)
    .map((document) => ({ document, key: key(document) }))
    .sort((one, other) => (one.key < other.key ? -1 : one.key > other.key ? 1 : 0))
    .map(({ document }) => document);
}

/**
 * Validates a translated rule. An invalid rule rejects all requests, or is dropped if its matches are invalid too. Its
 * problem is added to `dropped`.
 */
function checkedRoute(
  written: WrittenRoute,
  input: ResourceInput,
  list: ProblemList,
  dropped: string[],
): WrittenRoute[] {
  const parsed = input.routeSchema.safeParse(written.route);
  if (parsed.success) return [written];
  const problems = parsed.error.issues.map((issue) =>
    list.add(written.path, `${issue.path.join(".")}: ${issue.message}`),
  );
  const { name, gateways, hostnames, matches } = written.route;
  const bare = { name, gateways, ...(hostnames ? { hostnames } : {}), ...(matches ? { matches } : {}) };
  const problem = problems[0]?.toLine() as string;
  if (!input.routeSchema.safeParse(bare).success) {
    dropped.push(problem);
    return [];
  }
  const { closedBackends: _, ...rest } = written;
  return [{ ...rest, route: bare, closed: written.closed ?? problem }];
}

/** Adds rules that only the validation closed to the conditions of the route. */
function withClosedRules(
  outcome: RouteOutcome,
  written: readonly WrittenRoute[],
  usable: readonly WrittenRoute[],
  dropped: readonly string[],
): RouteOutcome {
  const isOpen = ({ closed }: WrittenRoute): boolean => closed === undefined;
  const open = usable.filter(isOpen).length;
  if (open === written.filter(isOpen).length) return outcome;
  const closed = [...new Set([...usable.flatMap((route) => route.closed ?? []), ...dropped])];
  const message = `Rules closed: ${closed.join("; ")}`;
  const parents = outcome.parents.map((parent) => {
    if (!parent.accepted.isTrue) return parent;
    if (open === 0) return { ...parent, accepted: { isTrue: false, reason: "UnsupportedValue", message } };
    return { ...parent, partiallyInvalid: { isTrue: true, reason: "UnsupportedValue", message } };
  });
  return { ...outcome, parents };
}

/** Services in files, and Backends, have no named ports. */
function backendExists(
  { kind, namespace, name }: ObjectReference,
  portName: string | undefined,
  { cluster, documents, standalone }: ResourceInput,
): boolean {
  if (cluster) {
    const found = cluster.object(kind, namespace, name);
    if (portName === undefined) return found !== undefined;
    return kind === "Service" && listOf(specOf(found).ports).some((port) => fieldsOf(port).name === portName);
  }
  if (portName !== undefined) return false;
  if (kind === "Backend")
    return documents.some((one) => kindOf(one) === kind && fullName(one) === keyOf(namespace, name));
  return Object.keys(standalone.services).some((key) => key.replace(/:\d+$/, "").replace(/^.*\//, "") === name);
}

/** Services in files have no labels. */
function backendLabels({ kind, namespace, name }: ObjectReference, { cluster, documents }: ResourceInput): Labels {
  const value = cluster
    ? cluster.object(kind, namespace, name)
    : documents.find((one) => kindOf(one) === kind && fullName(one) === keyOf(namespace, name))?.value;
  return labelsOf({ value });
}

function takenKindsOf({ standalone }: ResourceInput): (target: TargetName) => Map<string, string> {
  const kinds = new Map<string, Map<string, string>>();
  for (const kind of ["gateway", "route"] as const) {
    for (const { name, policyKinds } of standalone[`${kind}s`]) {
      kinds.set(
        `${kind} ${name}`,
        new Map(policyKinds.map((policyKind) => [policyKind, "the standalone configuration"])),
      );
    }
  }
  return ({ kind, name }) => {
    const known = kinds.get(`${kind} ${name}`) ?? new Map<string, string>();
    kinds.set(`${kind} ${name}`, known);
    return known;
  };
}

// Redacts the spec of a GatewayPolicy for display (dump, UI, status). The schema marks secrets. Unknown fields and
// invalid security parts are hidden completely, because a misspelled field may contain a key.

function shownSpec(
  spec: unknown,
  { parts, schema }: { readonly parts: readonly Part[]; readonly schema: z.ZodType },
  redaction: Redaction,
): unknown {
  if (!isObject(spec)) return {};
  const { found, unknown } = findParts(spec, parts);
  const hidden = [
    ...unknown.map(({ path }) => path),
    ...found
      .filter(({ part, value }) => part.isSecurity && !part.schema.safeParse(value).success)
      .map(({ path }) => path),
  ];
  return hidden.reduce<unknown>((shown, path) => without(shown, path.slice(1)), shownConfig(schema, spec, redaction));
}

function without(value: unknown, [step, ...rest]: Path): unknown {
  if (step === undefined) return REDACTED;
  return isObject(value) ? { ...value, [step]: without(value[step], rest) } : value;
}
