/**
 * Parses and builds JSON-RPC 2.0 messages. A message keeps its original JSON and the position of its id, so that ids
 * are returned exactly as the sender wrote them.
 */
import { ExpectedError } from "../../base/errors.ts";
import { InputError, type PeerInput, peerInput } from "../../base/peer-inputs.ts";
import { escapeControls } from "../../base/safe-text.ts";
import { SLICED_BYTES } from "../../base/sliced-work.ts";
import { elements, type Member, members, splice } from "../../json/json-text.ts";
import { type InspectedJson, readInspected, readJson } from "../../json/read-json.ts";
import { type Edit, keyAt, skipSpace } from "../../json/syntax.ts";
import { envelopeProblem, paramsProblem } from "./message-rules.ts";

const CLIENT_MESSAGE = peerInput("client/mcp-message");
const OWN_MESSAGE = peerInput("gateway/mcp-message");

const OPEN_ARRAY = 91;

/** Limits the id because it is copied to events, logs, and maps. */
const MAX_ID_CHARS = 1024;

export const PARSE_ERROR = -32700;
export const INVALID_REQUEST = -32600;
export const METHOD_NOT_FOUND = -32601;
export const INVALID_PARAMS = -32602;
export const INTERNAL_ERROR = -32603;

/** Parsed parameters are only read. The gateway forwards the JSON of the message. */
export type Params = Readonly<Record<string, unknown>>;

interface Common {
  readonly text: string;
  /** Both positions are 0 if the message has no id. */
  readonly idStart: number;
  readonly idEnd: number;
}

export interface ClientRequest extends Common {
  readonly kind: "request";
  readonly id: string;
  readonly method: string;
  readonly params: Params;
}

export interface ClientNotification extends Common {
  readonly kind: "notification";
  readonly method: string;
  readonly params: Params;
}

export interface ClientResponse extends Common {
  readonly kind: "response";
  readonly id: string;
}

export type ClientMessage = ClientRequest | ClientNotification | ClientResponse;

/** Maps the names of a result's members to their values as JSON in pieces. */
export type ResultMembers = ReadonlyMap<string, readonly string[]>;

export interface ServerMessage extends Common {
  readonly kind: "result" | "error" | "request" | "notification";
  readonly method: string | undefined;
  /**
   * Set if the gateway made a large result. The first use of `text` joins all pieces, which blocks the event loop, so
   * code that handles results of any size reads the members.
   */
  readonly members?: ResultMembers;
}

export class JsonRpcProblem extends ExpectedError {
  readonly code: number;
  readonly id: string | undefined;

  constructor(code: number, message: string, id?: string) {
    super(message);
    this.name = "JsonRpcProblem";
    this.code = code;
    this.id = id;
  }
}

const NO_PARAMS: Params = Object.freeze({});

/** Parses one message or a batch. Throws `JsonRpcProblem` if the text is invalid. */
export function parseClientMessages(text: string, input = CLIENT_MESSAGE): ClientMessage | readonly ClientMessage[] {
  const start = skipSpace(text, text.charCodeAt(0) === 0xfeff ? 1 : 0);
  if (text.charCodeAt(start) !== OPEN_ARRAY) return parseClientMessage(text, input);
  readMessage(input, text);
  return elements(text, start).map((span) => parseClientMessage(text.slice(span.start, span.end), input));
}

export function parseClientMessage(text: string, input = CLIENT_MESSAGE): ClientMessage {
  const { top, value } = readMessage(input, text);
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new JsonRpcProblem(INVALID_REQUEST, "Invalid Request: expected a JSON-RPC 2.0 message");
  }
  const message = value as Record<string, unknown>;
  const idMember = top.find((one) => one.key === "id");
  const id = idMember && idText(text, idMember, message.id);
  if (message.jsonrpc !== "2.0")
    throw new JsonRpcProblem(INVALID_REQUEST, 'Invalid Request: "jsonrpc" must be "2.0"', id);
  const idStart = idMember?.start ?? 0;
  const idEnd = idMember?.end ?? 0;
  const { method } = message;
  const envelope = envelopeProblem(Object.keys(message), method, id !== undefined);
  if (envelope !== undefined) throw new JsonRpcProblem(INVALID_REQUEST, `Invalid Request: ${envelope}`, id);
  if (typeof method === "string") {
    const params = parseParams(message.params, id);
    const problem = paramsProblem(method, params);
    if (problem !== undefined) throw new JsonRpcProblem(INVALID_PARAMS, `Invalid params: ${problem}`, id);
    if (id === undefined) return { kind: "notification", text, idStart, idEnd, method, params };
    return { kind: "request", text, idStart, idEnd, id, method, params };
  }
  if (id !== undefined && message.method === undefined && ("result" in message || "error" in message)) {
    return { kind: "response", text, idStart, idEnd, id };
  }
  throw new JsonRpcProblem(INVALID_REQUEST, "Invalid Request: neither a request, a notification nor a response", id);
}

/** The message must have an id. */
export function withId(message: Common, id: string): string {
  return message.text.slice(0, message.idStart) + id + message.text.slice(message.idEnd);
}

/** Applies edits that do not overlap the id, and updates the position of the id. */
export function edited(message: ServerMessage, edits: readonly Edit[]): ServerMessage {
  const { kind, method, idEnd } = message;
  const text = splice(message.text, edits);
  let shift = 0;
  if (idEnd > 0)
    for (const edit of edits) if (edit.end <= message.idStart) shift += edit.text.length - (edit.end - edit.start);
  return { kind, method, text, idStart: message.idStart + shift, idEnd: idEnd + shift };
}

export function messageId(message: ServerMessage): string | undefined {
  return message.idEnd === 0 ? undefined : message.text.slice(message.idStart, message.idEnd);
}

/** Returns the id as a number, or 0 if it is not a sequence of at most 15 digits. */
export function parseWireId(message: Common): number {
  const { text, idStart, idEnd } = message;
  if (idEnd - idStart > 15) return 0;
  let id = 0;
  for (let i = idStart; i < idEnd; i++) {
    const digit = text.charCodeAt(i) - 48;
    if (digit < 0 || digit > 9) return 0;
    id = id * 10 + digit;
  }
  return id;
}

export function requestText(id: string, method: string, params: string): string {
  return `{"jsonrpc":"2.0","id":${id},"method":${JSON.stringify(method)},"params":${params}}`;
}

export function notificationText(method: string, params: string): string {
  return `{"jsonrpc":"2.0","method":${JSON.stringify(method)},"params":${params}}`;
}

export function resultText(id: string, result: string): string {
  return `{"jsonrpc":"2.0","id":${id},"result":${result}}`;
}

const RESULT_ID_START = resultText("0", "").indexOf(":0,") + 1;

/** `id` is JSON. A missing id becomes null (JSON-RPC 2.0 section 5). */
export function errorText(id: string | undefined, code: number, message: string, data?: unknown): string {
  const error = data === undefined ? { code, message } : { code, message, data };
  return `{"jsonrpc":"2.0","id":${id ?? "null"},"error":${escapeControls(JSON.stringify(error))}}`;
}

/** Parses a message that this gateway or another replica wrote. */
export function asServerMessage(text: string): ServerMessage {
  let id: Member | undefined;
  let method: string | undefined;
  let outcome: "result" | "error" | undefined;
  for (const one of members(text, 0)) {
    if (one.key === "id") id = one;
    else if (one.key === "method") method = keyAt(text, one.start, one.end);
    else if (one.key === "result" || one.key === "error") outcome = one.key;
  }
  const kind = method === undefined ? outcome : id === undefined ? "notification" : "request";
  if (kind === undefined) throw new Error("not a JSON-RPC message");
  return { text, idStart: id?.start ?? 0, idEnd: id?.end ?? 0, kind, method };
}

/** Wraps a result without parsing it, because it may be large. The caller must pass valid JSON. */
export function asResult(result: string): ServerMessage {
  const text = resultText("0", result);
  return { kind: "result", text, idStart: RESULT_ID_START, idEnd: RESULT_ID_START + 1, method: undefined };
}

export function asMembersResult(members: ResultMembers): ServerMessage {
  const pieces = resultPieces("0", members);
  let text = "";
  for (const piece of pieces) text += piece;
  const message = {
    kind: "result",
    text,
    idStart: RESULT_ID_START,
    idEnd: RESULT_ID_START + 1,
    method: undefined,
  } as const;
  return text.length > SLICED_BYTES ? { ...message, members } : message;
}

/** Returns the JSON of a response in pieces. */
export function resultPieces(id: string, members: ResultMembers): readonly string[] {
  const pieces: string[] = [];
  for (const [name, value] of members) {
    pieces.push(pieces.length === 0 ? "{" : ",", `${JSON.stringify(name)}:`);
    for (const piece of value) pieces.push(piece);
  }
  const [before, after] = [`{"jsonrpc":"2.0","id":${id},"result":`, "}"];
  return members.size === 0 ? [before, "{}", after] : [before, ...pieces, "}", after];
}

export function asClientRequest(method: string, params: string): ClientRequest {
  const text = requestText("0", method, params);
  const idStart = text.indexOf(":0,") + 1;
  return {
    kind: "request",
    text,
    idStart,
    idEnd: idStart + 1,
    id: "0",
    method,
    params: readJson(OWN_MESSAGE, params) as Params,
  };
}

export function asClientNotification(method: string): ClientNotification {
  return {
    kind: "notification",
    text: notificationText(method, "{}"),
    idStart: 0,
    idEnd: 0,
    method,
    params: NO_PARAMS,
  };
}

function readMessage(input: PeerInput<"JSON">, text: string): InspectedJson {
  try {
    return readInspected(input, text);
  } catch (error) {
    if (!(error instanceof InputError)) throw error;
    const problem = error.cause === undefined ? error.message : "the body is not valid JSON";
    throw new JsonRpcProblem(PARSE_ERROR, `Parse error: ${problem}`);
  }
}

function idText(text: string, span: Member, value: unknown): string {
  if (typeof value !== "string" && typeof value !== "number") {
    throw new JsonRpcProblem(INVALID_REQUEST, 'Invalid Request: "id" must be a string or a number');
  }
  if (span.end - span.start > MAX_ID_CHARS)
    throw new JsonRpcProblem(INVALID_REQUEST, 'Invalid Request: "id" is too long');
  return text.slice(span.start, span.end);
}

function parseParams(value: unknown, id: string | undefined): Params {
  if (value === undefined) return NO_PARAMS;
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return value as Params;
  throw new JsonRpcProblem(INVALID_REQUEST, 'Invalid Request: "params" must be an object', id);
}

/** Applies edits to a request. Callers pass the new parsed parameters if the edits change them. */
export function editedRequest(request: ClientRequest, edits: readonly Edit[], params = request.params): ClientRequest {
  let shift = 0;
  for (const edit of edits) if (edit.end <= request.idStart) shift += edit.text.length - (edit.end - edit.start);
  return {
    ...request,
    text: splice(request.text, edits),
    idStart: request.idStart + shift,
    idEnd: request.idEnd + shift,
    params,
  };
}
