/**
 * Attaches resource documents, such as GatewayPolicy and HTTPRoute, to the standalone configuration.
 */

import type { z } from "zod";
import type { ConfigError } from "../../core/config-error.ts";
import { defined } from "../../json/json.ts";
import { policies } from "../../policies/index.ts";
import type { Redaction } from "../../record/trace/redact.ts";
import type { Cluster } from "../documents/cluster.ts";
import { DEFAULT_NAMESPACE, type PolicyResource, type ResourceInput, type TargetName } from "../documents/documents.ts";
import { conditionMessage } from "../documents/status.ts";
import { translateResources } from "../documents/translate.ts";
import {
  backendName,
  type NormalBackend,
  type NormalConfig,
  type NormalGateway,
  type NormalRoute,
  type NormalSection,
} from "../load/normal-config.ts";
import { normalRoute } from "../load/normalize.ts";
import { routeSchema } from "../schema/schema.ts";
import { pathText } from "../text/value-path.ts";
import type { SourceDocument } from "../text/yaml-source.ts";
import type { ResourceFailure } from "./compile.ts";

export interface AttachedResources {
  readonly resources: readonly PolicyResource[];
  readonly problems: readonly ConfigError[];
}

export function attachResources(
  config: NormalConfig,
  documents: readonly SourceDocument[],
  nowMs: number,
  previous: readonly PolicyResource[] | undefined,
  redaction: Redaction,
  cluster?: Cluster,
): AttachedResources {
  const result = translateResources({
    documents,
    standalone: standaloneOf(config),
    ...(cluster ? { cluster } : {}),
    policies,
    routeSchema,
    redaction,
    nowMs,
    ...(previous ? { previous } : {}),
  });

  for (const { name, port, protocol, tls, tcp, sections, document, path } of result.gateways) {
    config.gateways.push({
      name,
      port,
      address: undefined,
      protocol,
      tls,
      policies: [],
      ...(sections === undefined ? {} : { sections: sections.map((section) => ({ ...section, policies: [] })) }),
      ...(tcp === undefined ? {} : { tcp: tcp.map((part) => ({ ...part, routes: [] })) }),
      place: { document, path },
    });
  }
  const parts = config.gateways.flatMap(({ tcp = [] }) => tcp);
  const closedNames = new Set(result.closures.map(({ target }) => `${target.kind} ${target.name}`));
  for (const { name, part, hostnames, backends } of result.tcpRoutes)
    parts
      .find((one) => one.name === part)
      ?.routes.push({
        name,
        hostnames,
        backends: backends.map(({ isService, isClosed, use: _, ...backend }, i) => ({
          ...backend,
          isClosed: isClosed || closedNames.has(`backend ${backendName(name, i)}`),
          address: isService ? undefined : backend.name,
        })),
      });
  for (const { route, closed, closedBackends, except, section, document, path } of result.routes) {
    // Translated routes are valid, and parsing them again fills in defaults.
    const parsed: z.output<typeof routeSchema> = routeSchema.parse(route);
    const normal = normalRoute(route.name, route.gateways, parsed, { document, path });
    for (const [i, reason] of closedBackends ?? []) {
      const backend = normal.backends[i];
      if (backend) backend.closed = reason;
    }
    config.routes.push({
      ...normal,
      ...defined({ except, section, closed }),
    });
  }
  for (const { target, kind, config: value, written, owner, document, path } of result.attachments) {
    targetOf(config, target)?.policies.push({
      kind,
      config: value,
      written,
      owner,
      isResource: true,
      place: { document, path },
    });
  }
  for (const { target, reason } of result.closures) {
    const found = targetOf(config, target) ?? parts.find(({ name }) => name === target.name);
    if (found) found.closed = reason;
  }
  return { resources: result.policies, problems: result.problems };
}

function standaloneOf(config: NormalConfig): ResourceInput["standalone"] {
  return {
    gateways: config.gateways.map(({ name, port, tcp, policies: placed }) => ({
      name,
      port,
      isTcp: tcp !== undefined,
      policyKinds: placed.map(({ kind }) => kind),
    })),
    routes: config.routes.map(({ name, gateways, policies: placed }) => ({
      name,
      gateways,
      policyKinds: placed.map(({ kind }) => kind),
    })),
    services: config.services,
  };
}

/** Sets the conditions of policies that failed to compile to false, with the reason as their message. */
export function withFailures(
  resources: readonly PolicyResource[],
  failures: readonly ResourceFailure[],
): PolicyResource[] {
  return resources.map((resource) => {
    const own = failures.filter(({ policy }) => isFrom(policy.place.document, resource));
    if (own.length === 0) return resource;
    const message = own.map(({ policy, message: reason }) => `${pathText(policy.place.path)}: ${reason}`).join("\n");
    const ancestors = resource.status.ancestors.map((ancestor) => ({
      ...ancestor,
      conditions: ancestor.conditions.map((condition) => ({
        ...condition,
        status: "False" as const,
        reason: "Invalid",
        message: conditionMessage(message),
      })),
    }));
    return { ...resource, status: { ancestors } };
  });
}

function isFrom(document: SourceDocument, { metadata }: PolicyResource): boolean {
  const found = (document.value as { metadata?: { name?: unknown; namespace?: unknown } }).metadata;
  return found?.name === metadata.name && (found.namespace ?? DEFAULT_NAMESPACE) === metadata.namespace;
}

function targetOf(
  config: NormalConfig,
  { kind, name }: TargetName,
): NormalGateway | NormalSection | NormalRoute | NormalBackend | undefined {
  if (kind === "backend") return config.routes.flatMap(({ backends }) => backends).find((one) => one.name === name);
  return kind === "gateway"
    ? config.gateways.flatMap((one) => [one, ...(one.sections ?? [])]).find((one) => one.name === name)
    : config.routes.find((one) => one.name === name);
}
