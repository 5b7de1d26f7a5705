/**
 * A port of a Service → the addresses of its ready pods, from the EndpointSlices that belong to it.
 */
import { fieldsOf, listOf, textOf } from "../text/value-shapes.ts";
import { type KubernetesObject, specOf } from "./kubernetes-object.ts";

/** The label by which a slice names its Service. */
export const SERVICE_LABEL = "kubernetes.io/service-name";

export interface ServicePort {
  /** Empty where the Service has only one. */
  readonly name: string;
  readonly port: number;
  readonly appProtocol: string | undefined;
}

export function portOf(service: KubernetesObject, port: unknown): ServicePort | undefined {
  for (const one of listOf(specOf(service).ports)) {
    const fields = fieldsOf(one);
    const protocol = textOf(fields.protocol) ?? "TCP";
    if (typeof port === "number" && fields.port === port && protocol === "TCP")
      return { name: textOf(fields.name) ?? "", port, appProtocol: textOf(fields.appProtocol) };
  }
  return undefined;
}

/** `address:port`, sorted, each once. */
export function endpointsOf(slices: readonly KubernetesObject[], port: ServicePort): readonly string[] {
  const ready = new Set<string>();
  // While a deployment goes away, what still serves is better than nothing.
  const ending = new Set<string>();
  for (const slice of slices) {
    if (slice.addressType !== "IPv4" && slice.addressType !== "IPv6") continue;
    const target = listOf(slice.ports)
      .map(fieldsOf)
      .find((one) => (textOf(one.name) ?? "") === port.name)?.port;
    if (typeof target !== "number") continue;
    for (const endpoint of listOf(slice.endpoints).map(fieldsOf)) {
      const conditions = fieldsOf(endpoint.conditions);
      const into = conditions.ready !== false ? ready : conditions.serving === true ? ending : undefined;
      for (const address of listOf(endpoint.addresses))
        if (typeof address === "string") into?.add(`${address.includes(":") ? `[${address}]` : address}:${target}`);
    }
  }
  return [...(ready.size > 0 ? ready : ending)].sort();
}
