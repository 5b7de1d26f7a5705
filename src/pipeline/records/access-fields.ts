/**
 * `config.logging.access`: fields of the operator's own in each line of the access log, and which requests get a line.
 * Values are redacted as in the trace. An expression that cannot be evaluated leaves its field out; a filter that cannot
 * be evaluated keeps the line.
 */
import { compileExpression, type Expression } from "../../cel/expression.ts";
import type { Exchange } from "../../core/exchange.ts";
import type { LogValue } from "../../observe/log/logger.ts";
import { type Redaction, redactJson, withoutSecrets } from "../../observe/trace/redact.ts";

/** A line is read by people and shipped by the megabyte. */
const FIELD_CHARS = 2_048;

export interface AccessSettings {
  readonly fields?: Readonly<Record<string, string>> | undefined;
  readonly filter?: string | undefined;
}

export interface AccessFields {
  /** Whether this request gets a line. */
  passes(exchange: Exchange): boolean;
  addTo(fields: Record<string, LogValue>, exchange: Exchange): void;
}

export function compileAccessFields({ fields = {}, filter }: AccessSettings, redaction: Redaction): AccessFields {
  const own = Object.entries(fields).map(([name, source]) => [name, compileExpression(source)] as const);
  const keeps = filter === undefined ? undefined : compileExpression(filter);
  return {
    passes(exchange) {
      if (keeps === undefined) return true;
      const result = keeps.evaluate(exchange.attributes);
      return !result.ok || result.value !== false;
    },
    addTo(line, exchange) {
      for (const [name, expression] of own) line[name] = fieldValue(expression, exchange, redaction);
    },
  };
}

function fieldValue(expression: Expression, exchange: Exchange, redaction: Redaction): LogValue {
  const result = expression.evaluate(exchange.attributes);
  if (!result.ok || result.value === null) return undefined;
  const { value } = result;
  if (typeof value === "number" || typeof value === "boolean") return value;
  return shown(typeof value === "string" ? value : JSON.stringify(value), exchange, redaction);
}

/**
 * Whatever an expression reads, a credential that the request carried does not get into the log. `found` collects what
 * was hidden in members of JSON, and `alsoHidden` are such values of another text of the same call.
 */
export function shown(
  text: string,
  exchange: Exchange,
  redaction: Redaction,
  { maxChars = FIELD_CHARS, found = [], alsoHidden = [] }: ShownOptions = {},
): string {
  const { arrived, request, secrets, credentialQuery } = exchange;
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
