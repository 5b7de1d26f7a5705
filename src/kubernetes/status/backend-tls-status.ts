/**
 * The status of BackendTLSPolicies: one entry for each Gateway of ours that has a route to one of its Services.
 */
import type { Cluster } from "../../config/cluster/cluster.ts";
import { targetedServices } from "../../config/cluster/cluster.ts";
import { type KubernetesObject, keyOf, specOf } from "../../config/cluster/kubernetes-object.ts";
import { gatewayKey } from "../../config/cluster/snapshot.ts";
import { isTlsPolicyConflicted, readTlsPolicy } from "../../config/resources/backend-tls-document.ts";
import { CONTROLLER_NAME, GATEWAY_API_GROUP, type Verdict } from "../../config/resources/documents.ts";
import { type Fields, fieldsOf, listOf, textOf } from "../../config/text/value-shapes.ts";
import { conditionOf, isSame } from "./conditions.ts";

/** The Gateway API allows no more. */
const MOST_ANCESTORS = 16;
const CONFLICTED: Verdict = {
  isTrue: false,
  reason: "Conflicted",
  message: "An older BackendTLSPolicy is for the same port of the Service",
};

export interface TlsStatusInput {
  readonly cluster: Cluster;
  readonly gateways: readonly KubernetesObject[];
  readonly routes: readonly KubernetesObject[];
}

export function tlsPolicyStatuses(
  { cluster, gateways, routes }: TlsStatusInput,
  nowMs: number,
): { readonly object: KubernetesObject; readonly status: Fields }[] {
  const policies = cluster.objects("BackendTLSPolicy");
  if (policies.length === 0) return [];
  const users = usersOfServices(gateways, routes);
  return policies.flatMap((object) => {
    const namespace = object.metadata.namespace ?? "";
    const reached = targetedServices(object).flatMap(({ name }) => [...(users.get(keyOf(namespace, name)) ?? [])]);
    const before = listOf(fieldsOf(object.status).ancestors).map(fieldsOf);
    const others = before.filter(({ controllerName }) => controllerName !== CONTROLLER_NAME);
    const own = [...new Map(reached.map((gateway) => [gatewayKey(gateway), gateway])).values()];
    if (own.length === 0 && others.length === before.length) return [];
    const read = readTlsPolicy(object, cluster);
    const accepted = isTlsPolicyConflicted(object, cluster) ? CONFLICTED : read.accepted;
    const ancestors = own.map((gateway) => {
      const ancestorRef = {
        group: GATEWAY_API_GROUP,
        kind: "Gateway",
        namespace: gateway.metadata.namespace ?? "",
        name: gateway.metadata.name,
      };
      const known = before.find(
        (one) => one.controllerName === CONTROLLER_NAME && isSame(one.ancestorRef, ancestorRef),
      )?.conditions;
      const context = { generation: object.metadata.generation ?? 0, nowMs, before: known };
      return {
        ancestorRef,
        controllerName: CONTROLLER_NAME,
        conditions: [
          conditionOf("Accepted", accepted, context),
          conditionOf("ResolvedRefs", read.resolvedRefs, context),
        ],
      };
    });
    return [{ object, status: { ancestors: [...others, ...ancestors].slice(0, MOST_ANCESTORS) } }];
  });
}

/** `namespace/name` of a Service → the Gateways whose routes name it. */
function usersOfServices(
  gateways: readonly KubernetesObject[],
  routes: readonly KubernetesObject[],
): Map<string, Set<KubernetesObject>> {
  const byKey = new Map(gateways.map((gateway) => [gatewayKey(gateway), gateway]));
  const users = new Map<string, Set<KubernetesObject>>();
  for (const route of routes) {
    const own = route.metadata.namespace ?? "";
    const parents = listOf(specOf(route).parentRefs).flatMap((parent) => {
      const { name, namespace } = fieldsOf(parent);
      return byKey.get(keyOf(textOf(namespace) ?? own, String(name))) ?? [];
    });
    for (const rule of parents.length === 0 ? [] : listOf(specOf(route).rules))
      for (const reference of listOf(fieldsOf(rule).backendRefs).map(fieldsOf)) {
        const key = keyOf(textOf(reference.namespace) ?? own, String(reference.name));
        const known = users.get(key) ?? new Set();
        for (const gateway of parents) known.add(gateway);
        users.set(key, known);
      }
  }
  return users;
}
