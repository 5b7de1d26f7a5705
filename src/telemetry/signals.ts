/**
 * The forms in which the official OpenTelemetry serialisers take spans, metrics and log records, and what all of them
 * share. Types only come from the packages, so that nothing of them is loaded here.
 */
import type {
  ProtobufLogsSerializer,
  ProtobufMetricsSerializer,
  ProtobufTraceSerializer,
} from "@opentelemetry/otlp-transformer";

type Serialised<Serializer extends { serializeRequest(request: never): unknown }> = Parameters<
  Serializer["serializeRequest"]
>[0];

export type ReadableSpan = Serialised<typeof ProtobufTraceSerializer>[number];
export type ReadableLogRecord = Serialised<typeof ProtobufLogsSerializer>[number];
export type ResourceMetrics = Serialised<typeof ProtobufMetricsSerializer>;
export type Resource = ReadableSpan["resource"];
export type Attributes = ReadableSpan["attributes"];
export type HrTime = ReadableSpan["startTime"];
export type SpanContext = ReturnType<ReadableSpan["spanContext"]>;

export const SCOPE = { name: "gateway" } as const;

const SAMPLED = 1;

export function createResource(attributes: Readonly<Record<string, string>>): Resource {
  const resource: Resource = {
    asyncAttributesPending: false,
    attributes,
    merge: () => resource,
    getRawAttributes: () => Object.entries(attributes),
  };
  return resource;
}

export function spanContext(traceId: string, spanId: string, tracestate?: string, isRemote = false): SpanContext {
  if (tracestate === undefined) return { traceId, spanId, traceFlags: SAMPLED, isRemote };
  return { traceId, spanId, traceFlags: SAMPLED, isRemote, traceState: readOnlyState(tracestate) };
}

/** Only its text is ever asked for. */
function readOnlyState(text: string): NonNullable<SpanContext["traceState"]> {
  const state: NonNullable<SpanContext["traceState"]> = {
    get: () => undefined,
    set: () => state,
    unset: () => state,
    serialize: () => text,
  };
  return state;
}

/** Milliseconds of the wall clock, with fractions, as seconds and nanoseconds. */
export function hrTime(epochMs: number): HrTime {
  const seconds = Math.floor(epochMs / 1000);
  return [seconds, Math.round((epochMs - seconds * 1000) * 1e6)];
}
