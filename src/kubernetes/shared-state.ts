/**
 * Finds the state that the pods of a Gateway must share and cannot: each pod has its own sessions, budgets, and stored
 * keys unless the pods have a common store.
 */
import { backends } from "../backends/index.ts";
import { type KubernetesObject, specOf } from "../config/documents/cluster.ts";
import type { GatewayParameters } from "../config/documents/gateway-parameters.ts";
import { findParts, partsOf } from "../config/documents/policy-spec.ts";
import { pathText } from "../config/text/value-path.ts";
import { fieldsOf, isObject } from "../config/text/value-shapes.ts";
import type { SharedState } from "../core/policy.ts";
import { policies } from "../policies/index.ts";

/** The pods of a Gateway, if there may be more than one. */
export interface SeveralPods {
  readonly most: number;
  readonly hasStore: boolean;
  readonly hasSessionKey: boolean;
}

/** `defaultReplicas` is that of the controller. The Deployment has another number if something else scales it. */
export function severalPods(
  { replicas, autoscaling, config }: GatewayParameters,
  defaultReplicas: number,
  deployment: KubernetesObject | undefined,
): SeveralPods | undefined {
  const wanted = autoscaling?.maxReplicas ?? replicas ?? defaultReplicas;
  const current = deployment === undefined ? 1 : Number(specOf(deployment).replicas ?? 1);
  const most = Math.max(wanted, current);
  return most > 1
    ? { most, hasStore: config?.hasStore === true, hasSessionKey: config?.hasSessionKey === true }
    : undefined;
}

export interface UnsharedState extends SharedState {
  readonly field: string;
}

export function stateOfPolicy(policy: KubernetesObject): readonly UnsharedState[] {
  return findParts(specOf(policy), partsOf(policies)).found.flatMap(({ part, path, value }) =>
    part.toPolicies(value).flatMap(({ definition, written }) => {
      const state = definition.sharedState?.(fieldsOf(written));
      return state ? [{ ...state, field: pathText(path) }] : [];
    }),
  );
}

export function stateOfBackend(backend: KubernetesObject): readonly UnsharedState[] {
  const spec = specOf(backend);
  return backends.flatMap(({ key, sharedState }) => {
    const state = isObject(spec[key]) ? sharedState?.(spec[key]) : undefined;
    return state ? [{ ...state, field: `spec.${key}` }] : [];
  });
}

/** Returns the problem of the state with the pods of the Gateway, and the field to set. */
export function unsharedState(found: readonly UnsharedState[], pods: SeveralPods | undefined): string | undefined {
  if (pods === undefined || pods.hasStore) return undefined;
  const unshared = found.filter(({ isSigned }) => !(isSigned && pods.hasSessionKey));
  if (unshared.length === 0) return undefined;
  const fields = unshared.map(({ field, what }) => `${field}: each of ${pods.most} pods has its own ${what}`);
  const isKeyEnough = unshared.every(({ isSigned }) => isSigned);
  const remedy = isKeyEnough ? "spec.config.store or spec.config.sessionKey" : "spec.config.store";
  return `${fields.join("; ")}; set ${remedy} in the GatewayParameters`;
}
