/**
 * The arithmetic of one bucket, as functions of (state, now): no clock, no storage. A bucket starts full; at the end
 * of every window, counted from its first use, the base limit is added, up to the capacity (limit + burst).
 * Times are whole milliseconds of a monotonic clock, so that windows end exactly and a wall clock cannot move them.
 */
export interface BucketRule {
  /** Limit plus burst: what a full bucket holds. */
  readonly capacity: number;
  /** The base limit: what every window adds. */
  readonly refill: number;
  readonly windowMs: number;
}

export interface Bucket {
  /** Whole units left, 0 … capacity. Never negative: debt does not pass into the next window. */
  readonly remaining: number;
  readonly windowStartMs: number;
}

/** How many windows ended since the given one began. A clock that went back ends none. */
export function windowsEnded(rule: BucketRule, windowStartMs: number, nowMs: number): number {
  return nowMs < windowStartMs + rule.windowMs ? 0 : Math.floor((nowMs - windowStartMs) / rule.windowMs);
}

export function refilled(rule: BucketRule, remaining: number, windows: number): number {
  return Math.min(rule.capacity, remaining + windows * rule.refill);
}

/** The bucket as it is now. */
export function advanced(rule: BucketRule, bucket: Bucket, nowMs: number): Bucket {
  const windows = windowsEnded(rule, bucket.windowStartMs, nowMs);
  if (windows === 0) return bucket;
  return {
    remaining: refilled(rule, bucket.remaining, windows),
    windowStartMs: bucket.windowStartMs + windows * rule.windowMs,
  };
}

/** What is left after the amount is taken (or, if negative, given back): within 0 and the capacity. */
export function debited(rule: BucketRule, remaining: number, amount: number): number {
  return Math.max(0, Math.min(rule.capacity, remaining - amount));
}

/** Seconds until the window ends, rounded up: whoever waits that long finds at least one more unit. */
export function resetSeconds(rule: BucketRule, windowStartMs: number, nowMs: number): number {
  return Math.max(1, Math.ceil((rule.windowMs - (nowMs - windowStartMs)) / 1000));
}
