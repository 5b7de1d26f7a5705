/**
 * Creates the conditions of Kubernetes statuses, and compares statuses.
 */
import type { Verdict } from "../config/documents/documents.ts";
import { conditionMessage } from "../config/documents/status.ts";
import { fieldsOf, listOf } from "../config/text/value-shapes.ts";

export interface StatusCondition {
  readonly type: string;
  readonly status: "True" | "False" | "Unknown";
  readonly reason: string;
  readonly message: string;
  readonly observedGeneration: number;
  readonly lastTransitionTime: string;
}

export interface ConditionContext {
  readonly generation: number;
  readonly nowMs: number;
  readonly before: unknown;
}

export function conditionOf(type: string, verdict: Verdict, context: ConditionContext): StatusCondition {
  const status = verdict.isTrue ? "True" : "False";
  const known = listOf(context.before)
    .map(fieldsOf)
    .find((one) => one.type === type);
  const time = typeof known?.lastTransitionTime === "string" ? known.lastTransitionTime : undefined;
  return {
    type,
    status,
    reason: verdict.reason,
    message: conditionMessage(verdict.message),
    observedGeneration: context.generation,
    lastTransitionTime:
      known?.status === status && time !== undefined ? time : `${new Date(context.nowMs).toISOString().slice(0, 19)}Z`,
  };
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
