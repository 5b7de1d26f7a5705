/**
 * What stands behind the backendRefs of a route: in files the `services` map of the standalone document, in a cluster
 * its Services and our own Backends. A reference that leads nowhere keeps its share of the requests, which get 500: to
 * give its share to the others would hide the mistake.
 */
import { nearestName } from "../../cel/values/nearest-name.ts";
import type { Cluster } from "../cluster/cluster.ts";
import { type Fields, textOf } from "../text/value-shapes.ts";
import { GATEWAY_API_GROUP, type ResourceInput } from "./documents.ts";

export type FoundBackend =
  | { readonly backend: Readonly<Record<string, unknown>> }
  | {
      readonly reason: "InvalidKind" | "BackendNotFound" | "RefNotPermitted" | "UnsupportedProtocol";
      readonly message: string;
    };

export type FindBackend = (reference: Fields, namespace: string) => FoundBackend;

type Services = ResourceInput["standalone"]["services"];

export function backendsOfFiles(services: Services): FindBackend {
  return (reference, namespace) => {
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
    if (typeof found !== "string") return { backend: { ...found } };
    return { backend: { host: found.includes(":") || port === "" ? found : `${found}${port}` } };
  };
}

/** The name alone, of `namespace/name:port`. */
function serviceName(key: string): string {
  return key.slice(key.indexOf("/") + 1).replace(/:\d+$/, "");
}

export function backendsOfCluster(cluster: Cluster): FindBackend {
  return (reference, namespace) => {
    const group = textOf(reference.group) ?? "";
    const kind = textOf(reference.kind) ?? "Service";
    const name = textOf(reference.name) ?? "";
    const inNamespace = textOf(reference.namespace) ?? namespace;
    if (kind !== "Service" || group !== "")
      return {
        reason: "InvalidKind",
        message: `${group === "" ? "" : `${group}/`}${kind} is not supported: use Service`,
      };
    const shown = `Service ${inNamespace}/${name}`;
    const from = { group: GATEWAY_API_GROUP, kind: "HTTPRoute", namespace };
    if (!cluster.mayRefer(from, { group, kind, namespace: inNamespace, name }))
      return {
        reason: "RefNotPermitted",
        message: `${shown} is in another namespace, whose ReferenceGrants do not allow this`,
      };
    const service = cluster.service(inNamespace, name, reference.port);
    if (service === undefined) return { reason: "BackendNotFound", message: `${shown} was not found` };
    // A name that a tenant chose could be one that only the gateway can reach.
    if (service.type === "ExternalName")
      return { reason: "UnsupportedProtocol", message: `${shown} is of type ExternalName, which is not supported` };
    if (service.port === undefined)
      return { reason: "BackendNotFound", message: `${shown} has no TCP port ${String(reference.port)}` };
    return { backend: { service: { name: `${inNamespace}/${name}:${service.port.port}` } } };
  };
}
