/**
 * Checks hosts that documents of a cluster name. A Service in another namespace needs a ReferenceGrant, as in
 * `backendRefs`. IP addresses outside the allowed networks and other names of the cluster's DNS are refused, because
 * they would bypass the grants.
 */
import { isIP } from "node:net";
import { isHostAndPort } from "../../http/backend-address.ts";
import { hostOf } from "../../http/host.ts";
import { isAllowedNetwork, serviceOfName } from "../../http/local-address.ts";
import type { Cluster, Referrer } from "./cluster.ts";

interface AddressContext {
  readonly cluster: Cluster;
  readonly referrer: Referrer;
}

/** `text` is a URL or `host:port`. Returns the reason if the document may not name this address. */
export function addressFault(text: string, { cluster, referrer }: AddressContext): string | undefined {
  const url = urlOf(text);
  if (url === undefined) return undefined;
  const host: string = hostOf(url.host);
  if (host === "") return `${url.host} is not a host name`;
  if (isIP(host) !== 0)
    return isAllowedNetwork(host)
      ? undefined
      : `the address ${host} is not in the networks that the operator allows (--backend-networks): use a host name`;
  const service = serviceOfName(host);
  if (service) {
    const { name, namespace } = service;
    const shown = `Service ${namespace}/${name}`;
    if (!cluster.mayRefer(referrer, { group: "", kind: "Service", namespace, name }))
      return `${shown} is in another namespace, whose ReferenceGrants do not allow this`;
    const found = cluster.service(namespace, name, undefined);
    if (found === undefined) return `${shown} was not found`;
    return found.type === "ExternalName" ? `${shown} is of type ExternalName, which is not supported` : undefined;
  }
  const labels = host.split(".");
  const form = "write <service>.<namespace>.svc for a Service";
  // The search list of a pod completes these names with the namespace of the Gateway or the domain of the cluster.
  if (labels.length === 1) return `${host} is not a full host name: ${form}`;
  if (["svc", "pod", "cluster"].includes(labels.at(-1) ?? "") || host.endsWith(".cluster.local"))
    return `${host} is a name of the cluster: ${form}`;
  const [namespace = "", name = ""] = labels.reverse();
  if (cluster.service(namespace, name, undefined) !== undefined)
    return `${host} may be a Service of the cluster: ${form}`;
  return undefined;
}

function urlOf(text: string): URL | undefined {
  const url = isHostAndPort(text) ? `http://${text}` : text;
  return /^https?:/i.test(url) && URL.canParse(url) ? new URL(url) : undefined;
}
