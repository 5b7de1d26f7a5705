/**
 * Parses and formats W3C Trace Context headers. A malformed `traceparent` is ignored.
 */

export interface TraceParent {
  readonly traceId: string;
  readonly spanId: string;
  readonly sampled: boolean;
}

const SAMPLED = 1;
const NO_TRACE = "0".repeat(32);
const NO_SPAN = "0".repeat(16);
/** A later version may add fields at the end. Version 00 has none, and ff is not a version. */
const FORM = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/;

export function parseTraceparent(text: string): TraceParent | undefined {
  const found = FORM.exec(text);
  if (found === null) return undefined;
  const [, version, traceId = "", spanId = "", flags = "", more] = found;
  if (version === "ff" || (version === "00" && more !== undefined)) return undefined;
  if (traceId === NO_TRACE || spanId === NO_SPAN) return undefined;
  return { traceId, spanId, sampled: (Number.parseInt(flags, 16) & SAMPLED) === SAMPLED };
}

export function formatTraceparent({ traceId, spanId, sampled }: TraceParent): string {
  return `00-${traceId}-${spanId}-${sampled ? "01" : "00"}`;
}

/** Longer values are dropped. Section 3.3.1.5 of the recommendation asks for at least 512 characters. */
const TRACESTATE_CHARS = 8_192;

export function usableTracestate(text: string | undefined): string | undefined {
  return text === undefined || text === "" || text.length > TRACESTATE_CHARS ? undefined : text;
}
