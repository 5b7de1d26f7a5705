/**
 * Converts all layouts to the normalized form: gateways with routes, and the sections `mcp` and `llm`. It assigns
 * names, fills in defaults, and records source positions.
 */

import { backends } from "../../backends/index.ts";
import { suggestion } from "../../cel/values/nearest-name.ts";
import { ConfigError } from "../../core/config-error.ts";
import type { PathMatch } from "../../core/policy.ts";
import type { RouteMatch } from "../../core/topology.ts";
import { canonicalPattern } from "../../http/host.ts";
import { canonicalPath } from "../../http/request-path.ts";
import { defined } from "../../json/json.ts";
import { policies } from "../../policies/index.ts";
import {
  isForwarding,
  type WrittenBackend,
  type WrittenConfig,
  type WrittenProcess,
  type WrittenRoute,
  type WrittenTcpRoute,
} from "../schema/schema.ts";
import { type Path, pathText } from "../text/value-path.ts";
import type { SourceDocument } from "../text/yaml-source.ts";
import {
  backendName,
  type InnerScope,
  type NormalBackend,
  type NormalConfig,
  type NormalGateway,
  type NormalRoute,
  type NormalTcpRoute,
  type Place,
  type PlacedPolicy,
} from "./normal-config.ts";

type Report = (path: Path, message: string) => void;

export interface Normalized {
  readonly config: NormalConfig;
  readonly problems: readonly ConfigError[];
}

export function normalize(
  written: WrittenConfig,
  document: SourceDocument,
  defaultProcess: WrittenProcess,
): Normalized {
  const problems: ConfigError[] = [];
  const gateways: NormalGateway[] = [];
  const routes: NormalRoute[] = [];
  const problem: Report = (path, message) =>
    void problems.push(new ConfigError(document.position(path), pathText(path), message));

  for (const [name, gateway] of Object.entries(written.gateways ?? {})) {
    const place = { document, path: ["gateways", name] };
    if (gateway.proxyProtocol !== undefined && (written.config?.trustedProxies ?? []).length === 0)
      problem(
        [...place.path, "proxyProtocol"],
        "list the addresses of the load balancers in `config.trustedProxies`: only they may send a PROXY protocol header",
      );
    const isTcp = isForwarding(gateway.protocol);
    gateways.push({
      name,
      port: gateway.port,
      address: gateway.address,
      protocol: gateway.protocol,
      tls: isTcp ? undefined : gateway.tls,
      http2: gateway.http2,
      forwardProxy: gateway.forwardProxy,
      proxyProtocol: gateway.proxyProtocol,
      ...(isTcp ? { tcp: [{ name, hostname: undefined, tls: gateway.tls, routes: [] }] } : {}),
      policies: placePolicies(gateway.policies, `gateway ${name}`, place),
      place,
    });
  }

  const httpGateways = gateways.filter(({ tcp }) => tcp === undefined);
  for (const [index, route] of (written.routes ?? []).entries()) {
    const place = { document, path: ["routes", index] };
    const name = route.name ?? `route${index}`;
    const served = servedBy(route, httpGateways);
    if (served.length === 0)
      problem([...place.path, ...(route.gateways === undefined ? [] : ["gateways"])], noGateway(route, httpGateways));
    for (const gateway of served) {
      const fault = gatewayFault(gateway, gateways);
      if (fault !== undefined) problem([...place.path, "gateways"], fault);
      const isForwardProxy = gateways.find((one) => one.name === gateway)?.forwardProxy === true;
      const index = (route.backends ?? []).findIndex(
        (backend) => "dynamic" in backend && backend.dynamic !== undefined,
      );
      if (fault === undefined && index >= 0 && !isForwardProxy)
        problem(
          [...place.path, "backends", index, "dynamic"],
          `the gateway ${JSON.stringify(gateway)} is not a forward proxy: set its \`forwardProxy\` to true`,
        );
    }
    routes.push(normalRoute(name, served, route, place));
  }

  for (const [name, service] of Object.entries(written.services ?? {}))
    if (typeof service === "object" && "dynamic" in service && service.dynamic !== undefined)
      problem(
        ["services", name, "dynamic"],
        "a Service cannot be `dynamic`: write a route of a gateway with `forwardProxy` instead",
      );
  addTcpRoutes(written.tcpRoutes ?? [], gateways, problem);
  if (written.ui) routes.push(uiRoute(written.ui, document, gateways, problem));
  addSections(written, document, gateways, routes, problem);
  checkPorts(gateways, problems);
  checkRouteNames(routes, problems);
  return {
    config: { process: written.config ?? defaultProcess, services: servicesOf(document), gateways, routes },
    problems,
  };
}

const DEFAULT_GATEWAY = "default";

interface ServedRoute {
  readonly gateways?: string | readonly string[] | undefined;
}

/** Returns the gateways that a route names, otherwise `default`, otherwise the only gateway. */
function servedBy(route: ServedRoute, gateways: readonly NormalGateway[]): readonly string[] {
  if (route.gateways !== undefined) return typeof route.gateways === "string" ? [route.gateways] : route.gateways;
  const only =
    gateways.find(({ name }) => name === DEFAULT_GATEWAY) ?? (gateways.length === 1 ? gateways[0] : undefined);
  return only ? [only.name] : [];
}

/** Explains why a gateway cannot serve a route for HTTP requests, or for connections if `isTcp` is true. */
function gatewayFault(name: string, gateways: readonly NormalGateway[], isTcp = false): string | undefined {
  const found = gateways.find((gateway) => gateway.name === name);
  if (found === undefined) {
    const names = gateways.map((gateway) => gateway.name);
    return `there is no gateway named ${JSON.stringify(name)}${suggestion(name, names)}`;
  }
  if ((found.tcp !== undefined) === isTcp) return undefined;
  return isTcp
    ? `the gateway ${JSON.stringify(name)} serves HTTP: set its \`protocol\` to TCP or TLS, or write an entry of \`routes\``
    : `the gateway ${JSON.stringify(name)} has \`protocol: ${found.protocol}\`: write an entry of \`tcpRoutes\``;
}

/** Explains why no gateway serves a route. `gateways` contains those that could. */
function noGateway(route: ServedRoute, gateways: readonly NormalGateway[]): string {
  if (route.gateways !== undefined) return "the list of gateways is empty";
  return gateways.length === 0
    ? "there is no gateway to serve it: add one under `gateways`"
    : `set \`gateways\`: there are several (${gateways.map(({ name }) => name).join(", ")}) and none is named default`;
}

/** Adds `tcpRoutes` to the gateways that forward connections. A route that could never be selected is an error. */
function addTcpRoutes(written: readonly WrittenTcpRoute[], gateways: readonly NormalGateway[], problem: Report): void {
  const forwarding = gateways.filter(({ tcp }) => tcp !== undefined);
  const names = new Set<string>();
  for (const [index, route] of written.entries()) {
    const path = ["tcpRoutes", index];
    const name = route.name ?? `tcpRoute${index}`;
    if (names.has(name)) problem([...path, "name"], `another entry is already named ${JSON.stringify(name)}`);
    names.add(name);
    const served = servedBy(route, forwarding);
    if (served.length === 0)
      problem([...path, ...(route.gateways === undefined ? [] : ["gateways"])], noGateway(route, forwarding));
    for (const gateway of served) {
      const fault = gatewayFault(gateway, gateways, true);
      const found = forwarding.find((one) => one.name === gateway);
      if (fault !== undefined) problem([...path, "gateways"], fault);
      else if (found) addTo(found, normalTcpRoute(name, route), path, problem);
    }
  }
}

function addTo(gateway: NormalGateway, route: NormalTcpRoute, path: Path, problem: Report): void {
  const [part] = gateway.tcp ?? [];
  if (part === undefined) return;
  const { name, protocol } = gateway;
  if (route.hostnames.length > 0 && protocol === "TCP")
    problem([...path, "hostnames"], `the gateway ${JSON.stringify(name)} has \`protocol: TCP\`, without server names`);
  if (route.backends.some(({ dynamic }) => dynamic !== undefined) && (protocol === "TCP" || part.tls !== undefined))
    problem(
      [...path, "backends"],
      `\`dynamic\` needs a gateway with \`protocol: TLS\` and without \`tls\`, unlike ${JSON.stringify(name)}`,
    );
  const other = part.routes.find((one) =>
    route.hostnames.length === 0
      ? one.hostnames.length === 0
      : route.hostnames.some((hostname) => one.hostnames.includes(hostname)),
  );
  if (other !== undefined)
    problem(
      [...path, ...(route.hostnames.length === 0 ? [] : ["hostnames"])],
      `the route ${JSON.stringify(other.name)} already serves ${route.hostnames.length === 0 ? "all other connections" : "one of these names"} of the gateway ${JSON.stringify(name)}`,
    );
  part.routes.push(route);
}

function normalTcpRoute(name: string, { hostnames = [], backends }: WrittenTcpRoute): NormalTcpRoute {
  return {
    name,
    hostnames: hostnames.map(canonicalPattern),
    backends: backends.map(({ host, dynamic, weight = 1, proxyProtocol }) => ({
      name: host ?? "dynamic",
      address: host,
      dynamic,
      weight,
      isClosed: false,
      sendsProxyHeader: proxyProtocol === "v2",
    })),
  };
}

/** Without a security policy in `ui.policies`, only loopback peers can use the web UI. */
function uiRoute(
  ui: NonNullable<WrittenConfig["ui"]>,
  document: SourceDocument,
  gateways: readonly NormalGateway[],
  problem: Report,
): NormalRoute {
  const served = servedBy(
    ui,
    gateways.filter(({ tcp }) => tcp === undefined),
  );
  for (const name of served) {
    const fault = gatewayFault(name, gateways);
    if (fault !== undefined) problem(["ui", "gateways"], fault);
  }
  if (served.length === 0) problem(["ui"], noGateway(ui, gateways));
  const place = { document, path: ["ui"] };
  const placed = placePolicies(ui.policies, "route ui", place);
  const loopbackOnly = !placed.some(({ kind }) => policies.find((policy) => policy.kind === kind)?.role === "security");
  if (ui.operator !== undefined && loopbackOnly)
    problem(["ui", "operator"], "add an authentication policy to `ui.policies`: without one nobody is known");
  return {
    name: "ui",
    gateways: served,
    hostnames: [],
    matches: [{ path: { pathPrefix: "/ui" } }],
    policies: placed,
    backends: [
      {
        key: "ui",
        name: "ui",
        weight: 1,
        config: { loopbackOnly, ...defined({ operator: ui.operator }) },
        policies: [],
        place,
      },
    ],
    place,
  };
}

/** A section such as `mcp` or `llm` becomes a route to one backend, on a named gateway or on its own. */
function addSections(
  written: WrittenConfig,
  document: SourceDocument,
  gateways: NormalGateway[],
  routes: NormalRoute[],
  problem: Report,
): void {
  const shared = [...gateways];
  for (const { key, section } of backends) {
    if (!section) continue;
    const fields = (written as Record<string, unknown>)[section.name] as Record<string, unknown> | undefined;
    if (!fields) continue;
    const { gateway, port, address, policies: own, ...config } = fields;
    const place = { document, path: [section.name] };
    if (gateway === undefined) {
      gateways.push({
        name: section.name,
        port: Number(port ?? section.defaultPort),
        address: address as string | undefined,
        protocol: "HTTP",
        tls: undefined,
        policies: [],
        place,
      });
    } else {
      const fault = gatewayFault(String(gateway), shared);
      if (fault !== undefined) problem([section.name, "gateway"], fault);
    }
    routes.push({
      name: section.name,
      gateways: [gateway === undefined ? section.name : String(gateway)],
      hostnames: [],
      matches: (section.paths ?? [{ pathPrefix: "/" }]).map(pathMatch),
      policies: placePolicies(own as Record<string, unknown> | undefined, `route ${section.name}`, place),
      backends: [
        {
          key,
          name: `${section.name}/backend0`,
          weight: 1,
          config,
          policies: [],
          inner: innerScopes(key, `${section.name}/backend0`, config, place),
          place,
        },
      ],
      place,
    });
  }
}

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

export function normalRoute(name: string, gateways: readonly string[], route: WrittenRoute, place: Place): NormalRoute {
  const list = (route.backends ?? []).map((backend, i) =>
    normalBackend(backendName(name, i), backend, { document: place.document, path: [...place.path, "backends", i] }),
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

/** The owner includes the backend's name, because two backends may have a model with the same name. */
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

/** Without `matches`, a route matches everything, unless all its backends have the same default paths. */
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
    ...defined({ method: match.method }),
    ...(match.headers === undefined ? {} : { headers: match.headers.map(valueMatch) }),
    ...(match.query === undefined ? {} : { query: match.query.map(valueMatch) }),
  };
}

function valueMatch(match: { name: string; exact?: string | undefined; regex?: string | undefined }) {
  return {
    name: match.name,
    ...defined({ exact: match.exact, regex: match.regex }),
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
