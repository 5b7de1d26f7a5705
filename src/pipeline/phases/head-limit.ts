/**
 * How long a target may take until its response head (`timeout` policy). `backendRequestTimeout` is for each target that
 * is asked, `requestTimeout` for the whole request; without either the backend's own default counts for each target.
 */
import type { Settings } from "../../core/policy.ts";

/** `0s` in a timeout, as in the Gateway API. */
export const UNLIMITED = 0;

/** When the whole request's time is over, on the monotonic clock; undefined if it has no limit. */
export function deadlineOf({ requestTimeoutMs }: Settings, startedMs: number): number | undefined {
  return requestTimeoutMs === undefined || requestTimeoutMs === UNLIMITED ? undefined : startedMs + requestTimeoutMs;
}

/** For the target that is asked now, with `spares` that could be asked after it. */
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
  // Where only the whole request has a limit, the targets that may still be asked share what is left of it.
  if (perTargetMs === undefined) return leftMs / (1 + spares);
  return perTargetMs === UNLIMITED ? leftMs : Math.min(perTargetMs, leftMs);
}
