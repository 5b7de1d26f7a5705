/**
 * Defines the attributes that the configuration adds to the span of a request (`config.telemetry.otlp.attributes`).
 */
import type { Exchange } from "../../core/exchange.ts";

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
