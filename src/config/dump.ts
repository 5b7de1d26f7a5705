/**
 * Describes the loaded configuration for `/config_dump` (spec 4.2), with redacted secrets.
 */

import { z } from "zod";
import type { TcpPart, Topology } from "../core/topology.ts";
import { defined } from "../json/json.ts";
import type { Redaction } from "../record/trace/redact.ts";
import type { PolicyResource } from "./documents/documents.ts";
import { configSchema, type WrittenProcess } from "./schema/schema.ts";
import { shownConfig } from "./schema/shown-config.ts";

export interface ReloadState {
  /** The time is in RFC 3339 format. */
  readonly loadedAt: string;
  readonly generation: number;
  readonly refused?: { readonly at: string; readonly problems: readonly string[] };
  readonly warnings: readonly string[];
  readonly sources: readonly string[];
  /** Contains `config` if that section changed, which needs a restart. */
  readonly needsRestart: readonly string[];
}

export interface DumpInput {
  readonly topology: Topology;
  readonly process: WrittenProcess;
  readonly resources: readonly PolicyResource[];
  readonly services: Readonly<Record<string, unknown>>;
  readonly redaction: Redaction;
  readonly version: string;
  readonly reload: ReloadState;
  readonly ports: ReadonlyMap<string, number>;
}

export function configDump(input: DumpInput): Record<string, unknown> {
  const parts = Object.entries(configDumpInParts(input));
  return Object.fromEntries(parts.map(([name, part]) => [name, isIterable(part) ? [...part] : part]));
}

/** Returns lazy lists, so that a large configuration can be written in slices. */
export function configDumpInParts({
  topology,
  process,
  resources,
  services,
  redaction,
  version,
  reload,
  ports,
}: DumpInput): Record<string, unknown> {
  const { listeners } = topology;
  const routes = uniqueRoutes(topology);
  return {
    binds: listeners.map((listener) => ({
      key: `bind/${ports.get(listener.name) ?? listener.port}`,
      address: `${listener.address ?? "[::]"}:${ports.get(listener.name) ?? listener.port}`,
      protocol: listener.protocol.toLowerCase(),
      listeners: [listener.name],
    })),
    listeners: listeners.map((listener) => ({
      name: listener.name,
      port: ports.get(listener.name) ?? listener.port,
      protocol: listener.protocol,
      policies: listener.policies.effectivePolicy,
      ...defined({ proxyProtocol: listener.proxyProtocol }),
      ...(listener.sections === undefined
        ? {}
        : {
            sections: listener.sections.map(({ name, hostname = "*", policies }) => ({
              name,
              hostname,
              policies: policies.effectivePolicy,
            })),
          }),
      ...(listener.tcp === undefined ? {} : { tcp: listener.tcp.parts.map(shownTcpPart) }),
      routes: listener.routes.map(({ name }) => name),
    })),
    routes: listed(routes, ({ route, gateways }) => [
      {
        name: route.name,
        gateways,
        hostnames: route.hostnames,
        matches: shownConfig(z.unknown(), route.matches, redaction),
        policies: route.policies.effectivePolicy,
        backends: route.backends.map(({ backend, weight }) => ({ name: backend.attributes.name, weight })),
      },
    ]),
    backends: listed(routes, ({ route }) =>
      route.backends.map(({ backend, policies }) => ({
        ...backend.attributes,
        ...backend.describe(),
        policies: policies.effectivePolicy,
      })),
    ),
    workloads: [],
    services: Object.entries(
      shownConfig(configSchema.shape.services, services, redaction) as Record<string, unknown>,
    ).map(([name, target]) => ({ name, target })),
    policies: listed([standalonePolicies(topology, routes), resources], (some) => some),
    config: shownConfig(configSchema.shape.config, process, redaction),
    version,
    reload,
  };
}

function listed<Item>(items: readonly Item[], show: (item: Item) => Iterable<unknown>): Iterable<unknown> {
  return {
    *[Symbol.iterator]() {
      for (const item of items) yield* show(item);
    },
  };
}

function isIterable(part: unknown): part is Iterable<unknown> {
  return typeof part === "object" && part !== null && Symbol.iterator in part;
}

type ShownRoute = ReturnType<typeof uniqueRoutes>[number];

/** A route on several gateways is compiled for each of them, but listed once. */
function uniqueRoutes(topology: Topology) {
  const routes = new Map<string, { route: Topology["listeners"][number]["routes"][number]; gateways: string[] }>();
  for (const listener of topology.listeners) {
    for (const route of listener.routes) {
      const known = routes.get(route.name);
      if (known) known.gateways.push(listener.name);
      else routes.set(route.name, { route, gateways: [listener.name] });
    }
  }
  return [...routes.values()];
}

function* standalonePolicies(topology: Topology, routes: readonly ShownRoute[]): Iterable<Record<string, unknown>> {
  const entries = (target: Record<string, string>, effective: Readonly<Record<string, unknown>>) =>
    Object.entries(effective).map(([kind, policy]) => ({ kind, target, policy }));
  for (const listener of topology.listeners)
    for (const { name, policies } of [listener, ...(listener.sections ?? [])])
      yield* entries({ gateway: name }, policies.effectivePolicy);
  for (const { route } of routes) {
    yield* entries({ route: route.name }, route.policies.effectivePolicy);
    for (const { backend, policies } of route.backends)
      yield* entries({ backend: backend.attributes.name }, policies.effectivePolicy);
  }
}

function shownTcpPart({ name, hostname = "*", tls, closed, routes }: TcpPart): Record<string, unknown> {
  return {
    name,
    hostname,
    terminatesTls: tls !== undefined,
    ...defined({ closed }),
    routes: routes.map((route) => ({
      name: route.name,
      hostnames: route.hostnames,
      backends: route.backends.map((backend) => ({
        name: backend.name,
        weight: backend.weight,
        ...(backend.sendsProxyHeader ? { proxyProtocol: "v2" } : {}),
        endpoints: backend.isClosed ? [] : backend.addresses(undefined),
      })),
    })),
  };
}
