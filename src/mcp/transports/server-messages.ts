/**
 * Parses the output of a server into messages. A rejected message contains the reason and, if readable, the id of its
 * call.
 */

import { type PeerInput, peerInput } from "../../base/peer-inputs.ts";
import { finish, type Steps } from "../../base/sliced-work.ts";
import { elements, type Member, members, slice } from "../../json/json-text.ts";
import { readJson } from "../../json/read-json.ts";
import { keyAt, skipSpace } from "../../json/syntax.ts";
import { jsonProblem, jsonProblemInSteps } from "../../json/validate-json.ts";
import { errorText, INVALID_REQUEST, parseWireId, type ServerMessage } from "../protocol/json-rpc.ts";
import { serverKeyProblem } from "../protocol/message-rules.ts";
import type { ChannelHandlers, Outgoing } from "./transport.ts";

const ERROR_OBJECT = peerInput("mcp-server/error");

const QUOTE = 34;
const MINUS = 45;
const ZERO = 48;
const NINE = 57;
const OPEN_ARRAY = 91;
const OPEN_OBJECT = 123;

/** Limits the ids of a server's requests, because the gateway stores and echoes them. */
const MAX_ID_CHARS = 1024;
const MAX_BATCH_CHARS = 1024 * 1024;
const BATCH_STEP = 256;
/** Limits error objects, because parsing one blocks the event loop. */
const MAX_ERROR_CHARS = ERROR_OBJECT.maxBytes;

export interface BrokenMessage {
  readonly kind: "broken";
  /** Identifies the call that the message responds to. The value is 0 if the call is unknown. */
  readonly wireId: number;
  /** The id as JSON, if the message is a request from the server with a valid id. */
  readonly questionId: string | undefined;
  /** The reason completes the sentence "target x …". */
  readonly reason: string;
}

export type ParsedMessages = readonly (ServerMessage | BrokenMessage)[];

export function* parseServerTextInSteps(input: PeerInput<"JSON">, text: string): Steps<ParsedMessages> {
  const start = skipSpace(text, 0);
  const first = text.charCodeAt(start);
  if (first !== OPEN_OBJECT && first !== OPEN_ARRAY) return [];
  const top: Member[] = [];
  const problem = yield* jsonProblemInSteps(input, text, top);
  const reason = problem === undefined ? undefined : `answered with invalid JSON: ${problem}`;
  const isLarge = text.length > MAX_BATCH_CHARS;
  // The id may follow the invalid JSON. Only small messages are searched for it.
  if (first === OPEN_OBJECT)
    return [readOne(input, text, reason, reason === undefined || isLarge ? top : members(text, 0))];
  // Servers that use 2025-03-26 may send batches.
  if (isLarge) return [broken(input, "", NO_PARTS, `sent a batch of more than ${MAX_BATCH_CHARS} characters`)];
  const read: (ServerMessage | BrokenMessage)[] = [];
  for (const span of elements(text, start)) {
    if (reason !== undefined && text.charCodeAt(span.start) !== OPEN_OBJECT) continue;
    const one = slice(text, span);
    read.push(readOne(input, one, reason, members(one, 0)));
    if (read.length % BATCH_STEP === 0) yield;
  }
  return read;
}

/**
 * Parses a line, event, or body. Returns an empty list if the text starts with neither `{` nor `[`, such as a log line.
 */
export function parseServerText(input: PeerInput<"JSON">, text: string): ParsedMessages {
  return finish(parseServerTextInSteps(input, text));
}

/** Fails the call that the message responds to, or rejects the server's request, if either is known. */
export function reportBroken(
  broken: BrokenMessage,
  handlers: Pick<ChannelHandlers, "failed">,
  send: (message: Outgoing) => void,
): void {
  if (broken.wireId > 0) handlers.failed(broken.wireId, broken.reason);
  else if (broken.questionId !== undefined)
    send({ text: errorText(broken.questionId, INVALID_REQUEST, "Invalid Request: the message cannot be read") });
}

interface Parts {
  id: Member | undefined;
  method: Member | undefined;
  params: Member | undefined;
  result: Member | undefined;
  error: Member | undefined;
}

const NO_PARTS: Parts = { id: undefined, method: undefined, params: undefined, result: undefined, error: undefined };

function readOne(
  input: PeerInput<"JSON">,
  text: string,
  invalid: string | undefined,
  top: readonly Member[],
): ServerMessage | BrokenMessage {
  const parts: Parts = { id: undefined, method: undefined, params: undefined, result: undefined, error: undefined };
  let unclear: string | undefined;
  for (const one of top) {
    switch (one.key) {
      case "jsonrpc":
        break;
      case "id":
        parts.id = one;
        break;
      case "method":
        parts.method = one;
        break;
      case "params":
        parts.params = one;
        break;
      case "result":
        parts.result = one;
        break;
      case "error":
        parts.error = one;
        break;
      default:
        unclear ??= serverKeyProblem(one.key);
    }
  }
  const reason =
    invalid ?? (unclear ? `sent a message that can be read in two ways: ${unclear}` : formProblem(text, parts));
  if (reason !== undefined) return broken(input, text, parts, reason);
  const { id, method, result } = parts;
  const idStart = id?.start ?? 0;
  const idEnd = id?.end ?? 0;
  if (method === undefined)
    return { kind: result === undefined ? "error" : "result", text, idStart, idEnd, method: undefined };
  const name = keyAt(text, method.start, method.end);
  return { kind: id === undefined ? "notification" : "request", text, idStart, idEnd, method: name };
}

function formProblem(text: string, { id, method, params, result, error }: Parts): string | undefined {
  if (method !== undefined) {
    if (result !== undefined || error !== undefined) return "sent a message that is both a request and an answer";
    if (text.charCodeAt(method.start) !== QUOTE) return "sent a message whose method is not a string";
    if (id !== undefined && !isId(text, id)) return "sent a request whose id is neither a string nor a number";
    return params === undefined || isObject(text, params) ? undefined : "sent parameters that are not an object";
  }
  if (result !== undefined && error !== undefined) return "answered with both a result and an error";
  if (result !== undefined) return isObject(text, result) ? undefined : "answered with a result that is not an object";
  if (error === undefined) return "answered with neither a result nor an error";
  if (error.end - error.start > MAX_ERROR_CHARS)
    return `answered with an error of more than ${MAX_ERROR_CHARS} characters`;
  return isErrorObject(text, error) ? undefined : "answered with an error that has no code or no message";
}

function broken(
  input: PeerInput<"JSON">,
  text: string,
  { id, method, result, error }: Parts,
  reason: string,
): BrokenMessage {
  const isAnswer = result !== undefined || error !== undefined || method === undefined;
  const wireId = id && isAnswer ? parseWireId({ text, idStart: id.start, idEnd: id.end }) : 0;
  const isQuestion =
    id !== undefined && !isAnswer && isId(text, id) && jsonProblem(input, slice(text, id)) === undefined;
  return { kind: "broken", wireId, questionId: isQuestion ? slice(text, id) : undefined, reason };
}

function isObject(text: string, part: Member): boolean {
  return text.charCodeAt(part.start) === OPEN_OBJECT;
}

function isId(text: string, id: Member): boolean {
  const first = text.charCodeAt(id.start);
  return (first === QUOTE || first === MINUS || (first >= ZERO && first <= NINE)) && id.end - id.start <= MAX_ID_CHARS;
}

function isErrorObject(text: string, error: Member): boolean {
  if (!isObject(text, error)) return false;
  const { code, message } = readJson(ERROR_OBJECT, slice(text, error)) as { code?: unknown; message?: unknown };
  return typeof code === "number" && typeof message === "string";
}
