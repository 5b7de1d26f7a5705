/**
 * What a rate limit service's answer means here: a reading for the headers, and what it wants to add to requests and
 * responses. The answer comes from outside: names and values that HTTP does not allow are left out.
 */

import { isHeaderName } from "../../base/header-names.ts";
import type { LimitReading } from "../../core/exchange.ts";
import { mayServiceChange } from "../../http/header-rules.ts";
import { isHeaderValue } from "../../http/headers.ts";
import { LIMIT_HEADER, REMAINING_HEADER, RESET_HEADER, VENDOR_HEADER } from "./readings.ts";
import { type RlsHeader, type RlsResponse, type RlsStatus, UNIT_SECONDS } from "./rls-protocol.ts";

export interface ServiceAnswer {
  /** undefined if no limit of the service matched. */
  readonly reading: LimitReading | undefined;
  /** Without the trio, which `reading` speaks for. */
  readonly responseHeaders: Readonly<Record<string, string>>;
  readonly requestHeaders: Readonly<Record<string, string>>;
  /** The body of a refusal, if the service gave one. */
  readonly body: string | undefined;
}

export function answerOf(response: RlsResponse): ServiceAnswer {
  const {
    [LIMIT_HEADER]: limit,
    [REMAINING_HEADER]: remaining,
    [RESET_HEADER]: reset,
    ...others
  } = headersOf(response.responseHeadersToAdd);
  const fromStatuses = tightest(response.statuses);
  const fromHeaders =
    limit === undefined || remaining === undefined || reset === undefined
      ? undefined
      : headerReading(limit, remaining, reset);
  return {
    reading: fromHeaders ?? fromStatuses,
    responseHeaders: others,
    requestHeaders: headersOf(response.requestHeadersToAdd),
    body: response.rawBody.length === 0 ? undefined : Buffer.from(response.rawBody).toString("utf8"),
  };
}

/** Only a refusal carries it (spec 8). */
export function withoutVendorHeader(headers: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  const { [VENDOR_HEADER]: _only429, ...others } = headers;
  return others;
}

function tightest(statuses: readonly RlsStatus[]): LimitReading | undefined {
  let found: LimitReading | undefined;
  for (const { currentLimit, limitRemaining, durationUntilReset } of statuses) {
    if (!currentLimit || currentLimit.requestsPerUnit === 0) continue;
    const windowSeconds = UNIT_SECONDS[currentLimit.unit];
    const share = Math.min(1, limitRemaining / currentLimit.requestsPerUnit);
    if (found !== undefined && found.share <= share) continue;
    const { seconds, nanos } = durationUntilReset ?? { seconds: windowSeconds ?? 1, nanos: 0 };
    found = {
      limit:
        windowSeconds === undefined
          ? String(currentLimit.requestsPerUnit)
          : `${currentLimit.requestsPerUnit};w=${windowSeconds}`,
      remaining: limitRemaining,
      resetSeconds: Math.max(1, Math.min(Number.MAX_SAFE_INTEGER, Math.ceil(Number(seconds) + nanos / 1e9))),
      share,
    };
  }
  return found;
}

/** `10`, or `10, 10;w=60`: the first number is the ceiling that applies. */
function headerReading(limit: string, remaining: string, reset: string): LimitReading | undefined {
  const ceiling = Number.parseInt(limit, 10);
  const left = Number.parseInt(remaining, 10);
  const resetSeconds = Number.parseInt(reset, 10);
  // Larger numbers would be written as `1e+21`.
  if (![ceiling, left, resetSeconds].every(Number.isSafeInteger)) return undefined;
  if (ceiling <= 0 || left < 0 || resetSeconds < 0) return undefined;
  return { limit, remaining: left, resetSeconds: Math.max(1, resetSeconds), share: Math.min(1, left / ceiling) };
}

function headersOf(headers: readonly RlsHeader[]): Record<string, string> {
  const result: Record<string, string> = {};
  for (const { key, value, rawValue } of headers) {
    const name = key.toLowerCase();
    const text = value === "" && rawValue.length > 0 ? Buffer.from(rawValue).toString("latin1") : value;
    if (isHeaderName(name) && isHeaderValue(text) && mayServiceChange(name)) result[name] = text;
  }
  return result;
}
