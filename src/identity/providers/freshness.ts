/**
 * Computes how long a response of the identity provider is fresh (RFC 9111) from `max-age` or `expires`, within fixed
 * limits.
 */
import type { FetchResponse } from "../../http/fetch.ts";

const DEFAULT_TTL_MS = 10 * 60_000;
const MIN_TTL_MS = 60_000;
const MAX_TTL_MS = 24 * 3_600_000;
/** During an outage, older keys and metadata are not used. */
export const MAX_STALE_MS = 24 * 3_600_000;

export function lifetimeMs(response: FetchResponse, nowMs: number): number {
  const control = response.headers.get("cache-control") ?? "";
  const maxAge = /(?:^|[\s,])max-age=(\d+)/i.exec(control)?.[1];
  const expires = Date.parse(response.headers.get("expires") ?? "");
  let ttlMs = DEFAULT_TTL_MS;
  // Some servers send `no-store` by default, so it selects the default lifetime instead of disabling the cache.
  if (!/\bno-(?:cache|store)\b/i.test(control)) {
    if (maxAge !== undefined) ttlMs = Number(maxAge) * 1000;
    else if (Number.isFinite(expires)) ttlMs = expires - nowMs;
  }
  return Math.min(MAX_TTL_MS, Math.max(MIN_TTL_MS, ttlMs));
}
