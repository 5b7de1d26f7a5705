/**
 * Computes how long an attempt may wait for the response head, and explains an expired limit.
 */
import type { Settings } from "../../core/policy.ts";

/** A timeout of `0s` means no limit, as in the Gateway API. */
export const UNLIMITED = 0;

/** Returns the deadline of the whole request on the monotonic clock, or undefined if it has none. */
export function requestDeadline({ requestTimeoutMs }: Settings, startedMs: number): number | undefined {
  return requestTimeoutMs === undefined || requestTimeoutMs === UNLIMITED ? undefined : startedMs + requestTimeoutMs;
}

/**
 * Returns the timeout for the response head of the current target, with `spares` more targets to try after it.
 * `backendRequestTimeout` applies to each target and `requestTimeout` to the whole request. Without either, the
 * backend's default applies to each target.
 */
export function headLimitMs(
  settings: Settings,
  defaultMs: number,
  deadlineMs: number | undefined,
  nowMs: number,
  spares: number,
): number {
  const { backendTimeoutMs, requestTimeoutMs } = settings;
  const perTargetMs = backendTimeoutMs ?? (requestTimeoutMs === undefined ? defaultMs : undefined);
  if (deadlineMs === undefined) return perTargetMs ?? UNLIMITED;
  const leftMs = Math.max(1, deadlineMs - nowMs);
  // If only the whole request has a timeout, the remaining targets share the remaining time.
  if (perTargetMs === undefined) return leftMs / (1 + spares);
  return perTargetMs === UNLIMITED ? leftMs : Math.min(perTargetMs, leftMs);
}

/** Describes an expired `headLimitMs` with the setting that an operator can change. */
export function timeoutDetail(settings: Settings, defaultMs: number, limitMs: number, spares: number): string {
  const { backendTimeoutMs, requestTimeoutMs } = settings;
  const after = "no response headers within";
  if (backendTimeoutMs !== undefined && backendTimeoutMs === limitMs)
    return `${after} ${durationText(backendTimeoutMs)} (timeout.backendRequestTimeout)`;
  if (requestTimeoutMs === undefined)
    return `${after} ${durationText(defaultMs)} (the default of timeout.requestTimeout)`;
  const isShare = backendTimeoutMs === undefined && spares > 0;
  const share = isShare ? `${durationText(limitMs)}, a share of ` : "";
  return `${after} ${share}${durationText(requestTimeoutMs)} (timeout.requestTimeout)`;
}

function durationText(ms: number): string {
  return ms < 1_000 ? `${Math.round(ms)} ms` : `${Math.round(ms / 100) / 10} s`;
}
