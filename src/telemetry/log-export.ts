/**
 * A record of the log as OTLP takes it, with the span that it belongs to.
 */
import type { LogFields } from "../lib/log/logger.ts";
import type { RequestSpans } from "../trace/request-spans.ts";
import { hrTime, type ReadableLogRecord, type Resource, SCOPE, spanContext } from "./signals.ts";

const SEVERITY = { info: 9, warn: 13, error: 17 } as const;

export interface LogEntry {
  readonly level: keyof typeof SEVERITY;
  /** `request` of the access log, `audit` of the audit stream. */
  readonly name: string;
  readonly epochMs: number;
  readonly fields: LogFields;
  readonly spans: RequestSpans | undefined;
}

export function logExport({ level, name, epochMs, fields, spans }: LogEntry, resource: Resource): ReadableLogRecord {
  const attributes: Record<string, string | number | boolean | string[]> = {};
  for (const [key, value] of Object.entries(fields)) {
    if (value === undefined || value === null) continue;
    attributes[key] = Array.isArray(value) ? [...value] : (value as string | number | boolean);
  }
  return {
    hrTime: hrTime(epochMs),
    hrTimeObserved: hrTime(epochMs),
    severityNumber: SEVERITY[level],
    severityText: level.toUpperCase(),
    body: name,
    attributes,
    resource,
    instrumentationScope: SCOPE,
    droppedAttributesCount: 0,
    ...(spans === undefined ? {} : { spanContext: spanContext(spans.traceId, spans.spanId) }),
  };
}
