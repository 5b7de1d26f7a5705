/**
 * What stands behind the backendRefs of a route: in files the `services` map of the standalone document, in a cluster
 * its Services and our own Backends. A reference that leads nowhere keeps its share of the requests, which get 500: to
 * give its share to the others would hide the mistake.
 */
import { nearestName } from "../../cel/values/nearest-name.ts";
import type { Cluster } from "../cluster/cluster.ts";
import { pathText } from "../text/value-path.ts";
import { type Fields, textOf } from "../text/value-shapes.ts";
import { readBackend } from "./backend-document.ts";
import { tlsOfService } from "./backend-tls-document.ts";
import { GATEWAY_API_GROUP, POLICY_API_GROUP, type ResourceDocument, type ResourceInput } from "./documents.ts";
import { identityOf } from "./problem-list.ts";

export type FoundBackend =
  | {
      readonly backend: Readonly<Record<string, unknown>>;
      /** Why it must not be asked, although the reference is right. */
      readonly closed?: string;
    }
  | {
      readonly reason: "InvalidKind" | "BackendNotFound" | "RefNotPermitted" | "UnsupportedProtocol" | "InvalidBackend";
      readonly message: string;
    };

export type FindBackend = (reference: Fields, namespace: string) => FoundBackend;

/** `appProtocol` of a Service port that speaks HTTP/2 without TLS. */
const H2C = "kubernetes.io/h2c";

type Services = ResourceInput["standalone"]["services"];

export function backendsOfFiles(
  services: Services,
  documents: readonly ResourceDocument[],
  route: ResourceDocument,
): FindBackend {
  return (reference, namespace) => {
    if (isOwnBackend(reference)) {
      const place = placeOf(reference, namespace);
      const found = documents.find((document) => {
        const identity = identityOf(document);
        return identity.kind === "Backend" && `${identity.namespace}/${identity.name}` === place.key;
      });
      return resolved(found?.value, place, namespace, route, undefined);
    }
    const kind = textOf(reference.kind) ?? "Service";
    const name = textOf(reference.name) ?? "";
    const inNamespace = textOf(reference.namespace) ?? namespace;
    if (kind !== "Service") return { reason: "InvalidKind", message: `${kind} is not supported: use Service` };
    const port = reference.port === undefined ? "" : `:${String(reference.port)}`;
    const candidates = [`${inNamespace}/${name}${port}`, `${inNamespace}/${name}`, `${name}${port}`, name];
    const found = candidates.map((key) => services[key]).find((service) => service !== undefined);
    if (found === undefined) {
      const near = nearestName(name, Object.keys(services).map(serviceName));
      return {
        reason: "BackendNotFound",
        message: `Service ${inNamespace}/${name} was not found${near === undefined || near === name ? "" : ` (did you mean "${near}"?)`}: add it to \`services\` of the standalone document, for example \`${name}${port}: 127.0.0.1:8080\``,
      };
    }
    const http2 = identityOf(route).kind === "GRPCRoute" ? { protocol: "h2c" } : {};
    if (typeof found !== "string") return { backend: { ...http2, ...found } };
    return { backend: { host: found.includes(":") || port === "" ? found : `${found}${port}`, ...http2 } };
  };
}

/** The name alone, of `namespace/name:port`. */
function serviceName(key: string): string {
  return key.slice(key.indexOf("/") + 1).replace(/:\d+$/, "");
}

/** `route` is the document whose backendRefs are looked up. */
export function backendsOfCluster(cluster: Cluster, route: ResourceDocument): FindBackend {
  const { kind: routeKind } = identityOf(route);
  const isGrpc = routeKind === "GRPCRoute";
  return (reference, namespace) => {
    if (isOwnBackend(reference)) {
      const place = placeOf(reference, namespace);
      const to = { group: POLICY_API_GROUP, kind: "Backend", namespace: place.namespace, name: place.name };
      if (!cluster.mayRefer({ group: GATEWAY_API_GROUP, kind: routeKind, namespace }, to))
        return notPermitted(`Backend ${place.key}`);
      return resolved(cluster.object("Backend", place.namespace, place.name), place, namespace, route, cluster);
    }
    const group = textOf(reference.group) ?? "";
    const kind = textOf(reference.kind) ?? "Service";
    const name = textOf(reference.name) ?? "";
    const inNamespace = textOf(reference.namespace) ?? namespace;
    if (kind !== "Service" || group !== "")
      return {
        reason: "InvalidKind",
        message: `${group === "" ? "" : `${group}/`}${kind} is not supported: use Service, or Backend of ${POLICY_API_GROUP}`,
      };
    const shown = `Service ${inNamespace}/${name}`;
    const from = { group: GATEWAY_API_GROUP, kind: routeKind, namespace };
    if (!cluster.mayRefer(from, { group, kind, namespace: inNamespace, name })) return notPermitted(shown);
    const service = cluster.service(inNamespace, name, reference.port);
    if (service === undefined) return { reason: "BackendNotFound", message: `${shown} was not found` };
    // A name that a tenant chose could be one that only the gateway can reach.
    if (service.type === "ExternalName")
      return { reason: "UnsupportedProtocol", message: `${shown} is of type ExternalName, which is not supported` };
    if (service.port === undefined)
      return { reason: "BackendNotFound", message: `${shown} has no TCP port ${String(reference.port)}` };
    const { port, appProtocol, name: portName } = service.port;
    const own = { service: { name: `${inNamespace}/${name}:${port}` } };
    const tls = tlsOfService(cluster, route, { namespace: inNamespace, name, port: portName });
    const isHttp2 = appProtocol === H2C || isGrpc;
    if (tls === undefined) return { backend: { ...own, ...(isHttp2 ? { protocol: "h2c" } : {}) } };
    const closed = "closed" in tls ? { closed: tls.closed } : {};
    const policies = "closed" in tls ? {} : { policies: tls };
    return { backend: { ...own, ...policies, ...(isGrpc ? { protocol: "h2" } : {}) }, ...closed };
  };
}

interface Place {
  readonly namespace: string;
  readonly name: string;
  /** `namespace/name`. */
  readonly key: string;
}

function isOwnBackend({ group, kind }: Fields): boolean {
  return group === POLICY_API_GROUP && kind === "Backend";
}

function placeOf(reference: Fields, namespace: string): Place {
  const name = textOf(reference.name) ?? "";
  const inNamespace = textOf(reference.namespace) ?? namespace;
  return { namespace: inNamespace, name, key: `${inNamespace}/${name}` };
}

function notPermitted(shown: string): FoundBackend {
  return {
    reason: "RefNotPermitted",
    message: `${shown} is in another namespace, whose ReferenceGrants do not allow this`,
  };
}

function resolved(
  found: unknown,
  { namespace, key }: Place,
  referrer: string,
  route: ResourceDocument,
  cluster: Cluster | undefined,
): FoundBackend {
  if (found === undefined) return { reason: "BackendNotFound", message: `Backend ${key} was not found` };
  const read = readBackend(found, namespace, route, cluster);
  if ("backend" in read) return read;
  // What is wrong with a document of another namespace is told to its own users.
  const why = namespace === referrer ? `: ${pathText(read.path)}: ${read.message}` : "";
  return { reason: "InvalidBackend", message: `Backend ${key} is not valid${why}` };
}
