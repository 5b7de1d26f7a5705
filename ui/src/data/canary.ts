/**
 * Formats the canary state of a backend: which requests it gets, their results, and why it was withdrawn.
 */
export interface CanaryState {
  readonly isWithdrawn: boolean;
  readonly text: string;
}

export function canaryOf(backend: Readonly<Record<string, unknown>>): CanaryState | undefined {
  const { canary } = backend;
  if (typeof canary !== "object" || canary === null) return undefined;
  const { share, when, state, at, reason, requests, failed, slow } = canary as Record<string, unknown>;
  if (state === "withdrawn") return { isWithdrawn: true, text: `withdrawn at ${String(at)}: ${String(reason)}` };
  const chosen = typeof share === "number" ? `${share}% of requests` : `when ${String(when)}`;
  const bad = [`${Number(failed)} failed`, ...(Number(slow) > 0 ? [`${Number(slow)} slow`] : [])].join(", ");
  return { isWithdrawn: false, text: `${chosen} · ${bad} of ${Number(requests)}` };
}
