/**
 * Writes the access log. The query string is omitted, because it may contain credentials.
 */

import { compileExpression, type Expression } from "../cel/expression.ts";
import type { Exchange } from "../core/exchange.ts";
import type { FinishedRequest } from "./finished-request.ts";
import type { LogFields, Logger, LogValue } from "./log/logger.ts";
import { readsContent } from "./recorded-bodies.ts";
import { logFields } from "./request-fields.ts";
import { type Redaction, redactJson, withoutSecrets } from "./trace/redact.ts";

const FIELD_CHARS = 2_048;
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

interface ShownOptions {
  readonly maxChars?: number;
  readonly found?: string[];
  readonly alsoHidden?: readonly string[];
}

/** Receives every record that passes `AccessSettings.filter`, independently of the log level. */
export type AccessLogCopy = (level: "info" | "warn", fields: LogFields, exchange: Exchange) => void;

export function createAccessLog(
  logger: Logger,
  copy?: AccessLogCopy | undefined,
  own?: AccessFields | undefined,
): (finished: FinishedRequest) => void {
  return ({ exchange, values }) => {
    const { status } = values;
    const level = status !== undefined && status >= 500 ? "warn" : "info";
    const isShown = logger.enabled(level);
    if (!isShown && copy === undefined) return;
    if (own !== undefined && !own.passes(exchange)) return;
    const fields = logFields(values);
    own?.addTo(fields, exchange);
    if (isShown) logger[level]("request", fields);
    copy?.(level, fields, exchange);
  };
}
