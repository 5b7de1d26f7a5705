/**
 * Writes the `x-ratelimit-*` response headers. They describe the limit with the smallest remaining share across all
 * scopes, or on a rejection the limit that was reached.
 */
import { GatewayError } from "../../core/errors.ts";
import type { Exchange, LimitReading } from "../../core/exchange.ts";

export const LIMIT_HEADER = "x-ratelimit-limit";
export const REMAINING_HEADER = "x-ratelimit-remaining";
export const RESET_HEADER = "x-ratelimit-reset";
/** A rate limit service may set this header on a 429 response. */
export const VENDOR_HEADER = "x-vendor-ratelimited";

export function addReading(exchange: Exchange, reading: LimitReading): void {
  const { limits } = exchange;
  if (limits.readings === undefined) limits.readings = [reading];
  else limits.readings.push(reading);
}

/** Builds the 429 error. Its reading replaces all others, so the headers describe the limit that was reached. */
export function rateLimitedError(
  exchange: Exchange,
  reading: LimitReading | undefined,
  options: { readonly detail: string; readonly message?: string; readonly headers?: Readonly<Record<string, string>> },
): GatewayError {
  exchange.limits.readings = reading && [reading];
  const limitHeaders = reading && { ...headersFor(reading), "retry-after": String(reading.resetSeconds) };
  const headers = { ...limitHeaders, ...options.headers };
  return new GatewayError("rate_limited", { ...options, headers });
}

export function writeLimitHeaders(exchange: Exchange): void {
  const {
    limits: { readings },
    response,
  } = exchange;
  if (response === undefined) return;
  const { headers } = response;
  if (readings === undefined) {
    // No gateway limit applied to this request, so limit headers from the backend would be misleading.
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

function headersFor(reading: LimitReading): Record<string, string> {
  return {
    [LIMIT_HEADER]: reading.limit,
    [REMAINING_HEADER]: String(reading.remaining),
    [RESET_HEADER]: String(reading.resetSeconds),
  };
}
