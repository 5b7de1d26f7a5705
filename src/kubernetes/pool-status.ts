/**
 * Computes the status of each InferencePool for the Gateways whose routes refer to it, directly or through
 * routes that they delegate to. Entries of other controllers
 * stay untouched.
 */
import { INFERENCE_GROUP, type KubernetesObject, keyOf, objectKey, POOL_KIND } from "../config/documents/cluster.ts";
import { CONTROLLER_NAME, GATEWAY_API_GROUP, type Verdict } from "../config/documents/documents.ts";
import { POOL_ROUTE_KINDS, poolsOfRoute, readPool } from "../config/documents/inference-pool.ts";
import { gatewayKey } from "../config/documents/snapshot.ts";
import { type Fields, fieldsOf, listOf, textOf } from "../config/text/value-shapes.ts";
import { type ClusterView, gatewaysByParent } from "./cluster-snapshots.ts";
import { conditionsOf, ownConditions } from "./conditions.ts";

/** The API allows at most 32 parents. */
const MOST_PARENTS = 32;
const ROUTE_REFUSED: Verdict = {
  isTrue: false,
  reason: "HTTPRouteNotAccepted",
  message: "No route that refers to the pool is accepted",
};

export function poolStatuses(view: ClusterView, nowMs: number): { object: KubernetesObject; status: Fields }[] {
  const pools = view.cluster.objects(POOL_KIND);
  if (pools.length === 0) return [];
  const users = usersOfPools(view);
  return pools.flatMap((object) => {
    const before = listOf(fieldsOf(object.status).parents).map(fieldsOf);
    const others = before.filter(({ controllerName }) => controllerName !== CONTROLLER_NAME);
    const own = [...(users.get(objectKey(object))?.values() ?? [])];
    if (own.length === 0 && others.length === before.length) return [];
    const { accepted, resolvedRefs } = readPool(object, view.cluster);
    const parents = own.map(({ gateway, isAccepted }) => {
      const parentRef = {
        group: GATEWAY_API_GROUP,
        kind: "Gateway",
        namespace: gateway.metadata.namespace ?? "",
        name: gateway.metadata.name,
      };
      const verdicts = { Accepted: isAccepted ? accepted : ROUTE_REFUSED, ResolvedRefs: resolvedRefs };
      const conditions = conditionsOf(object, ownConditions(before, "parentRef", parentRef), nowMs, verdicts);
      return { parentRef, controllerName: CONTROLLER_NAME, conditions };
    });
    return [{ object, status: { parents: [...others, ...parents].slice(0, MOST_PARENTS) } }];
  });
}

interface PoolUser {
  readonly gateway: KubernetesObject;
  /** True if the Gateway accepts at least one of the routes. */
  readonly isAccepted: boolean;
}

/** Maps `namespace/name` of a pool to its users by Gateway. */
function usersOfPools({ gateways, result, cluster }: ClusterView): Map<string, Map<string, PoolUser>> {
  const byParent = gatewaysByParent(gateways, result.listenerSetOutcomes);
  const users = new Map<string, Map<string, PoolUser>>();
  for (const { document, parents } of result.routeOutcomes) {
    const own = (document.value as KubernetesObject).metadata.namespace ?? "";
    const served = [document, ...(result.childRoutes.get(document) ?? [])].map(
      ({ value }) => value as KubernetesObject,
    );
    const pools = served.flatMap((route) =>
      poolsOfRoute(route).filter((pool) => {
        const from = { group: GATEWAY_API_GROUP, kind: route.kind, namespace: route.metadata.namespace ?? "" };
        const to = { group: INFERENCE_GROUP, kind: POOL_KIND, ...pool };
        return POOL_ROUTE_KINDS.has(route.kind) && cluster.mayRefer(from, to);
      }),
    );
    for (const pool of pools) {
      const key = keyOf(pool.namespace, pool.name);
      const known = users.get(key) ?? new Map<string, PoolUser>();
      users.set(key, known);
      for (const { parentRef, accepted } of parents) {
        const { kind = "Gateway", name, namespace } = parentRef;
        const gateway = byParent.get(`${String(kind)} ${keyOf(textOf(namespace) ?? own, String(name))}`);
        if (gateway === undefined) continue;
        const isAccepted = accepted.isTrue || known.get(gatewayKey(gateway))?.isAccepted === true;
        known.set(gatewayKey(gateway), { gateway, isAccepted });
      }
    }
  }
  return users;
}
