/**
 * Handles W3C Trace Context in the `_meta` of MCP requests (2026-07-28, `traceparent` and `tracestate`).
 */

import { find, insertMembers, removeMembers } from "../../json/json-text.ts";
import { type Edit, skipSpace } from "../../json/syntax.ts";
import { parseTraceparent, type RequestSpans, usableTracestate } from "../../record/trace/live-records.ts";
import { type ClientMessage, type ClientRequest, editedRequest } from "../protocol/json-rpc.ts";

const OWN = new Set(["traceparent", "tracestate"]);

export function withTraceContext(
  parsed: ClientMessage | readonly ClientMessage[],
  spans: RequestSpans | undefined,
): ClientMessage | readonly ClientMessage[] {
  if (spans === undefined) return parsed;
  return "kind" in parsed ? withContext(parsed, spans) : parsed.map((message) => withContext(message, spans));
}

/** `initialize` gets no context, because it may be repeated after the trace has ended. */
function withContext(message: ClientMessage, spans: RequestSpans): ClientMessage {
  if (message.kind !== "request" || message.method === "initialize") return message;
  const meta = isObject(message.params._meta) ? message.params._meta : undefined;
  const parent = typeof meta?.traceparent === "string" ? parseTraceparent(meta.traceparent) : undefined;
  if (parent !== undefined)
    spans.adopt(parent, usableTracestate(typeof meta?.tracestate === "string" ? meta.tracestate : undefined));
  return written(message, meta, {
    traceparent: spans.traceparent(),
    ...(spans.tracestate === undefined ? {} : { tracestate: spans.tracestate }),
  });
}

function written(
  request: ClientRequest,
  meta: Readonly<Record<string, unknown>> | undefined,
  context: Readonly<Record<string, string>>,
): ClientRequest {
  const edits = editsFor(request.text, meta, JSON.stringify(context).slice(1, -1));
  if (edits === undefined) return request;
  const { tracestate: _dropped, ...kept } = meta ?? {};
  return editedRequest(request, edits, { ...request.params, _meta: { ...kept, ...context } });
}

/** Returns undefined if `_meta` is not an object. */
function editsFor(text: string, meta: object | undefined, members: string): Edit[] | undefined {
  const metaSpan = find(text, 0, "params", "_meta");
  if (metaSpan !== undefined) {
    if (meta === undefined) return undefined;
    const [removed] = removeMembers(text, metaSpan.start, (key) => OWN.has(key));
    if (removed === undefined) return [insertMembers(text, metaSpan.start, members)];
    return [{ ...removed, text: removed.text === "" ? members : `${members},${removed.text}` }];
  }
  const params = find(text, 0, "params");
  if (params !== undefined) return [insertMembers(text, params.start, `"_meta":{${members}}`)];
  return [
    insertMembers(text, skipSpace(text, text.charCodeAt(0) === 0xfeff ? 1 : 0), `"params":{"_meta":{${members}}}`),
  ];
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
