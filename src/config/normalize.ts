/**
 * One internal form for all ways of writing: gateways with routes, the single-purpose sections (`mcp`, `llm`), and
 * resource documents. Names are given, defaults are filled in, and every part remembers where it was written.
 */
import { backends } from "../backends/index.ts";
import { suggestion } from "../cel/nearest-name.ts";
import { ConfigError } from "../core/errors.ts";
import type { PathMatch } from "../core/policy.ts";
import type { RouteMatch } from "../core/topology.ts";
import { policies } from "../policies/index.ts";
import type { WrittenBackend, WrittenConfig, WrittenProcess, WrittenRoute } from "./schema.ts";
import { type Path, pathText, type SourceDocument } from "./yaml-source.ts";

/** Where something was written: for messages, and for paths relative to its file. */
export interface Place {
  readonly document: SourceDocument;
  readonly path: Path;
}

export interface PlacedPolicy {
  readonly kind: string;
  readonly config: unknown;
  /** As it would be written under `policies`, where the place in the file says it otherwise. */
  readonly written?: unknown;
  /** It comes from a resource document: a failure becomes that document's status. */
  readonly isResource?: boolean;
  /** What it stands on, for example `route tools`: the key of what it keeps across reloads. */
  readonly owner: string;
  readonly place: Place;
}

export interface NormalGateway {
  readonly name: string;
  readonly port: number;
  readonly address: string | undefined;
  readonly protocol: "HTTP" | "HTTPS";
  readonly tls: { readonly cert: string; readonly key: string } | undefined;
  readonly policies: PlacedPolicy[];
  readonly place: Place;
  /** Why every request is refused, if it is. */
  closed?: string;
}

export interface NormalBackend {
  readonly key: string;
  readonly name: string;
  readonly weight: number;
  readonly config: unknown;
  readonly policies: readonly PlacedPolicy[];
  readonly place: Place;
}

export interface NormalRoute {
  readonly name: string;
  readonly gateways: readonly string[];
  readonly hostnames: readonly string[];
  matches: RouteMatch[];
  readonly policies: PlacedPolicy[];
  readonly backends: readonly NormalBackend[];
  readonly place: Place;
  closed?: string;
}

export interface NormalConfig {
  readonly process: WrittenProcess;
  /** What stands behind references to a Service, as written. */
  readonly services: Readonly<Record<string, string | Readonly<Record<string, unknown>>>>;
  readonly gateways: NormalGateway[];
  readonly routes: NormalRoute[];
}

export interface Normalized {
  readonly config: NormalConfig;
  readonly problems: readonly ConfigError[];
}

const DEFAULT_GATEWAY = "default";

export function normalize(
  written: WrittenConfig,
  document: SourceDocument,
  defaultProcess: WrittenProcess,
): Normalized {
  const problems: ConfigError[] = [];
  const gateways: NormalGateway[] = [];
  const routes: NormalRoute[] = [];
  const problem = (path: Path, message: string): void =>
    void problems.push(new ConfigError(document.position(path), pathText(path), message));

  for (const [name, gateway] of Object.entries(written.gateways ?? {})) {
    const place = { document, path: ["gateways", name] };
    gateways.push({
      name,
      port: gateway.port,
      address: gateway.address,
      protocol: gateway.protocol,
      tls: gateway.tls,
      policies: placePolicies(gateway.policies, `gateway ${name}`, place),
      place,
    });
  }

  for (const [index, route] of (written.routes ?? []).entries()) {
    const place = { document, path: ["routes", index] };
    const name = route.name ?? `route${index}`;
    const served = servedBy(route, gateways);
    if (served.length === 0)
      problem([...place.path, ...(route.gateways === undefined ? [] : ["gateways"])], noGateway(route, gateways));
    for (const gateway of served)
      if (!gateways.some((one) => one.name === gateway))
        problem([...place.path, "gateways"], unknownGateway(gateway, gateways));
    routes.push(normalRoute(name, served, route, place));
  }

  if (written.ui) routes.push(uiRoute(written.ui, document, gateways, problem));
  addSections(written, document, gateways, routes);
  checkPorts(gateways, problems);
  checkRouteNames(routes, problems);
  return {
    config: { process: written.config ?? defaultProcess, services: servicesOf(document), gateways, routes },
    problems,
  };
}

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
    config: fields[key],
    policies: placePolicies(written.policies, `backend ${name}`, place),
    place: { document: place.document, path: [...place.path, key] },
  };
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
        ? { exact: path.exact }
        : path?.regex !== undefined
          ? { regex: path.regex }
          : { pathPrefix: path?.pathPrefix ?? "/" },
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
  return { path: match.exact === undefined ? { pathPrefix: match.pathPrefix ?? "/" } : { exact: match.exact } };
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

/** The gateways that a route names; else `default`, else the only one. */
function servedBy(route: Pick<WrittenRoute, "gateways">, gateways: readonly NormalGateway[]): readonly string[] {
  if (route.gateways !== undefined) return typeof route.gateways === "string" ? [route.gateways] : route.gateways;
  const only =
    gateways.find(({ name }) => name === DEFAULT_GATEWAY) ?? (gateways.length === 1 ? gateways[0] : undefined);
  return only ? [only.name] : [];
}

/** `mcp` and `llm` have ports of their own and serve nobody else: they are not among the names. */
function unknownGateway(name: string, gateways: readonly NormalGateway[]): string {
  const names = gateways.map((gateway) => gateway.name);
  return `there is no gateway named ${JSON.stringify(name)}${suggestion(name, names)}`;
}

function noGateway(route: Pick<WrittenRoute, "gateways">, gateways: readonly NormalGateway[]): string {
  if (route.gateways !== undefined) return "the list of gateways is empty";
  return gateways.length === 0
    ? "there is no gateway to serve it: add one under `gateways`"
    : `set \`gateways\`: there are several (${gateways.map(({ name }) => name).join(", ")}) and none is named default`;
}

/** The web UI as a route; without a policy that asks who is there, it is for loopback peers alone. */
function uiRoute(
  ui: NonNullable<WrittenConfig["ui"]>,
  document: SourceDocument,
  gateways: readonly NormalGateway[],
  problem: (path: Path, message: string) => void,
): NormalRoute {
  const served = servedBy(ui, gateways);
  for (const name of served) {
    if (!gateways.some((one) => one.name === name)) problem(["ui", "gateways"], unknownGateway(name, gateways));
  }
  if (served.length === 0) problem(["ui"], noGateway(ui, gateways));
  const place = { document, path: ["ui"] };
  const placed = placePolicies(ui.policies, "route ui", place);
  const loopbackOnly = !placed.some(({ kind }) => policies.find((policy) => policy.kind === kind)?.role === "security");
  return {
    name: "ui",
    gateways: served,
    hostnames: [],
    matches: [{ path: { pathPrefix: "/ui" } }],
    policies: placed,
    backends: [{ key: "ui", name: "ui", weight: 1, config: { loopbackOnly }, policies: [], place }],
    place,
  };
}

/** `mcp`, `llm`, …: a section of its own port is a gateway with one route to one backend. */
function addSections(
  written: WrittenConfig,
  document: SourceDocument,
  gateways: NormalGateway[],
  routes: NormalRoute[],
): void {
  for (const { key, section } of backends) {
    if (!section) continue;
    const fields = (written as Record<string, unknown>)[section.name] as Record<string, unknown> | undefined;
    if (!fields) continue;
    const { port, address, policies: own, ...config } = fields;
    const place = { document, path: [section.name] };
    gateways.push({
      name: section.name,
      port: Number(port),
      address: address as string | undefined,
      protocol: "HTTP",
      tls: undefined,
      policies: [],
      place,
    });
    routes.push({
      name: section.name,
      gateways: [section.name],
      hostnames: [],
      matches: (section.paths ?? [{ pathPrefix: "/" }]).map(pathMatch),
      policies: placePolicies(own as Record<string, unknown> | undefined, `route ${section.name}`, place),
      backends: [{ key, name: `${section.name}/backend0`, weight: 1, config, policies: [], place }],
      place,
    });
  }
}

/** As written: a route that refers to one is validated with it in place. */
function servicesOf(document: SourceDocument): NormalConfig["services"] {
  return ((document.value as Record<string, unknown>).services as NormalConfig["services"] | undefined) ?? {};
}

function checkPorts(gateways: readonly NormalGateway[], problems: ConfigError[]): void {
  const taken = new Map<number, NormalGateway>();
  for (const gateway of gateways) {
    const before = gateway.port === 0 ? undefined : taken.get(gateway.port);
    if (before) {
      const path = [...gateway.place.path, "port"];
      problems.push(
        new ConfigError(
          gateway.place.document.position(path),
          pathText(path),
          `port ${gateway.port} is already used by ${pathText(before.place.path)}`,
        ),
      );
    }
    taken.set(gateway.port, gateway);
  }
}

function checkRouteNames(routes: readonly NormalRoute[], problems: ConfigError[]): void {
  const seen = new Set<string>();
  for (const route of routes) {
    if (seen.has(route.name))
      problems.push(
        new ConfigError(
          route.place.document.position([...route.place.path, "name"]),
          pathText([...route.place.path, "name"]),
          `another route is already named ${JSON.stringify(route.name)}`,
        ),
      );
    seen.add(route.name);
  }
}
