/**
 * How long an answer of the identity provider may be used (RFC 9111): `max-age`, else `expires`, within bounds that
 * suit keys and metadata. Both change rarely, and a key that is missing is asked for at once anyway.
 */
import type { FetchResponse } from "../../http/fetch.ts";

const DEFAULT_TTL_MS = 10 * 60_000;
const MIN_TTL_MS = 60_000;
const MAX_TTL_MS = 24 * 3_600_000;
/** Longer outages are noticed by people; what is older may have been withdrawn for a reason. */
export const MAX_STALE_MS = 24 * 3_600_000;

export function lifetimeMs(response: FetchResponse, nowMs: number): number {
  const control = response.headers.get("cache-control") ?? "";
  const maxAge = /(?:^|[\s,])max-age=(\d+)/i.exec(control)?.[1];
  const expires = Date.parse(response.headers.get("expires") ?? "");
  let ttlMs = DEFAULT_TTL_MS;
  // `no-store` on a key set is a default of some servers; fetching it for every token would serve nobody.
  if (!/\bno-(?:cache|store)\b/i.test(control)) {
    if (maxAge !== undefined) ttlMs = Number(maxAge) * 1000;
    else if (Number.isFinite(expires)) ttlMs = expires - nowMs;
  }
  return Math.min(MAX_TTL_MS, Math.max(MIN_TTL_MS, ttlMs));
}
