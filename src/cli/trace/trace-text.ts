/**
 * Formats trace events as text, with the labels of spec 6, for the terminal UI and the plain list.
 */
import type { TraceEvent, TraceMessage } from "../../record/trace/record.ts";
import { printable } from "../terminal/terminal.ts";

const MAX_ROW_CHARS = 120;
const MAX_LINE_CHARS = 1_000;

const LABELS: Readonly<Record<TraceMessage["type"], string>> = {
  requestStarted: "Request Start",
  requestSnapshot: "Snapshot",
  responseSnapshot: "Snapshot",
  bodySnapshot: "Body Snapshot",
  policySelection: "Policies",
  policy: "Policy",
  policyEvent: "Policy Event",
  cel: "CEL",
  routeSelection: "Route",
  backendCallStart: "Backend Start",
  backendCallResult: "Backend Result",
  requestFinished: "Request Done",
};

export function labelOf({ message }: TraceEvent): string {
  return LABELS[message.type] ?? printable(String((message as { type: unknown }).type));
}

export function summaryOf({ message, requestId }: TraceEvent, maxChars = MAX_ROW_CHARS): string {
  const whose = message.type === "requestStarted" && requestId !== undefined ? ` (${requestId})` : "";
  const text = printable(summary(message) + whose).replaceAll("\n", " ");
  return text.length <= maxChars ? text : `${text.slice(0, maxChars - 1)}…`;
}

function summary(message: TraceMessage): string {
  switch (message.type) {
    case "requestStarted":
      return "request started";
    case "requestSnapshot":
      return `${message.stage}${requestLine(message.requestState)}`;
    case "responseSnapshot":
      return `${message.stage}${statusLine(message.requestState)}`;
    case "bodySnapshot":
      return `${message.stage} body, ${bodyBytes(message.body)} bytes${message.truncated ? " (truncated)" : ""}`;
    case "policySelection": {
      const kinds = Object.keys(message.effectivePolicy).sort();
      return `${message.of ?? message.phase}: ${kinds.length === 0 ? "none" : kinds.join(", ")}`;
    }
    case "policy":
      return `${message.of ?? message.phase} ${message.kind} ${message.result}${message.details ? `: ${message.details}` : ""}`;
    case "policyEvent":
      return `${message.kind} ${JSON.stringify(message.details)}`;
    case "cel":
      return "error" in message.result
        ? `${message.expression} => error: ${message.result.error}`
        : `${message.expression} => ${JSON.stringify(message.result.value)}`;
    case "routeSelection": {
      const evaluated = `(${message.evaluatedRoutes.length} evaluated)`;
      return message.selectedRoute === null
        ? `no route selected ${evaluated}`
        : `selected "${message.selectedRoute}" ${evaluated}`;
    }
    case "backendCallStart":
      return message.target;
    case "backendCallResult":
      return result(message.status, message.error);
    case "requestFinished":
      return `request finished ${result(message.status, message.error)}`;
    default:
      return JSON.stringify(message);
  }
}

function result(status: number | null, error: string | null): string {
  return `status=${status ?? "none"}${error === null ? "" : ` error=${error}`}`;
}

function requestLine(state: { readonly [key: string]: unknown }): string {
  const request = state.request as { method?: unknown; path?: unknown; uri?: unknown } | undefined;
  if (request?.method !== undefined) return `: ${request.method} ${request.path}`;
  return request?.uri === undefined ? "" : `: ${request.uri}`;
}

function statusLine(state: { readonly [key: string]: unknown }): string {
  const response = state.response as { code?: unknown } | undefined;
  return response?.code === undefined ? "" : `: ${response.code}`;
}

function bodyBytes(base64: string): number {
  return Buffer.byteLength(base64, "base64");
}

export function duration(micros: number): string {
  if (micros < 1000) return micros === 0 ? "0" : `${micros} µs`;
  if (micros < 1_000_000) return `${(micros / 1000).toFixed(1)} ms`;
  return `${(micros / 1_000_000).toFixed(2)} s`;
}

export function sinceStart({ eventEnd }: TraceEvent, first: TraceEvent | undefined): string {
  return `+${duration(Math.max(0, eventEnd - (first?.eventEnd ?? eventEnd)))}`;
}

export function timeOf({ eventStart, eventEnd }: TraceEvent): string {
  return eventStart === null ? "" : duration(eventEnd - eventStart);
}

export function plainLine(event: TraceEvent): string {
  const mark = { info: " ", warn: "!", error: "✗" }[event.severity] ?? " ";
  const at = duration(event.eventEnd).padStart(9);
  const took = timeOf(event) === "" ? "" : ` (${timeOf(event)})`;
  return `${mark} ${at}  ${labelOf(event).padEnd(14)} ${summaryOf(event, MAX_LINE_CHARS)}${took}\n`;
}
