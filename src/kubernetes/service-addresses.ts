/**
 * Reads the addresses of the Service that the controller deploys for a Gateway, and compares them with the requested
 * ones.
 */
import { type KubernetesObject, specOf } from "../config/documents/cluster.ts";
import type { Verdict } from "../config/documents/documents.ts";
import { notUsable, requestedAddresses } from "../config/documents/gateway-addresses.ts";
import { fieldsOf, listOf, textOf } from "../config/text/value-shapes.ts";
import { canonicalAddress } from "../http/host.ts";
import { deployedName } from "./data-plane-deployment.ts";
import type { GatewayState } from "./status.ts";

/**
 * Returns the addresses of the Service: those of its load balancer, its cluster IP, or the pods of a headless Service.
 */
export function addressesOf(
  gateway: KubernetesObject,
  services: readonly KubernetesObject[],
  slices: readonly KubernetesObject[],
): GatewayState["addresses"] {
  const { namespace } = gateway.metadata;
  const name = deployedName(gateway);
  const service = services.find(({ metadata }) => metadata.namespace === namespace && metadata.name === name);
  if (!service) return [];
  const address = (value: string) => ({
    type: /^[\d.]+$|:/.test(value) ? ("IPAddress" as const) : ("Hostname" as const),
    value,
  });
  const { type, clusterIP } = specOf(service);
  if (type === "LoadBalancer") {
    const ingress = listOf(fieldsOf(fieldsOf(service.status).loadBalancer).ingress).map(fieldsOf);
    return ingress.flatMap(({ ip, hostname }) => textOf(ip) ?? textOf(hostname) ?? []).map(address);
  }
  if (clusterIP !== "None") return textOf(clusterIP) === undefined ? [] : [address(String(clusterIP))];
  const own = slices.filter(
    ({ metadata }) => metadata.namespace === namespace && metadata.labels?.["kubernetes.io/service-name"] === name,
  );
  const ready = own
    .flatMap((slice) => listOf(slice.endpoints).map(fieldsOf))
    .filter(({ conditions }) => fieldsOf(conditions).ready !== false)
    .flatMap(({ addresses }) => listOf(addresses).map(String));
  return [...new Set(ready)].sort().slice(0, 16).map(address);
}

/** Returns the condition for a Gateway whose Service does not have the address that the Gateway requests. */
export function missingAddress(
  gateway: KubernetesObject | undefined,
  addresses: GatewayState["addresses"],
): Verdict | undefined {
  const assigned: string[] = addresses.map(({ value }) => canonicalAddress(value));
  const missing = requestedAddresses(specOf(gateway)).filter((address) => !assigned.includes(address));
  if (missing.length === 0) return undefined;
  const wanted = `spec.addresses: the Service of the Gateway does not have the address ${missing.join(", ")}`;
  if (assigned.length > 0) return notUsable(`${wanted}, but ${assigned.join(", ")}`);
  return { isTrue: false, reason: "AddressNotAssigned", message: `${wanted} yet` };
}
