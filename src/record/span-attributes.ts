/**
 * Evaluates the expressions of `config.telemetry.otlp.attributes`, which add attributes to the span of a request, when
 * a sampled request has ended.
 */

import { type CelOutput, compileExpression, createBudget } from "../cel/expression.ts";
import type { Exchange } from "../core/exchange.ts";
import { shown } from "./access-log.ts";
import type { Metrics } from "./log/metrics.ts";
import { readsContent } from "./recorded-bodies.ts";
import { REDACTED, type Redaction } from "./trace/redact.ts";
import { isSensitiveName } from "./trace/sensitive-names.ts";

export type AttributeValue = string | number | boolean | string[];

export interface AddedAttributes {
  readonly attributes: Readonly<Record<string, AttributeValue>>;
  /** Replaces the name of the span. */
  readonly name: string | undefined;
  /** Counts attributes beyond the limit. */
  readonly omitted: number;
}

export interface SpanAttributes {
  /** Returns whether an expression reads this attribute by its name, for example `llm.prompt`. */
  reads(path: string): boolean;
  of(exchange: Exchange): AddedAttributes;
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
      const added = new Added((text) => shown(text, exchange, redaction, { maxChars: MAX_ATTRIBUTE_CHARS }));
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

class Added implements AddedAttributes {
  readonly attributes: Record<string, AttributeValue> = {};
  readonly shown: (text: string) => string;
  name: string | undefined = undefined;
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
