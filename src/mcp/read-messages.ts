/**
 * The messages of a client's request, read once: with the trace context that servers are told, and noted for the audit.
 */
import type { Exchange } from "../core/exchange.ts";
import { isBatch, parseBody } from "./client-side/downstream.ts";
import type { ClientMessage } from "./protocol/json-rpc.ts";
import { withTraceContext } from "./trace-meta.ts";

export function readMessages(exchange: Exchange, text: string): ClientMessage | readonly ClientMessage[] {
  const parsed = withTraceContext(parseBody(text), exchange.records.spans);
  const { audit } = exchange.records;
  if (audit !== undefined)
    for (const message of isBatch(parsed) ? parsed : [parsed])
      if (message.kind === "request") audit.asked(message.id, message.method, message.params);
  return parsed;
}
