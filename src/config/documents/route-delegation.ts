/**
 * Route delegation: an HTTPRoute rule whose backendRefs name other HTTPRoutes. The rules of a child route serve the
 * requests that match both rules.
 */
import { defined } from "../../json/json.ts";
import { type Fields, fieldsOf, listOf, textOf } from "../text/value-shapes.ts";
import type { FindBackend } from "./backend-document.ts";
import type { Cluster } from "./cluster.ts";
import { fullName, GATEWAY_API_GROUP, identityOf, type ResourceDocument } from "./documents.ts";

/** The rules of child routes, at all levels, that one HTTPRoute can serve. */
export const MAX_DELEGATED_RULES = 1_000;

export type FoundRoute =
  | { readonly document: ResourceDocument; readonly findBackend: FindBackend; readonly findRoute: FindRoute }
  | { readonly reason: "BackendNotFound" | "RefNotPermitted" | "InvalidBackend"; readonly message: string };

export type FindRoute = (reference: Fields) => FoundRoute;

export function isRouteReference(reference: unknown): boolean {
  return fieldsOf(reference).kind === "HTTPRoute";
}

/** Returns the reason why a rule cannot delegate with this reference. */
export function referenceFault(reference: Fields): string | undefined {
  const { group, kind, name: _name, namespace: _namespace, weight = 1, ...others } = reference;
  if (kind !== "HTTPRoute") return "a rule that delegates to an HTTPRoute cannot have other backends";
  if (group !== GATEWAY_API_GROUP) return `the group of an HTTPRoute is ${GATEWAY_API_GROUP}`;
  if (weight !== 1) return "weight is not supported for an HTTPRoute";
  const [field] = Object.keys(others);
  return field === undefined ? undefined : `${field} is not supported for an HTTPRoute`;
}

export function createFindRoute(
  documents: readonly ResourceDocument[],
  parent: ResourceDocument,
  cluster: Cluster | undefined,
  findBackendFor: (document: ResourceDocument) => FindBackend,
): FindRoute {
  const { namespace: own } = identityOf(parent);
  return (reference) => {
    const namespace = textOf(reference.namespace) ?? own;
    const key = `${namespace}/${textOf(reference.name) ?? ""}`;
    const shown = `HTTPRoute ${key}`;
    const from = { group: GATEWAY_API_GROUP, kind: "HTTPRoute", namespace: own };
    const to = { group: GATEWAY_API_GROUP, kind: "HTTPRoute", namespace, name: textOf(reference.name) ?? "" };
    if (cluster ? !cluster.mayRefer(from, to) : namespace !== own)
      return {
        reason: "RefNotPermitted",
        message: `${shown} is in another namespace, whose ReferenceGrants do not allow this`,
      };
    const document = documents.find((one) => identityOf(one).kind === "HTTPRoute" && fullName(one) === key);
    if (!document) return { reason: "BackendNotFound", message: `${shown} was not found` };
    const spec = fieldsOf(fieldsOf(document.value).spec);
    if (listOf(spec.hostnames).length > 0)
      return { reason: "InvalidBackend", message: `${shown} has hostnames, but the route that delegates decides them` };
    const parents = listOf(spec.parentRefs).map(fieldsOf).filter(isRouteReference);
    if (parents.length > 0 && !parents.some((one) => refersTo(one, namespace, parent)))
      return { reason: "InvalidBackend", message: `${shown} names other HTTPRoutes in its parentRefs` };
    return {
      document,
      findBackend: findBackendFor(document),
      findRoute: createFindRoute(documents, document, cluster, findBackendFor),
    };
  };
}

/** `namespace` is that of the document with the parentRef. */
export function refersTo(parentRef: Fields, namespace: string, parent: ResourceDocument): boolean {
  const { group = GATEWAY_API_GROUP, name } = parentRef;
  const key = `${textOf(parentRef.namespace) ?? namespace}/${String(name)}`;
  return group === GATEWAY_API_GROUP && isRouteReference(parentRef) && key === fullName(parent);
}

type Match = Readonly<Record<string, unknown>>;

/** Returns undefined unless the match has a path prefix. */
export function prefixOf({ path }: Match): string | undefined {
  return path === undefined ? "/" : textOf(fieldsOf(path).pathPrefix);
}

/**
 * Returns the matches of the requests that match one of each list. Each of `parents` has a path prefix, which is `/` if
 * a child has a regular expression.
 */
export function commonMatches(parents: readonly Match[], children: readonly Match[]): Match[] {
  return parents.flatMap((parent) =>
    children.flatMap((child) => {
      const path = commonPath(prefixOf(parent) ?? "/", fieldsOf(child.path ?? { pathPrefix: "/" }));
      if (path === undefined) return [];
      if (parent.method !== undefined && child.method !== undefined && parent.method !== child.method) return [];
      const headers = [...listOf(parent.headers), ...listOf(child.headers)];
      const query = [...listOf(parent.query), ...listOf(child.query)];
      const method = child.method ?? parent.method;
      return [
        {
          path,
          ...defined({ method }),
          ...(headers.length === 0 ? {} : { headers }),
          ...(query.length === 0 ? {} : { query }),
        },
      ];
    }),
  );
}

/** A regular expression that a prefix restricts cannot be written as one match. */
export function hasUnclearPaths(parents: readonly Match[], children: readonly Match[]): boolean {
  return (
    parents.some((parent) => prefixOf(parent) !== "/") &&
    children.some(({ path }) => fieldsOf(path).regex !== undefined)
  );
}

function commonPath(prefix: string, path: Fields): Fields | undefined {
  const { exact, pathPrefix, regex } = path;
  if (regex !== undefined) return path;
  if (typeof exact === "string") return isWithin(exact, prefix) ? path : undefined;
  const own = String(pathPrefix);
  if (isWithin(own, prefix)) return path;
  return isWithin(prefix, own) ? { pathPrefix: prefix } : undefined;
}

/** Prefixes consist of whole segments. */
function isWithin(path: string, prefix: string): boolean {
  const whole = prefix.replace(/\/+$/, "");
  return path === prefix || path === whole || path.startsWith(`${whole}/`);
}

/** A child can set these policies itself. For all others, two rules with the same filter are refused. */
const OVERRIDABLE = new Set(["timeout", "retry", "sessionPersistence"]);

export function inheritedPolicies(
  parent: Fields,
  child: Fields,
): { readonly policies: Fields } | { readonly twice: string } {
  const twice = Object.keys(parent).find((kind) => child[kind] !== undefined && !OVERRIDABLE.has(kind));
  return twice === undefined ? { policies: { ...parent, ...child } } : { twice };
}

export function replacesPrefix({ urlRewrite, requestRedirect }: Fields): boolean {
  return [urlRewrite, requestRedirect].some((one) => fieldsOf(fieldsOf(one).path).prefix !== undefined);
}

export function hasPath(matches: readonly Match[], { path }: Match): boolean {
  return matches.some((match) => JSON.stringify(match.path) === JSON.stringify(path));
}
