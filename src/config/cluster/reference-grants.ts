/**
 * ReferenceGrants (gateway.networking.k8s.io): a namespace's own word on who may refer to what in it. Without one, a
 * reference across namespaces is refused: it is what keeps one tenant from another's secrets.
 */
import { fieldsOf, isObject, listOf, textOf } from "../text/value-shapes.ts";
import { type KubernetesObject, specOf } from "./kubernetes-object.ts";

export interface Referrer {
  readonly group: string;
  readonly kind: string;
  readonly namespace: string;
}

export interface Referent {
  readonly group: string;
  readonly kind: string;
  readonly namespace: string;
  readonly name: string;
}

export function isGranted(grants: readonly KubernetesObject[], from: Referrer, to: Referent): boolean {
  if (from.namespace === to.namespace) return true;
  return grants.some((grant) => grant.metadata.namespace === to.namespace && says(grant, from, to));
}

function says(grant: KubernetesObject, from: Referrer, to: Referent): boolean {
  const spec = specOf(grant);
  const isFrom = listOf(spec.from).some((one) => {
    const { group, kind, namespace } = fieldsOf(one);
    return group === from.group && kind === from.kind && namespace === from.namespace;
  });
  // No name: all of that kind. A name that is no text is a mistake, and grants nothing.
  const isTo = listOf(spec.to).some(
    (one) =>
      isObject(one) &&
      one.group === to.group &&
      one.kind === to.kind &&
      (one.name === undefined || one.name === "" || textOf(one.name) === to.name),
  );
  return isFrom && isTo;
}
