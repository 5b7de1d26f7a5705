/**
 * Converts trace events, or the recorded steps of a request, to bars of the waterfall.
 */
import type { RecordedStep } from "../../../../src/record/trace/record.ts";
import type { RequestRecord } from "../../data/requests.ts";
import type { TraceEvent } from "../../data/trace.ts";
import type { Bar, Lane } from "./waterfall.tsx";

export function barOf({ message, eventStart, eventEnd, severity }: TraceEvent): Bar {
  return {
    lane: laneOf(message),
    label: labelOf(message),
    startMicros: eventStart ?? eventEnd,
    endMicros: eventEnd,
    level: severity === "error" ? "bad" : severity === "warn" || isRefusal(message) ? "warn" : "ok",
    isPoint: eventStart === null || eventEnd - eventStart < 1,
    isCall: message.type === "backendCallResult",
  };
}

type Message = TraceEvent["message"];

/** The labels are those of spec 6. */
export function labelOf(message: Message): string {
  switch (message.type) {
    case "requestStarted":
      return "Request Start";
    case "requestSnapshot":
    case "responseSnapshot":
      return `Snapshot: ${message.stage}`;
    case "policySelection":
      return `Policies: ${message.of ?? message.phase}`;
    case "routeSelection":
      return `Route: ${message.selectedRoute ?? "none"}`;
    case "backendCallStart":
      return `Backend Start: ${message.target}`;
    case "backendCallResult":
      return `Backend Result: ${message.status ?? message.error ?? ""}`;
    case "bodySnapshot":
      return `Body: ${message.stage}`;
    case "requestFinished":
      return "Request Done";
    case "policy":
      return `${message.kind}: ${message.result}`;
    case "cel":
      return `CEL: ${message.expression}`;
    case "policyEvent":
      return message.kind;
    default:
      return "event";
  }
}

function laneOf(message: Message): Lane {
  switch (message.type) {
    case "requestStarted":
      return "gateway";
    case "requestSnapshot":
      return message.stage === "route policies" ? "route" : message.stage === "final request" ? "backend" : "gateway";
    case "policySelection":
      return message.phase;
    case "policy":
      return message.moment === "response" ? "response" : message.phase;
    case "routeSelection":
    case "cel":
      return "route";
    case "backendCallStart":
    case "backendCallResult":
    case "policyEvent":
      return "backend";
    case "bodySnapshot":
      return message.stage === "response" ? "response" : "backend";
    default:
      return "response";
  }
}

function isRefusal(message: Message): boolean {
  return message.type === "policy" && message.result === "refused";
}

/** The record has durations but no start times, so the bars are placed one after another. */
export function barsOfRecord(record: RequestRecord): Bar[] {
  const { upstreamMs, durationMs, backend, answeredBy, end, status } = record;
  const bars: Bar[] = [];
  let at = 0;
  for (const { phase, of, policy, verdict, micros } of mergedSteps(record)) {
    const name = of === undefined ? policy : `${policy} of ${of}`;
    bars.push({
      lane: phase,
      label: verdict === "passed" ? name : `${name}: ${verdict}`,
      startMicros: at,
      endMicros: at + micros,
      level: verdict === "refused" ? "bad" : "ok",
      isPoint: false,
    });
    at += micros;
  }
  const endMicros = Math.max(durationMs * 1000, at);
  if (upstreamMs !== null) {
    const took = Math.min(upstreamMs * 1000, endMicros - at);
    bars.push({
      lane: "backend",
      label: backend ?? "backend",
      startMicros: at,
      endMicros: at + took,
      level: (status ?? 0) >= 500 ? "bad" : "ok",
      isPoint: false,
      isCall: true,
    });
    at += took;
  }
  const words = answeredBy === "upstream" ? "response delivered" : "answered by the gateway";
  bars.push({
    lane: "response",
    label: end === "complete" ? words : end,
    startMicros: at,
    endMicros,
    level: end === "complete" ? "ok" : "bad",
    isPoint: false,
  });
  return bars;
}

/** A policy can run several times in one phase, for example before and after the body is read. It gets one bar. */
function mergedSteps({ steps }: RequestRecord): readonly RecordedStep[] {
  const merged = new Map<string, RecordedStep>();
  for (const step of steps) {
    const key = `${step.phase} ${step.of ?? ""} ${step.policy}`;
    const known = merged.get(key);
    const verdict = known === undefined || known.verdict === "passed" ? step.verdict : known.verdict;
    merged.set(key, { ...step, verdict, micros: step.micros + (known?.micros ?? 0) });
  }
  return [...merged.values()];
}
