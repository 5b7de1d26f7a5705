/**
 * Decides when a request arrives whether it is traced, and what its backends are told: the client's `traceparent` as it
 * came, one of ours that says "not sampled", or that of our own span.
 */
import type { Exchange } from "../core/exchange.ts";
import type { IdSource } from "../lib/text/ids.ts";
import { RequestSpans } from "../trace/request-spans.ts";
import { formatTraceparent, parseTraceparent, usableTracestate } from "../trace/trace-context.ts";
import type { OtlpSettings } from "./settings.ts";

const TRACE_BYTES = 16;
const SPAN_BYTES = 8;

export interface SamplingEnv {
  readonly ids: IdSource;
  random(): number;
}

export function createSampling(
  { sampling, spans, signals }: Pick<OtlpSettings, "sampling" | "spans" | "signals">,
  { ids, random }: SamplingEnv,
): (exchange: Exchange) => void {
  const ratio = signals.includes("traces") ? (sampling?.ratio ?? 1) : 0;
  const followsClient = signals.includes("traces") && (sampling?.followClient ?? true);
  const isDetailed = spans === "all";
  const newSpanId = (): string => ids.hex(SPAN_BYTES);

  return (exchange) => {
    const { headers } = exchange.request;
    const sent = headers.get("traceparent");
    const parent = sent === undefined ? undefined : parseTraceparent(sent);
    const isSampled = parent !== undefined && followsClient ? parent.sampled : ratio >= 1 || random() < ratio;
    if (!isSampled && parent !== undefined) return;
    const traceId = parent?.traceId ?? ids.hex(TRACE_BYTES);
    // The state belongs to the trace that the client named, and we begin another.
    if (parent === undefined && headers.has("tracestate")) headers.delete("tracestate");
    if (!isSampled) {
      exchange.traceparent = formatTraceparent({ traceId, spanId: newSpanId(), sampled: false });
      return;
    }
    const tracestate = usableTracestate(headers.getAll("tracestate").join(","));
    exchange.spans = new RequestSpans({
      traceId,
      spanId: newSpanId(),
      parentId: parent?.spanId,
      tracestate,
      isDetailed,
      steps: exchange.steps,
      newSpanId,
    });
  };
}
