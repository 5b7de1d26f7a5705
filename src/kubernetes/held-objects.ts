/**
 * Holds back new Gateways, ListenerSets, and routes while policies cannot be read, because such an object may already have a policy
 * that is not known. Older objects keep their last known policies.
 */
import type { KubernetesObject } from "../config/documents/cluster.ts";
import { ROUTE_KINDS } from "./cluster-snapshots.ts";

export interface SplitObjects {
  readonly usable: readonly KubernetesObject[];
  readonly held: readonly KubernetesObject[];
}

export interface HeldObjects {
  split(objects: readonly KubernetesObject[], arePoliciesReadable: boolean): SplitObjects;
}

const PROTECTED = new Set(["Gateway", "ListenerSet", ...ROUTE_KINDS]);

export function createHeldObjects(): HeldObjects {
  let known = new Set<string>();
  const keyOf = ({ kind, metadata }: KubernetesObject): string =>
    `${kind} ${metadata.namespace ?? ""}/${metadata.name} ${metadata.uid ?? ""}`;
  return {
    split(objects, arePoliciesReadable) {
      if (arePoliciesReadable) {
        known = new Set(objects.filter(({ kind }) => PROTECTED.has(kind)).map(keyOf));
        return { usable: objects, held: [] };
      }
      const held = objects.filter((object) => PROTECTED.has(object.kind) && !known.has(keyOf(object)));
      const waiting = new Set(held);
      return { usable: objects.filter((object) => !waiting.has(object)), held };
    },
  };
}
