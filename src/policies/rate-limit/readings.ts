/**
 * What clients are told about limits: the header trio of spec 8 from the reading with the smallest share left, over
 * all limits of all scopes; on a refusal, from the one that refused. A backend's headers of these names never pass.
 */
import { GatewayError } from "../../core/errors.ts";
import type { Exchange, LimitReading } from "../../core/exchange.ts";

export const LIMIT_HEADER = "x-ratelimit-limit";
export const REMAINING_HEADER = "x-ratelimit-remaining";
export const RESET_HEADER = "x-ratelimit-reset";
/** Comes from a rate limit service, with a 429, and from nobody else. */
export const VENDOR_HEADER = "x-vendor-ratelimited";

export function addReading(exchange: Exchange, reading: LimitReading): void {
  const { limits } = exchange;
  if (limits.readings === undefined) limits.readings = [reading];
  else limits.readings.push(reading);
}

/**
 * A refusal replaces all readings: the headers then speak of the limit that refused. A service may refuse without
 * saying what its limit is; then nothing is invented.
 */
export function refusal(
  exchange: Exchange,
  reading: LimitReading | undefined,
  options: { readonly detail: string; readonly message?: string; readonly headers?: Readonly<Record<string, string>> },
): GatewayError {
  exchange.limits.readings = reading && [reading];
  const said = reading && { ...trio(reading), "retry-after": String(reading.resetSeconds) };
  const headers = { ...said, ...options.headers };
  return new GatewayError("rate_limited", { ...options, headers });
}

export function writeLimitHeaders(exchange: Exchange): void {
  const {
    limits: { readings },
    response,
  } = exchange;
  if (response === undefined) return;
  const { headers } = response;
  if (response.source === "upstream") headers.delete(VENDOR_HEADER);
  if (readings === undefined) {
    // No limit applied to this request, so nobody may speak for ours: only the gateway's own answers are trusted.
    if (response.source === "upstream")
      for (const name of [LIMIT_HEADER, REMAINING_HEADER, RESET_HEADER]) headers.delete(name);
    return;
  }
  const reading = smallestShare(readings);
  headers.set(LIMIT_HEADER, reading.limit);
  headers.set(REMAINING_HEADER, String(reading.remaining));
  headers.set(RESET_HEADER, String(reading.resetSeconds));
}

function smallestShare(readings: readonly LimitReading[]): LimitReading {
  let smallest = readings[0] as LimitReading;
  for (let i = 1; i < readings.length; i++) {
    const reading = readings[i] as LimitReading;
    if (reading.share < smallest.share) smallest = reading;
  }
  return smallest;
}

function trio(reading: LimitReading): Record<string, string> {
  return {
    [LIMIT_HEADER]: reading.limit,
    [REMAINING_HEADER]: String(reading.remaining),
    [RESET_HEADER]: String(reading.resetSeconds),
  };
}
