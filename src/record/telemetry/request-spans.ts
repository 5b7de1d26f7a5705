/**
 * Builds the spans of a request after it has ended: one for the request and, if spans are detailed, one for each
 * policy phase, for the LLM or MCP call, and for each attempt.
 */

import {
  ATTR_ERROR_TYPE,
  ATTR_HTTP_REQUEST_METHOD,
  ATTR_SERVER_ADDRESS,
  ATTR_SERVER_PORT,
} from "@opentelemetry/semantic-conventions";
import { ATTR_GEN_AI_OPERATION_NAME } from "@opentelemetry/semantic-conventions/incubating";
import { type CelOutput, compileExpression, createBudget } from "../../cel/expression.ts";
import type { Attempt, Exchange } from "../../core/exchange.ts";
import type { McpAttributes } from "../../core/request-attributes.ts";
import { parseAuthority } from "../../http/host.ts";
import { shown as shownText } from "../access-log.ts";
import type { FinishedRequest, RequestValues } from "../finished-request.ts";
import type { Metrics } from "../log/metrics.ts";
import { readsContent } from "../recorded-bodies.ts";
import { addSpanFields } from "../request-fields.ts";
import type { RecordedPhase, RequestSpans } from "../trace/live-records.ts";
import { REDACTED, type Redaction } from "../trace/redact.ts";
import { isSensitiveName } from "../trace/sensitive-names.ts";

import { type Attributes, SPAN_KIND, type Span } from "./span-encoder.ts";

const MESSAGE_CHARS = 500;
interface SpanListEnv {
  readonly redaction: Redaction;
  readonly added: SpanAttributes | undefined;
  readonly removed: ReadonlySet<string>;
  newSpanId(): string;
}

interface SpanPart {
  readonly name: string;
  readonly kind: Span["kind"];
  readonly spanId: string;
  readonly parentId: string | undefined;
  readonly startMs: number;
  readonly endMs: number;
  readonly attributes: Attributes;
  readonly error?: string | undefined;
}

export function requestSpanList(
  { redaction, newSpanId, added, removed }: SpanListEnv,
  finished: FinishedRequest,
  noted: RequestSpans,
): Span[] {
  const { exchange, values } = finished;
  const endMs = exchange.startedMs + values.durationMs;
  const toEpoch = exchange.startedAt - exchange.startedMs;
  const { pairs } = exchange.arrived.headers;
  const { secrets } = exchange.credentials;
  const scrub = (text: string): string => redaction.scrub(text, pairs, secrets);
  const request = requestPart(finished, noted, endMs, redaction);
  const call = describeCall(values, noted.isDetailed ? {} : request.attributes);
  const longest = Math.max(longestText(request.attributes), call === undefined ? 0 : longestText(call.attributes));
  const shown = redaction.couldQuote(longest, pairs, secrets) ? scrub : redaction.text;
  const finish = (part: SpanPart): Span => {
    const { spanId, parentId, startMs, attributes, error } = part;
    for (const name of removed) delete attributes[name];
    for (const name in attributes) {
      const value = attributes[name];
      if (typeof value === "string") attributes[name] = shown(value);
    }
    return {
      traceId: noted.traceId,
      spanId,
      tracestate: noted.tracestate,
      parentId,
      isParentRemote: parentId !== undefined && parentId === noted.parentId,
      name: shown(part.name),
      kind: part.kind,
      startEpochMs: startMs + toEpoch,
      endEpochMs: Math.max(startMs, part.endMs) + toEpoch,
      attributes,
      droppedAttributes: 0,
      error: error === undefined ? undefined : scrub(error).slice(0, MESSAGE_CHARS),
    };
  };
  const spans = [withAdded(finish(request), added?.of(exchange))];
  if (!noted.isDetailed) return spans;
  for (const phase of noted.phases) {
    const part = phasePart(exchange, noted, phase, newSpanId(), endMs);
    if (part !== undefined) spans.push(finish(part));
  }
  const { callId, callStartMs } = noted;
  const hasCall = call !== undefined && callId !== undefined && callStartMs !== undefined;
  if (hasCall) {
    const { name, attributes, error } = call;
    const { spanId: parentId } = noted;
    // A spread of `call` takes several microseconds here.
    spans.push(
      finish({
        name,
        kind: SPAN_KIND.client,
        spanId: callId,
        parentId,
        startMs: callStartMs,
        endMs,
        attributes,
        error,
      }),
    );
  }
  const parentId = hasCall ? callId : noted.spanId;
  exchange.attempts.list.forEach((attempt, i) => {
    if (attempt.spanId !== undefined)
      spans.push(finish(attemptPart(exchange, attempt, attempt.spanId, i, parentId, endMs)));
  });
  return spans;
}

function longestText(attributes: Attributes): number {
  let longest = 0;
  for (const name in attributes) {
    const value = attributes[name];
    if (typeof value === "string" && value.length > longest) longest = value.length;
  }
  return longest;
}

function withAdded(span: Span, added: Added | undefined): Span {
  if (added === undefined) return span;
  return {
    ...span,
    name: added.name ?? span.name,
    attributes: { ...span.attributes, ...added.attributes },
    droppedAttributes: added.omitted,
  };
}

function requestPart(
  { exchange, values }: FinishedRequest,
  noted: RequestSpans,
  endMs: number,
  redaction: Redaction,
): SpanPart {
  const { method, route, status = 0, end, reason = "" } = values;
  const attributes = httpAttributes(values, redaction);
  const { leftOut } = exchange.attempts;
  if (noted.isDetailed && leftOut > 0) attributes["gateway.attempts.left_out"] = leftOut;
  return {
    name: `${method === "" ? "HTTP" : method}${route === undefined ? "" : ` ${route}`}`,
    kind: SPAN_KIND.server,
    spanId: noted.spanId,
    parentId: noted.parentId,
    startMs: exchange.startedMs,
    endMs,
    attributes,
    error: status >= 500 || end === "failed" ? reason : undefined,
  };
}

function phasePart(
  { steps }: Exchange,
  noted: RequestSpans,
  { phase, startMs, endMs, firstStep, endStep }: RecordedPhase,
  spanId: string,
  requestEndMs: number,
): SpanPart | undefined {
  const ran = steps.slice(firstStep, endMs === undefined ? undefined : endStep);
  if (ran.length === 0) return undefined;
  const refused = ran.find(({ verdict }) => verdict === "refused");
  return {
    name: `${phase} policies`,
    kind: SPAN_KIND.internal,
    spanId,
    parentId: noted.spanId,
    startMs,
    endMs: endMs ?? requestEndMs,
    attributes: {
      "gateway.policies": ran.map(({ policy }) => policy),
      "gateway.policy.verdicts": ran.map(({ verdict }) => verdict),
      "gateway.policy.micros": ran.map(({ micros }) => micros),
      ...(refused === undefined ? {} : { "gateway.policy.refused_by": refused.policy }),
    },
  };
}

function describeCall(
  { attributes: { llm, mcp, backend }, path, status = 0, end, reason }: RequestValues,
  attributes: Attributes,
): Pick<SpanPart, "name" | "attributes" | "error"> | undefined {
  if (llm !== undefined && backend?.protocol === "llm") {
    const model = llm.requestModel ?? llm.responseModel;
    const operation = operationName(path);
    attributes[ATTR_GEN_AI_OPERATION_NAME] = operation;
    addSpanFields.llm(attributes, llm);
    return {
      name: model === undefined ? operation : `${operation} ${model}`,
      attributes,
      error: status >= 400 || end === "failed" ? (reason ?? "") : undefined,
    };
  }
  if (mcp?.methodName === undefined) return undefined;
  addMcp(attributes, mcp);
  const name = mcp.tool?.name ?? mcp.prompt?.name;
  const hasFailed = mcp.outcome !== undefined && mcp.outcome !== "ok" && mcp.outcome !== "cancelled";
  return {
    name: name === undefined ? mcp.methodName : `${mcp.methodName} ${name}`,
    attributes,
    error: hasFailed ? (reason ?? mcp.outcome) : undefined,
  };
}

function attemptPart(
  { request, attempts }: Exchange,
  attempt: Attempt,
  spanId: string,
  index: number,
  parentId: string,
  requestEndMs: number,
): SpanPart {
  const { target, startedMs, resultMs, status, error } = attempt;
  // The body of the last response arrives until the end of the request.
  const isOpen = attempt === attempts.last && error === undefined && !attempt.isReported;
  const attributes = targetAttributes(request.method, target);
  if (status !== undefined) attributes["http.response.status_code"] = status;
  const errorType = error !== undefined ? "_OTHER" : status !== undefined && status >= 400 ? String(status) : undefined;
  if (errorType !== undefined) attributes["error.type"] = errorType;
  if (index > 0) attributes["http.request.resend_count"] = index;
  return {
    name: target.startsWith("stdio:") || target.startsWith("internal:") ? target : request.method,
    kind: SPAN_KIND.client,
    spanId,
    parentId,
    startMs: startedMs,
    endMs: isOpen || resultMs === undefined ? requestEndMs : resultMs,
    attributes,
    error: errorType === undefined ? undefined : (error ?? ""),
  };
}

// Span attributes follow the semantic conventions for HTTP, generative AI, and MCP.

function httpAttributes(values: RequestValues, redaction: Redaction): Attributes {
  const attributes: Attributes = {};
  addSpanFields.request(attributes, values);
  const { name = values.host, port } = parseAuthority(values.host) ?? {};
  if (name !== "") attributes[ATTR_SERVER_ADDRESS] = name;
  if (port !== undefined) attributes[ATTR_SERVER_PORT] = port;
  if (values.query !== "") attributes["url.query"] = redaction.query(values.query, values.credentials.query);
  return attributes;
}

function targetAttributes(method: string, target: string): Attributes {
  if (target.startsWith("stdio:")) return { "network.transport": "pipe", "gateway.target": target };
  if (target.startsWith("internal:")) return { "gateway.target": target };
  if (target.startsWith("unix:"))
    return { [ATTR_HTTP_REQUEST_METHOD]: method, "network.transport": "unix", [ATTR_SERVER_ADDRESS]: target.slice(5) };
  const { name: host = target, port } = parseAuthority(target) ?? {};
  return {
    [ATTR_HTTP_REQUEST_METHOD]: method,
    [ATTR_SERVER_ADDRESS]: host,
    ...(port === undefined ? {} : { [ATTR_SERVER_PORT]: port }),
  };
}

function operationName(path: string): string {
  if (path.endsWith("/embeddings")) return "embeddings";
  return /:(?:stream)?[gG]enerateContent$/.test(path) ? "generate_content" : "chat";
}

function addMcp(to: Attributes, mcp: McpAttributes): void {
  addSpanFields.mcp(to, mcp);
  if (mcp.tool !== undefined) to[ATTR_GEN_AI_OPERATION_NAME] = "execute_tool";
  if (mcp.outcome !== undefined && mcp.outcome !== "ok") to[ATTR_ERROR_TYPE] = mcp.outcome;
}

type AttributeValue = string | number | boolean | string[];

/** Adds `config.telemetry.otlp.attributes` to the span of a request. */
interface SpanAttributes {
  /** Returns whether an expression reads this attribute by its name, for example `llm.prompt`. */
  reads(path: string): boolean;
  of(exchange: Exchange): Added;
}

/** This is the default limit of OpenTelemetry's SDKs. */
const MAX_ADDED_ATTRIBUTES = 128;
const MAX_ATTRIBUTE_CHARS = 16 * 1024;
/** Limits the names and values of all added attributes of a span, because maps and lists can have any size. */
const MAX_ADDED_CHARS = 128 * 1024;
const MAX_ATTRIBUTE_DEPTH = 16;
/** The attribute with this name is the name of the span. */
const SPAN_NAME = "span.name";

export function compileSpanAttributes(
  sources: Readonly<Record<string, string>>,
  redaction: Redaction,
  metrics: Metrics,
): SpanAttributes {
  const expressions = Object.entries(sources).map(([name, source]) => [name, compileExpression(source)] as const);
  const failed = metrics.counter(
    "gateway_span_attribute_errors_total",
    "Span attributes that were omitted, because their expression had no value for the request.",
    ["attribute"],
  );
  return {
    reads: (path) => expressions.some(([, expression]) => readsContent(expression, path)),
    of(exchange) {
      const added = new Added((text) => shownText(text, exchange, redaction, { maxChars: MAX_ATTRIBUTE_CHARS }));
      const budget = createBudget();
      for (const [name, expression] of expressions) {
        const result = expression.evaluate(exchange.celAttributes, budget);
        if (!result.ok) failed.labels(name).add(1);
        else if (name === SPAN_NAME && typeof result.value === "string") added.name = added.shown(result.value);
        else added.put(name, result.value);
      }
      return added;
    },
  };
}

class Added {
  readonly attributes: Record<string, AttributeValue> = {};
  readonly shown: (text: string) => string;
  /** Replaces the name of the span. */
  name: string | undefined = undefined;
  /** Counts attributes beyond the limit. */
  omitted = 0;
  #count = 0;
  #chars = 0;

  constructor(shown: (text: string) => string) {
    this.shown = shown;
  }

  /** An attribute cannot be a map, so each member of a map, or of a list with maps, becomes one attribute. */
  put(name: string, value: CelOutput, depth = 0): void {
    if (value === null) return;
    if (typeof value === "string") this.#set(name, this.shown(value));
    else if (typeof value !== "object") this.#set(name, value);
    else if (Array.isArray(value) && value.every(isString)) this.#set(name, value.map(this.shown));
    else if (depth === MAX_ATTRIBUTE_DEPTH) this.omitted += 1;
    else
      for (const [key, member] of Object.entries(value))
        this.put(`${name}.${key}`, isSensitiveName(key, "json") ? REDACTED : member, depth + 1);
  }

  #set(name: string, value: AttributeValue): void {
    const texts = Array.isArray(value) ? value : typeof value === "string" ? [value] : [];
    const chars = texts.reduce((sum, text) => sum + text.length, name.length);
    if (this.#count === MAX_ADDED_ATTRIBUTES || this.#chars + chars > MAX_ADDED_CHARS) {
      this.omitted += 1;
      return;
    }
    this.#count += 1;
    this.#chars += chars;
    this.attributes[name] = value;
  }
}

function isString(value: CelOutput): value is string {
  return typeof value === "string";
}
