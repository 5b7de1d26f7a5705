/**
 * One internal form for all ways of writing: gateways with routes, the single-purpose sections (`mcp`, `llm`), and
 * resource documents. Names are given, defaults are filled in, and every part remembers where it was written.
 */
import { backends } from "../../backends/index.ts";
import { suggestion } from "../../cel/values/nearest-name.ts";
import { ConfigError } from "../../core/config-error.ts";
import { policies } from "../../policies/index.ts";
import type { WrittenConfig, WrittenProcess, WrittenRoute } from "../schema/schema.ts";
import { type Path, pathText } from "../text/value-path.ts";
import type { SourceDocument } from "../text/yaml-source.ts";
import type { NormalConfig, NormalGateway, NormalRoute } from "./normal-config.ts";
import { innerScopes, normalRoute, pathMatch, placePolicies } from "./normal-route.ts";

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
      http2: gateway.http2,
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
  addSections(written, document, gateways, routes, problem);
  checkPorts(gateways, problems);
  checkRouteNames(routes, problems);
  return {
    config: { process: written.config ?? defaultProcess, services: servicesOf(document), gateways, routes },
    problems,
  };
}

/** The gateways that a route names; else `default`, else the only one. */
function servedBy(route: Pick<WrittenRoute, "gateways">, gateways: readonly NormalGateway[]): readonly string[] {
  if (route.gateways !== undefined) return typeof route.gateways === "string" ? [route.gateways] : route.gateways;
  const only =
    gateways.find(({ name }) => name === DEFAULT_GATEWAY) ?? (gateways.length === 1 ? gateways[0] : undefined);
  return only ? [only.name] : [];
}

/** A port that `mcp` or `llm` opens serves nobody else: these are not among the names. */
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
        config: { loopbackOnly, ...(ui.operator === undefined ? {} : { operator: ui.operator }) },
        policies: [],
        place,
      },
    ],
    place,
  };
}

/** `mcp`, `llm`, …: a section is a route to one backend, on a gateway that it names or on one of its own. */
function addSections(
  written: WrittenConfig,
  document: SourceDocument,
  gateways: NormalGateway[],
  routes: NormalRoute[],
  problem: (path: Path, message: string) => void,
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
    } else if (!shared.some(({ name }) => name === gateway))
      problem([section.name, "gateway"], unknownGateway(String(gateway), shared));
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
