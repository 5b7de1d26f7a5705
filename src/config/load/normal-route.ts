/**
 * One route in the internal form: its matches with defaults filled in, its policies and backends with the places where
 * they were written. A route may come from the `routes` list or from a resource document.
 */
import { backends } from "../../backends/index.ts";
import type { PathMatch } from "../../core/policy.ts";
import type { RouteMatch } from "../../core/topology.ts";
import { canonicalPath } from "../../http/request-path.ts";
import { policies } from "../../policies/index.ts";
import type { WrittenBackend, WrittenRoute } from "../schema/schema.ts";
import type { InnerScope, NormalBackend, NormalRoute, Place, PlacedPolicy } from "./normal-config.ts";

export function normalRoute(name: string, gateways: readonly string[], route: WrittenRoute, place: Place): NormalRoute {
  const list = (route.backends ?? []).map((backend, i) =>
    normalBackend(`${name}/backend${i}`, backend, { document: place.document, path: [...place.path, "backends", i] }),
  );
  return {
    name,
    gateways,
    hostnames: route.hostnames ?? [],
    matches: route.matches ? route.matches.map(normalMatch) : defaultMatches(list),
    policies: placePolicies(route.policies, `route ${name}`, place),
    backends: list,
    place,
  };
}

function normalBackend(name: string, written: WrittenBackend, place: Place): NormalBackend {
  const fields = written as Record<string, unknown>;
  const key = backends.find((backend) => fields[backend.key] !== undefined)?.key ?? "";
  return {
    key,
    name,
    weight: written.weight ?? 1,
    protocol: written.protocol,
    canary: written.canary,
    config: fields[key],
    policies: placePolicies(written.policies, `backend ${name}`, place),
    inner: innerScopes(key, name, fields[key], { document: place.document, path: [...place.path, key] }),
    place: { document: place.document, path: [...place.path, key] },
  };
}

/** What stands inside of a backend has names of its own: two backends may have a model of one name. */
export function innerScopes(
  key: string,
  backend: string,
  config: unknown,
  place: Place,
): readonly InnerScope[] | undefined {
  const list = backends.find((one) => one.key === key)?.innerPolicies?.(config as never) ?? [];
  if (list.length === 0) return undefined;
  return list.map(({ name, path, policies: written }) => ({
    name,
    policies: placePolicies(written, `${name} of ${backend}`, { ...place, path: [...place.path, ...path] }),
  }));
}

/** Without `matches` a route takes everything; a backend kind may say otherwise, so that others can share the listener. */
function defaultMatches(list: readonly NormalBackend[]): RouteMatch[] {
  const own = list.map((backend) => backends.find(({ key }) => key === backend.key)?.defaultPaths);
  const paths = own[0];
  if (paths && own.every((one) => one === paths)) return paths.map(pathMatch);
  return [{ path: { pathPrefix: "/" } }];
}

type WrittenMatch = NonNullable<WrittenRoute["matches"]>[number];

function normalMatch(match: WrittenMatch): RouteMatch {
  const path = match.path;
  return {
    path:
      path?.exact !== undefined
        ? { exact: canonicalPath(path.exact) }
        : path?.regex !== undefined
          ? { regex: path.regex }
          : { pathPrefix: canonicalPath(path?.pathPrefix ?? "/") },
    ...(match.method === undefined ? {} : { method: match.method }),
    ...(match.headers === undefined ? {} : { headers: match.headers.map(valueMatch) }),
    ...(match.query === undefined ? {} : { query: match.query.map(valueMatch) }),
  };
}

function valueMatch(match: { name: string; exact?: string | undefined; regex?: string | undefined }) {
  return {
    name: match.name,
    ...(match.exact === undefined ? {} : { exact: match.exact }),
    ...(match.regex === undefined ? {} : { regex: match.regex }),
  };
}

export function pathMatch(match: PathMatch): RouteMatch {
  const { exact, pathPrefix = "/" } = match;
  return { path: exact === undefined ? { pathPrefix: canonicalPath(pathPrefix) } : { exact: canonicalPath(exact) } };
}

export function placePolicies(
  written: Readonly<Record<string, unknown>> | undefined,
  owner: string,
  place: Place,
): PlacedPolicy[] {
  return policies
    .filter(({ kind }) => written?.[kind] !== undefined)
    .map(({ kind }) => ({
      kind,
      config: written?.[kind],
      owner,
      place: { document: place.document, path: [...place.path, "policies", kind] },
    }));
}
