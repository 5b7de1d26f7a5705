/**
 * Writes the access log. The query string is omitted, because it may contain credentials.
 */

import { compileExpression, type Expression } from "../cel/expression.ts";
import type { Exchange } from "../core/exchange.ts";
import { stringOrUndefined } from "../core/principal.ts";
import { attemptsText, type FinishedRequest, fieldAdder, LLM_FIELDS, MCP_FIELDS } from "./finished-request.ts";
import type { LogFields, Logger, LogValue } from "./log/logger.ts";
import { readsContent } from "./recorded-bodies.ts";
import { type Redaction, redactJson, withoutSecrets } from "./trace/redact.ts";

const FIELD_CHARS = 2_048;
const addMcp = fieldAdder(MCP_FIELDS, "log");
const addLlm = fieldAdder(LLM_FIELDS, "log");

export interface AccessSettings {
  readonly fields?: Readonly<Record<string, string>> | undefined;
  readonly filter?: string | undefined;
}

export interface AccessFields {
  /** Returns whether an expression reads this attribute by its name, for example `llm.prompt`. */
  reads(path: string): boolean;
  passes(exchange: Exchange): boolean;
  addTo(fields: Record<string, LogValue>, exchange: Exchange): void;
}

export function compileAccessFields({ fields = {}, filter }: AccessSettings, redaction: Redaction): AccessFields {
  const own = Object.entries(fields).map(([name, source]) => [name, compileExpression(source)] as const);
  const keeps = filter === undefined ? undefined : compileExpression(filter);
  return {
    reads: (path) =>
      (keeps !== undefined && readsContent(keeps, path)) ||
      own.some(([, expression]) => readsContent(expression, path)),
    passes(exchange) {
      if (keeps === undefined) return true;
      const result = keeps.evaluate(exchange.celAttributes);
      return !result.ok || result.value !== false;
    },
    addTo(line, exchange) {
      for (const [name, expression] of own) line[name] = fieldValue(expression, exchange, redaction);
    },
  };
}

function fieldValue(expression: Expression, exchange: Exchange, redaction: Redaction): LogValue {
  const result = expression.evaluate(exchange.celAttributes);
  if (!result.ok || result.value === null) return undefined;
  const { value } = result;
  if (typeof value === "number" || typeof value === "boolean") return value;
  return shown(typeof value === "string" ? value : JSON.stringify(value), exchange, redaction);
}

/**
 * Redacts the request's credentials in a text. `found` collects the values that were redacted in JSON members, and
 * `alsoHidden` lists further values to redact.
 */
export function shown(
  text: string,
  exchange: Exchange,
  redaction: Redaction,
  { maxChars = FIELD_CHARS, found = [], alsoHidden = [] }: ShownOptions = {},
): string {
  const {
    arrived,
    request,
    credentials: { secrets, query: credentialQuery },
  } = exchange;
  const withoutMembers = withoutSecrets(withoutSecrets(redactJson(text, found), found), alsoHidden);
  const withoutHeaders = redaction.scrub(
    redaction.scrub(withoutMembers, arrived.headers.pairs, secrets),
    request.headers.pairs,
  );
  return withoutHeaders
    .replace(/(?<=[?#])[^?#\s"\\]+/g, (query) => redaction.query(query, credentialQuery))
    .slice(0, maxChars);
}

export interface ShownOptions {
  readonly maxChars?: number;
  readonly found?: string[];
  readonly alsoHidden?: readonly string[];
}

export type AccessLog = (finished: FinishedRequest) => void;

/** Receives every record that passes `AccessSettings.filter`, independently of the log level. */
export type AccessLogCopy = (level: "info" | "warn", fields: LogFields, exchange: Exchange) => void;

export interface AccessLogOptions {
  readonly copy?: AccessLogCopy | undefined;
  readonly own?: AccessFields | undefined;
}

export function createAccessLog(
  logger: Logger,
  redaction: Pick<Redaction, "host" | "scrub">,
  { copy, own }: AccessLogOptions = {},
): AccessLog {
  return (finished) => {
    const { exchange, status } = finished;
    const level = status !== undefined && status >= 500 ? "warn" : "info";
    const isShown = logger.enabled(level);
    if (!isShown && copy === undefined) return;
    if (own !== undefined && !own.passes(exchange)) return;
    const fields = accessFields(finished, redaction);
    own?.addTo(fields, exchange);
    if (isShown) logger[level]("request", fields);
    copy?.(level, fields, exchange);
  };
}

function accessFields(
  finished: FinishedRequest,
  redaction: Pick<Redaction, "host" | "scrub">,
): Record<string, LogValue> {
  const { exchange, subject } = finished;
  const { request, attributes, failure } = exchange;
  const fields: Record<string, LogValue> = {
    id: exchange.id,
    recordId: exchange.recordId,
    gateway: exchange.listener,
    route: exchange.route,
    backend: attributes.backend?.name,
    src: `${exchange.source.address}:${exchange.source.port}`,
    method: request.method,
    host: redaction.host(exchange.originalHost),
    path: exchange.originalPath,
    status: finished.status,
    outcome: finished.result,
    durationMs: Math.round(finished.durationMs * 1000) / 1000,
    bytes: finished.responseBytes,
  };
  if (exchange.arrived.rawPath !== exchange.originalPath) fields.rawPath = exchange.arrived.rawPath;
  if (exchange.source.client !== undefined) fields.client = exchange.source.client;
  if (finished.end !== "complete") fields.end = finished.end;
  if (subject !== null) fields.user = subject;
  if (attributes.jwt !== undefined) fields["jwt.sub"] = stringOrUndefined(attributes.jwt.sub);
  if (attributes.apiKey !== undefined) {
    fields["apiKey.user_id"] = stringOrUndefined(attributes.apiKey.user_id);
    fields["apiKey.name"] = stringOrUndefined(attributes.apiKey.name);
    fields["apiKey.team"] = stringOrUndefined(attributes.apiKey.team);
  }
  if (attributes.mcp !== undefined) addMcp(fields, attributes.mcp);
  if (attributes.llm !== undefined) addLlm(fields, attributes.llm);
  const attempts = finished.attempts(redaction);
  if (attempts !== undefined) fields.attempts = attemptsText(attempts);
  if (exchange.records.spans !== undefined) {
    fields.trace_id = exchange.records.spans.traceId;
    fields.span_id = exchange.records.spans.spanId;
  }
  if (exchange.shadow.denials !== undefined)
    fields.shadow = [...new Set(exchange.shadow.denials.map(({ policy }) => policy))].join(",");
  if (failure !== undefined) {
    fields.error = failure.code;
    fields.source = failure.source;
    fields.reason = finished.reason;
  }
  return fields;
}
