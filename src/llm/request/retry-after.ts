/**
 * How long a provider asks to be left alone: `retry-after` in seconds or as a date (RFC 9110 section 10.2.3), or the
 * finer `retry-after-ms` of OpenAI and Azure.
 */
import type { HeaderList } from "../../http/headers.ts";

/** `nowMs`: of the wall clock. Undefined if nothing sensible is said, or only the past. */
export function retryAfterSeconds(headers: HeaderList, nowMs: number): number | undefined {
  const fine = positive(Number(headers.get("retry-after-ms")) / 1000);
  if (fine !== undefined) return fine;
  const value = headers.get("retry-after");
  if (value === undefined) return undefined;
  if (/^\s*\d/.test(value)) return positive(Number(value));
  return positive((Date.parse(value) - nowMs) / 1000);
}

function positive(seconds: number): number | undefined {
  return Number.isFinite(seconds) && seconds > 0 ? seconds : undefined;
}
