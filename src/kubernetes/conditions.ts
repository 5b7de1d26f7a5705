/**
 * Creates the conditions of Kubernetes statuses, and compares statuses.
 */
import type { KubernetesObject } from "../config/documents/cluster.ts";
import { CONTROLLER_NAME, type Verdict } from "../config/documents/documents.ts";
import { conditionMessage } from "../config/documents/status.ts";
import { type Fields, fieldsOf, listOf } from "../config/text/value-shapes.ts";

export interface StatusCondition {
  readonly type: string;
  readonly status: "True" | "False" | "Unknown";
  readonly reason: string;
  readonly message: string;
  readonly observedGeneration: number;
  readonly lastTransitionTime: string;
}

/** Returns the conditions of the object by their types, in this order. `before` are the current ones. */
export function conditionsOf(
  { metadata }: KubernetesObject,
  before: unknown,
  nowMs: number,
  verdicts: Readonly<Record<string, Verdict | undefined>>,
): StatusCondition[] {
  const current = listOf(before).map(fieldsOf);
  return Object.entries(verdicts).flatMap(([type, verdict]) => {
    if (verdict === undefined) return [];
    const status = verdict.isTrue ? "True" : "False";
    const known = current.find((one) => one.type === type);
    const time = typeof known?.lastTransitionTime === "string" ? known.lastTransitionTime : undefined;
    return {
      type,
      status,
      reason: verdict.reason,
      message: conditionMessage(verdict.message),
      observedGeneration: metadata.generation ?? 0,
      lastTransitionTime:
        known?.status === status && time !== undefined ? time : `${new Date(nowMs).toISOString().slice(0, 19)}Z`,
    };
  });
}

/** Returns the conditions of the current entry of this controller whose `field` is the reference. */
export function ownConditions(entries: readonly Fields[], field: string, reference: unknown): unknown {
  return entries.find((one) => one.controllerName === CONTROLLER_NAME && isSame(one[field], reference))?.conditions;
}

/** Ignores the order of fields. */
export function isSame(one: unknown, other: unknown): boolean {
  return canonical(one) === canonical(other);
}

const known = new WeakMap<object, string>();

function canonical(value: unknown): string {
  if (typeof value !== "object" || value === null) return String(JSON.stringify(value));
  const text = known.get(value) ?? sortedText(value);
  known.set(value, text);
  return text;
}

function sortedText(value: object): string {
  return JSON.stringify(value, (_key, inner: unknown) =>
    typeof inner === "object" && inner !== null && !Array.isArray(inner)
      ? Object.fromEntries(Object.entries(inner).sort(([a], [b]) => (a < b ? -1 : 1)))
      : inner,
  );
}
