/**
 * Determines the outcome of a client's request for logs, request records, and metrics, including failures inside
 * successful HTTP responses.
 */

import { surface } from "../../base/errors.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { runInSlices, SLICED_BYTES, type Steps } from "../../base/sliced-work.ts";
import type { BackendProblem } from "../../core/backend.ts";
import type { CelAttributes } from "../../core/cel-attributes.ts";
import type { McpOutcome } from "../../core/request-attributes.ts";
import { elements, find, findInSteps, lineBytesInSteps, member, occursInSteps, slice } from "../../json/json-text.ts";
import { readJson } from "../../json/read-json.ts";
import type { Span } from "../../json/syntax.ts";
import {
  type Failure,
  type GuardReporter,
  type RoutedTarget,
  type ShadowReporter,
  serverFailure,
} from "../protocol/call.ts";
import {
  type ClientRequest,
  INVALID_PARAMS,
  INVALID_REQUEST,
  resultPieces,
  type ServerMessage,
} from "../protocol/json-rpc.ts";

const PART = peerInput("mcp-server/part");

/** A longer reason is truncated and not decoded. */
const MAX_REASON_TEXT_CHARS = 4_000;

/**
 * The pattern may also match inside a string or deeper in the result, so the member itself is checked after a match.
 */
const IS_ERROR_TRUE = /"isError"\s*:\s*true/;

export interface CallOutcome {
  readonly kind: McpOutcome;
  readonly problem: BackendProblem | undefined;
}

export interface CallReport {
  readonly caller: CelAttributes;
  readonly watched: ShadowReporter;
  readonly guarded: GuardReporter;
  ended(request: ClientRequest, target: RoutedTarget | undefined, outcome: CallOutcome, answer?: string): void;
}

export const CANCELLED: CallOutcome = { kind: "cancelled", problem: undefined };
export const SUCCEEDED: CallOutcome = { kind: "ok", problem: undefined };

export function responseOutcome(
  request: ClientRequest,
  target: RoutedTarget | undefined,
  { kind, text }: ServerMessage,
): CallOutcome {
  if (kind === "error") {
    const code = Number(textAt(text, find(text, 0, "error", "code")));
    return rpcError(code, shown(target, stringAt(text, find(text, 0, "error", "message"))));
  }
  // A native search is faster than traversing the result, and most results are not errors.
  if (request.method !== "tools/call" || !IS_ERROR_TRUE.test(text)) return SUCCEEDED;
  const result = find(text, 0, "result");
  const flag = result && member(text, result.start, "isError");
  if (!result || !flag || slice(text, flag) !== "true") return SUCCEEDED;
  const reason = shown(target, firstText(text, result)) || "the result has isError and no text";
  return toolError(reason);
}

export function toolError(reason: string): CallOutcome {
  return { kind: "tool_error", problem: { code: "tool_error", source: "upstream", reason } };
}

export function failureOutcome(failure: Failure): CallOutcome {
  const { error, message, detail } = failure;
  if (error === undefined) return rpcError(failure.code, message);
  const reason = detail ?? message;
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

function stringAt(text: string, span: Span | undefined): string {
  if (span === undefined || text[span.start] !== '"') return "";
  if (span.end - span.start > MAX_REASON_TEXT_CHARS)
    return text.slice(span.start + 1, span.start + 1 + MAX_REASON_TEXT_CHARS);
  return readJson(PART, slice(text, span)) as string;
}

const IS_ERROR = /"isError"/;
const IS_ERROR_CHARS = 9;

export interface LargeAnswer {
  readonly outcome: CallOutcome;
  /** The response with the client's id and without line breaks. */
  readonly bytes: readonly Buffer[];
}

export interface Waiting {
  readonly request: ClientRequest;
  readonly target: RoutedTarget | undefined;
  isOver(): boolean;
  ready(answer: LargeAnswer): void;
  failed(failure: Failure): void;
}

export function isLargeAnswer({ text }: ServerMessage): boolean {
  return text.length > SLICED_BYTES;
}

export function readyLargeAnswer(message: ServerMessage, call: Waiting): void {
  runInSlices(readyInSteps(message, call), () => call.isOver())
    .then((answer) => call.ready(answer))
    .catch((error: unknown) => {
      surface(error);
      call.failed(serverFailure("the response could not be processed"));
    });
}

export function* readyInSteps(
  message: ServerMessage,
  { request, target }: Pick<Waiting, "request" | "target">,
): Steps<LargeAnswer> {
  const { text, idStart, idEnd, members } = message;
  const bytes: Buffer[] = [];
  if (members !== undefined && !members.has("isError")) {
    for (const piece of resultPieces(request.id, members)) yield* lineBytesInSteps(piece, bytes);
    return { outcome: SUCCEEDED, bytes };
  }
  const outcome = yield* outcomeInSteps(message, request, target);
  yield* lineBytesInSteps(text.slice(0, idStart), bytes);
  bytes.push(Buffer.from(request.id));
  yield* lineBytesInSteps(text.slice(idEnd), bytes);
  return { outcome, bytes };
}

function* outcomeInSteps(
  message: ServerMessage,
  request: ClientRequest,
  target: RoutedTarget | undefined,
): Steps<CallOutcome> {
  if (message.kind !== "result") return responseOutcome(request, target, message);
  if (request.method !== "tools/call") return SUCCEEDED;
  if (!(yield* occursInSteps(message.text, IS_ERROR, IS_ERROR_CHARS))) return SUCCEEDED;
  const flag = yield* findInSteps(message.text, 0, "result", "isError");
  if (flag === undefined || slice(message.text, flag) !== "true") return SUCCEEDED;
  return toolError("a large result has isError");
}
