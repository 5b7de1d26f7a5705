/**
 * The parentRefs of an HTTPRoute or GRPCRoute → the gateways that serve it, under which host names, and whether each parent
 * accepted it. Listeners of one port are kept apart: a request belongs to the listener with the most specific host
 * name, and routes of the others do not see it.
 */
import { suggestion } from "../../cel/values/nearest-name.ts";
import type { Path } from "../text/value-path.ts";
import { type Fields, isObject, listOf, textOf } from "../text/value-shapes.ts";
import { GATEWAY_API_GROUP, type ObjectReference, type Verdict } from "./documents.ts";
import { type ProblemList, referenceText } from "./problem-list.ts";
import { type GatewayListener, type GatewayTarget, gatewayReference, type TargetTable } from "./targets.ts";

interface Parents {
  readonly references: readonly ObjectReference[];
  readonly servedBy: readonly ServedBy[];
  readonly parents: readonly { readonly parentRef: Fields; readonly accepted: Verdict }[];
}

/** Gateways that serve the route under the same host names; the names are empty where any will do. */
interface ServedBy {
  readonly gateways: readonly string[];
  readonly hostnames: readonly string[];
  /** Names that belong to a more specific listener of the same port. */
  readonly except: readonly string[];
  /** Of the listeners. */
  readonly port: number | undefined;
}

const ACCEPTED: Verdict = { isTrue: true, reason: "Accepted", message: "Route accepted" };

interface ParentContext {
  readonly namespace: string;
  /** HTTPRoute or GRPCRoute. */
  readonly kind: string;
  readonly gateways: TargetTable<GatewayTarget>;
  readonly problems: ProblemList;
  /** A Gateway that is not known is somebody else's, and not a mistake. */
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
      const except = context.isCluster ? moreSpecific(listener, found.listeners) : [];
      served.add(listener.gateway, hostnames, except, context.isCluster ? listener.port : undefined);
      references.set(referenceText(found.reference), found.reference);
    }
    const accepted = verdictOf(named.length, admitted.length, fitting.length, found.reference);
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

function verdictOf(named: number, admitted: number, fitting: number, gateway: ObjectReference): Verdict {
  if (fitting > 0) return ACCEPTED;
  const no = (reason: string, what: string): Verdict => ({
    isTrue: false,
    reason,
    message: `${referenceText(gateway)} has no listener ${what}`,
  });
  if (named === 0) return no("NoMatchingParent", "with this sectionName and port");
  if (admitted === 0) return no("NotAllowedByListeners", "whose allowedRoutes admit this route");
  return no("NoMatchingListenerHostname", "with a hostname in common with this route");
}

/** The host names of other listeners of the port that this listener's own covers: they belong to those. */
function moreSpecific(listener: GatewayListener, all: readonly GatewayListener[]): string[] {
  return all.flatMap(({ gateway, port, hostname }) =>
    gateway !== undefined && port === listener.port && hostname !== undefined && hostname !== listener.hostname
      ? covers(listener.hostname ?? "*", hostname)
        ? [hostname]
        : []
      : [],
  );
}

/** Collects host names for each gateway and puts gateways with the same ones together. */
class ServedNames {
  readonly #entries = new Map<
    string,
    { gateway: string; names: Set<string>; except: readonly string[]; port: number | undefined }
  >();

  add(gateway: string, hostnames: readonly string[], except: readonly string[], port: number | undefined): void {
    const key = `${gateway} ${except.join()}`;
    const entry = this.#entries.get(key) ?? { gateway, names: new Set<string>(), except, port };
    // No name at all means any: it covers the names of other listeners on the same port.
    for (const one of hostnames.length === 0 ? ["*"] : hostnames) entry.names.add(one);
    this.#entries.set(key, entry);
  }

  groups(): ServedBy[] {
    const groups = new Map<string, ServedBy & { gateways: string[] }>();
    for (const { gateway, names, except, port } of this.#entries.values()) {
      const hostnames = names.has("*") ? [] : [...names].sort();
      const key = `${hostnames.join()} ${except.join()} ${port ?? ""}`;
      const group = groups.get(key) ?? { gateways: [], hostnames, except, port };
      group.gateways.push(gateway);
      groups.set(key, group);
    }
    return [...groups.values()];
  }
}

function findParent(
  parent: Fields,
  path: Path,
  { namespace, gateways, problems, isCluster }: ParentContext,
): GatewayTarget | undefined {
  const kind = textOf(parent.kind) ?? "Gateway";
  const name = textOf(parent.name) ?? "";
  if (isCluster && (textOf(parent.group) ?? GATEWAY_API_GROUP) !== GATEWAY_API_GROUP) return undefined;
  if (kind !== "Gateway") {
    if (!isCluster) problems.add([...path, "kind"], `${kind} is not supported: use Gateway`);
    return undefined;
  }
  const wanted = gatewayReference(textOf(parent.namespace) ?? namespace, name);
  const found = gateways.find(wanted.namespace, wanted.name);
  if (!found && !isCluster)
    problems.add(path, `${referenceText(wanted)} was not found${suggestion(name, gateways.names(wanted.namespace))}`);
  return found;
}

/**
 * The host names under which a listener serves a route: those of the route that the listener's own name covers.
 */

/** An empty list: any name. undefined: they have none in common, the listener does not serve the route. */
function commonHostnames(route: readonly string[], listener: string | undefined): string[] | undefined {
  if (listener === undefined || listener === "*") return [...route];
  if (route.length === 0) return [listener];
  const common = route.flatMap((name) => (covers(listener, name) ? [name] : covers(name, listener) ? [listener] : []));
  return common.length === 0 ? undefined : [...new Set(common)];
}

/** `*.example.com` covers `a.example.com` and `*.a.example.com`, not `example.com`. */
function covers(pattern: string, name: string): boolean {
  const [one, other] = [pattern.toLowerCase(), name.toLowerCase()];
  if (one === other || one === "*") return true;
  return one.startsWith("*.") && other.endsWith(one.slice(1)) && other.length > one.length - 1;
}
