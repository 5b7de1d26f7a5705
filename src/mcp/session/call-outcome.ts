/**
 * What became of a client's request, for the log, the records and the metrics. A failure that travels inside a good
 * HTTP answer (a tool's `isError`, a JSON-RPC error) is read as the text passes: nothing is parsed but the few
 * characters that say why.
 */
import type { AttributeSource } from "../../cel/expression.ts";
import type { BackendProblem } from "../../core/backend.ts";
import type { McpOutcome } from "../../core/facts.ts";
import { elements, find, member, slice } from "../../json/json-text.ts";
import type { Span } from "../../json/syntax.ts";
import type { Failure, RoutedTarget, ShadowTold } from "../protocol/call.ts";
import { type ClientRequest, INVALID_PARAMS, INVALID_REQUEST, type ServerMessage } from "../protocol/json-rpc.ts";

/** Read of a server's reason; what is shown of it is cut further. */
const MAX_REASON_TEXT_CHARS = 4_000;

/** May also stand in a text or deeper: then the result is looked at. */
const IS_ERROR = /"isError"\s*:\s*true/;

export interface CallOutcome {
  readonly kind: McpOutcome;
  readonly problem: BackendProblem | undefined;
}

/** Told once per request, before its answer goes out, with the text of that where there is one. */
export interface CallReport {
  /** What expressions may read of the client's HTTP request. */
  readonly caller: AttributeSource;
  /** Read when the call begins, and only where guards in shadow mode look at its answer. */
  readonly watched: ShadowTold;
  ended(request: ClientRequest, target: RoutedTarget | undefined, outcome: CallOutcome, answer?: string): void;
}

export const CANCELLED: CallOutcome = { kind: "cancelled", problem: undefined };
export const SUCCEEDED: CallOutcome = { kind: "ok", problem: undefined };

export function outcomeOfAnswer(
  request: ClientRequest,
  target: RoutedTarget | undefined,
  { kind, text }: ServerMessage,
): CallOutcome {
  if (kind === "error") {
    const code = Number(textAt(text, find(text, 0, "error", "code")));
    return rpcError(code, shown(target, stringAt(text, find(text, 0, "error", "message"))));
  }
  // A search of the engine's own comes first: a large result is not walked through only to find that it is one.
  if (request.method !== "tools/call" || !IS_ERROR.test(text)) return SUCCEEDED;
  const result = find(text, 0, "result");
  const flag = result && member(text, result.start, "isError");
  if (!result || !flag || slice(text, flag) !== "true") return SUCCEEDED;
  const reason = shown(target, firstText(text, result)) || "the result says isError and nothing else";
  return toolError(reason);
}

export function toolError(reason: string): CallOutcome {
  return { kind: "tool_error", problem: { code: "tool_error", source: "upstream", reason } };
}

export function outcomeOfFailure(failure: Failure): CallOutcome {
  const { error, message, detail } = failure;
  if (error === undefined) return rpcError(failure.code, message);
  const reason = detail ?? message;
  // The client must not learn that there is something it may not see.
  if (error === "authorization_denied" || typeof error === "object")
    return { kind: "denied", problem: { code: "authorization_denied", source: "client", reason } };
  const source = error === "overloaded" ? "gateway" : "upstream";
  return { kind: "failed", problem: { code: error, source, reason, said: error } };
}

function rpcError(code: number, message: string): CallOutcome {
  const isClients = code >= INVALID_PARAMS && code <= INVALID_REQUEST;
  const reason = `${message} (${code})`;
  return { kind: "rpc_error", problem: { code: "rpc_error", source: isClients ? "client" : "upstream", reason } };
}

function firstText(text: string, result: Span): string {
  const content = member(text, result.start, "content");
  for (const item of content ? elements(text, content.start) : []) {
    const span = member(text, item.start, "text");
    if (span) return stringAt(text, span);
  }
  return "";
}

function shown(target: RoutedTarget | undefined, text: string): string {
  return target === undefined ? text : target.shown(text);
}

function textAt(text: string, span: Span | undefined): string {
  return span === undefined ? "" : slice(text, span);
}

/** A long one is not decoded: its first characters say enough. */
function stringAt(text: string, span: Span | undefined): string {
  if (span === undefined || text[span.start] !== '"') return "";
  if (span.end - span.start > MAX_REASON_TEXT_CHARS)
    return text.slice(span.start + 1, span.start + 1 + MAX_REASON_TEXT_CHARS);
  return JSON.parse(slice(text, span)) as string;
}
