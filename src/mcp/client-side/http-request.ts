/**
 * Reads and validates HTTP requests of clients, finds the session, and returns the action that the caller must run. Requests from
 * web pages of other sites (DNS rebinding and cross-site requests) are rejected. The
 * rest of an oversized body is discarded up to a second limit, because many clients do not read the response while they
 * are sending.
 */
import { isUtf8 } from "node:buffer";
import { ExpectedError } from "../../base/errors.ts";
import { readForm } from "../../base/form.ts";
import { MemoryExhausted } from "../../base/memory-budget.ts";
import { type PeerInput, peerInput } from "../../base/peer-inputs.ts";
import { escapeControls } from "../../base/safe-text.ts";
import { nextTurn, SLICED_BYTES } from "../../base/sliced-work.ts";
import { GatewayError } from "../../core/errors.ts";
import type { Exchange, GatewayRequest } from "../../core/exchange.ts";
import type { StreamedBody } from "../../core/read-body.ts";
import type { Reply } from "../../core/reply.ts";
import { isLoopbackPeer } from "../../core/source.ts";
import { type BodyStream, followBody, readAll } from "../../http/body.ts";
import { HeaderList } from "../../http/headers.ts";
import {
  authorityOfOrigin,
  type CanonicalHost,
  canonicalPattern,
  hostOf,
  isLoopbackHost,
  isOwnOrigin,
  matchesHost,
} from "../../http/host.ts";
import { member, slice } from "../../json/json-text.ts";
import { readJson } from "../../json/read-json.ts";
import type { ServerError } from "../protocol/call.ts";
import {
  type ClientMessage,
  type ClientNotification,
  type ClientRequest,
  type ClientResponse,
  errorText,
  INVALID_PARAMS,
  INVALID_REQUEST,
  JsonRpcProblem,
  PARSE_ERROR,
  parseClientMessages,
} from "../protocol/json-rpc.ts";
import { isNotificationMethod } from "../protocol/message-rules.ts";
import { MIRRORED, readMirrorHeader } from "../protocol/mirror-headers.ts";
import {
  allowsBatches,
  CLIENT_CAPABILITIES,
  CLIENT_INFO,
  HEADER_MISMATCH,
  is2025Version,
  is2026Version,
  PROTOCOL_VERSION,
  UNSUPPORTED_VERSION,
  VERSIONS_2025,
  VERSIONS_2026,
} from "../protocol/protocol-version.ts";
import { type EventPlace, parseEventId } from "../session/event-stream.ts";
import type { Session } from "../session/session.ts";
import { withTraceContext } from "./trace-context.ts";

/** Host names have no port. `*.example.com` matches all subdomains. */
interface TrustedHosts {
  has(host: CanonicalHost): boolean;
}

const QUOTED_CHARS = 100;

export const ANY_HOST: TrustedHosts = { has: () => true };

export function trustedHosts(names: readonly string[]): TrustedHosts {
  const patterns = names.map(canonicalPattern);
  return { has: (host) => patterns.some((pattern) => matchesHost(pattern, host)) };
}

/** Throws `origin_denied` if the host or the origin is not allowed. */
export function guardOrigin(exchange: Exchange, trusted: TrustedHosts): void {
  const { request, source } = exchange;
  // A page that uses DNS rebinding can add forwarding headers, so forwarded requests are checked too.
  if (isLoopbackPeer(source) && !isAllowedHost(request.host, trusted)) {
    const host = hostOf(request.host);
    throw new GatewayError("origin_denied", {
      message: `the host "${escapeControls(host).slice(0, QUOTED_CHARS)}" is not allowed over a loopback address: add it to the MCP backend's "allowedHosts" or in the route's "hostnames"`,
    });
  }
  const origin = request.headers.get("origin");
  if (origin === undefined || exchange.originAllowed === true || isAllowedOrigin(origin, request.host)) return;
  throw new GatewayError("origin_denied", {
    message: `the origin "${escapeControls(origin).slice(0, QUOTED_CHARS)}" is not allowed: add it to the route's "cors.allowOrigins"`,
  });
}

function isAllowedHost(authority: string, trusted: TrustedHosts): boolean {
  const host = hostOf(authority);
  return isLoopbackHost(host) || trusted.has(host);
}

function isAllowedOrigin(origin: string, authority: string): boolean {
  const named = authorityOfOrigin(origin);
  return named !== undefined && (isLoopbackHost(named.name) || isOwnOrigin(origin, authority));
}

export const QUERY = peerInput("client/query");
const ID = peerInput("client/mcp-part");

const MAX_BATCH = 100;
const MAX_CLIENT_NAME_CHARS = 256;
/** One UTF-16 code unit takes at most this many bytes in UTF-8. */
const BYTES_PER_CHAR = 3;
/** The official SDKs use this code for errors without a JSON-RPC code. */
const REJECTED = -32000;
export const SESSION_NOT_FOUND = -32001;

export type ClientAction =
  | { readonly kind: "initialize"; readonly request: ClientRequest }
  | {
      readonly kind: "requests";
      readonly session: Session;
      readonly requests: readonly ClientRequest[];
      readonly notes: readonly Note[];
    }
  | { readonly kind: "notes"; readonly session: Session; readonly notes: readonly Note[] }
  | {
      readonly kind: "listen";
      readonly session: Session;
      readonly after: EventPlace | undefined;
    }
  | { readonly kind: "delete"; readonly session: Session }
  /** The client ended a session that this process does not have. */
  | { readonly kind: "endedElsewhere" }
  /** Only the HTTP+SSE transport uses the next two actions. */
  | { readonly kind: "openStream" }
  | { readonly kind: "streamMessage"; readonly session: Session; readonly message: ClientMessage }
  | { readonly kind: "2026"; readonly request: ClientRequest }
  /** The client sent a 2025 request without a session (`statefulMode: stateless`). */
  | { readonly kind: "stateless"; readonly request: ClientRequest }
  | { readonly kind: "ignored" };

type Note = ClientNotification | ClientResponse;

export class RequestRejection extends ExpectedError {
  readonly reply: Reply;
  readonly failure: ServerError | undefined;

  constructor(
    status: number,
    code: number,
    message: string,
    options: { id?: string | undefined; data?: unknown; headers?: readonly string[]; failure?: ServerError } = {},
  ) {
    super(message);
    this.name = "RequestRejection";
    this.failure = options.failure;
    const body = Buffer.from(errorText(options.id, code, message, options.data));
    this.reply = {
      status,
      headers: new HeaderList(["content-type", "application/json", ...(options.headers ?? [])]),
      body,
    };
  }
}

interface SessionFinder {
  find(id: string): Session | undefined;
}

function checkPostHead(request: GatewayRequest): void {
  const accept = request.headers.get("accept") ?? "";
  if (!accept.includes("*/*") && !(accept.includes("application/json") && accept.includes("text/event-stream"))) {
    throw new RequestRejection(
      406,
      REJECTED,
      "Not Acceptable: the client must accept both application/json and text/event-stream",
    );
  }
  checkContentType(request);
}

function checkContentType(request: GatewayRequest): void {
  const type = request.headers.get("content-type") ?? "";
  if (!/^application\/json\s*(?:;|$)/i.test(type)) {
    throw new RequestRejection(415, REJECTED, "Unsupported Media Type: the content type must be application/json");
  }
  const encoding = request.headers.get("content-encoding");
  if (encoding !== undefined && encoding !== "identity") {
    throw new RequestRejection(415, REJECTED, "Unsupported Media Type: the body must not be encoded");
  }
}

export type ClientMessages = ClientMessage | readonly ClientMessage[];

/** Reads the messages of a POST. Throws `RequestRejection`, or rejects with it, if the request cannot be accepted. */
export function readMessages(exchange: Exchange, input: PeerInput): ClientMessages | Promise<ClientMessages> {
  if (isOldTransport(exchange.request)) checkContentType(exchange.request);
  else checkPostHead(exchange.request);
  const body = readBody(exchange, input);
  if (typeof body === "string") return parseBody(exchange, body);
  return body.then((text) => {
    // Decoding the bytes of a large message has already used time in this event-loop iteration.
    return text.length > SLICED_BYTES ? nextTurn().then(() => parseBody(exchange, text)) : parseBody(exchange, text);
  });
}

function parseBody(exchange: Exchange, text: string): ClientMessages {
  const { audit, spans } = exchange.records;
  try {
    const parsed = withTraceContext(parseClientMessages(text), spans);
    if (audit !== undefined)
      for (const message of isBatch(parsed) ? parsed : [parsed])
        if (message.kind === "request") audit.asked(message.id, message.method, message.params);
    return parsed;
  } catch (error) {
    if (error instanceof JsonRpcProblem) throw new RequestRejection(400, error.code, error.message, { id: error.id });
    throw error;
  }
}

const RETRY_SECONDS = "5";
const MAX_DISCARDED_BYTES = 16 * 1024 * 1024;
/** The gateway searches this many bytes at the start and at the end of an oversized message for its id. */
const MAX_ID_WINDOW_BYTES = 4 * 1024;

/** Throws `RequestRejection`, or rejects with it, if the body cannot be accepted. */
export function readBody(exchange: Exchange, input: PeerInput): string | Promise<string> {
  const { body } = exchange.request;
  const { maxBytes } = input;
  if (body.kind === "none") return "";
  if (body.kind === "bytes") return asText(body.bytes, maxBytes);
  if (body.length !== undefined && body.length > maxBytes + MAX_DISCARDED_BYTES) throw tooLarge(maxBytes, undefined);
  return readUpTo(exchange, body, input).then((bytes) => {
    exchange.request.body = { kind: "bytes", bytes };
    return asText(bytes, maxBytes);
  });
}

function asText(bytes: Buffer, maxBytes: number): string {
  if (bytes.length > maxBytes) throw tooLarge(maxBytes, idIn(window(bytes, "start"), window(bytes, "end")));
  if (!isUtf8(bytes)) throw new RequestRejection(400, PARSE_ERROR, "Parse error: the body is not valid UTF-8");
  return bytes.toString("utf8");
}

async function readUpTo(exchange: Exchange, body: StreamedBody, input: PeerInput): Promise<Buffer> {
  const { stream, length } = body;
  const { maxBytes } = input;
  body.taken = true;
  try {
    return await readAll(stream, input, length === undefined || length > maxBytes ? undefined : length, {
      memory: exchange.bodyReservation(),
      tooLarge: (kept, chunk) => discardRest(stream, maxBytes, kept, chunk),
    });
  } catch (error) {
    if (!(error instanceof MemoryExhausted)) throw error;
    throw new RequestRejection(503, REJECTED, "Server error: there is no memory for the message; try again later", {
      headers: ["retry-after", RETRY_SECONDS],
    });
  }
}

function discardRest(stream: BodyStream, maxBytes: number, kept: Buffer, chunk: Buffer): Promise<never> {
  const first = Buffer.from(window(Buffer.concat([kept.subarray(0, MAX_ID_WINDOW_BYTES), chunk]), "start"));
  let last = Buffer.from(window(chunk, "end"));
  let bytes = kept.length + chunk.length;
  return new Promise((_resolve, reject) => {
    const stop = followBody(stream, {
      data(next) {
        bytes += next.length;
        last = Buffer.from(window(Buffer.concat([last, next]), "end"));
        if (bytes <= maxBytes + MAX_DISCARDED_BYTES) return;
        stop();
        stream.pause();
        reject(tooLarge(maxBytes, idIn(first, Buffer.alloc(0))));
      },
      end: () => reject(tooLarge(maxBytes, idIn(first, last))),
      failed: reject,
    });
  });
}

function tooLarge(maxBytes: number, id: string | undefined): RequestRejection {
  return new RequestRejection(413, INVALID_REQUEST, `Invalid Request: the message is larger than ${maxBytes} bytes`, {
    id,
  });
}

function window(bytes: Buffer, side: "start" | "end"): Buffer {
  return side === "start" ? bytes.subarray(0, MAX_ID_WINDOW_BYTES) : bytes.subarray(-MAX_ID_WINDOW_BYTES);
}

/** Matches the id at the end of the message, where it cannot be inside a string or a nested object. */
const LAST_MEMBER = /[,{]\s*"id"\s*:\s*("(?:[^"\\]|\\.)*"|-?\d{1,20})\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$/;

function idIn(first: Buffer, last: Buffer): string | undefined {
  const text = first.toString("utf8");
  const found = member(text, 0, "id");
  const id = found && found.end < text.length ? slice(text, found) : LAST_MEMBER.exec(last.toString("utf8"))?.[1];
  return id !== undefined && isId(id) ? id : undefined;
}

function isId(text: string): boolean {
  try {
    const value = readJson(ID, text);
    return typeof value === "string" || typeof value === "number";
  } catch {
    return false;
  }
}

/** Rejects messages without an id that are not notifications, because authorization could not check them. */
export function checkNotifications(parsed: ClientMessages): void {
  for (const message of isBatch(parsed) ? parsed : [parsed])
    if (message.kind === "notification" && !isNotificationMethod(message.method))
      throw new RequestRejection(
        400,
        INVALID_REQUEST,
        `Invalid Request: ${message.method.slice(0, 100)} is not a notification`,
      );
}

export function post2025(request: GatewayRequest, parsed: ClientMessages, sessions: SessionFinder): ClientAction {
  if (isBatch(parsed)) return batch2025(request, parsed, sessions);
  const id = parsed.kind === "request" ? parsed.id : undefined;
  checkVersionHeader(request, id);
  if (parsed.kind === "request" && parsed.method === "initialize") {
    if (!request.headers.has("mcp-session-id")) return { kind: "initialize", request: parsed };
    requireSession(request, sessions, id);
    throw new RequestRejection(400, INVALID_REQUEST, "Invalid Request: this session is already initialized", { id });
  }
  const session = requireSession(request, sessions, id);
  return parsed.kind === "request"
    ? { kind: "requests", session, requests: [parsed], notes: [] }
    : { kind: "notes", session, notes: [parsed] };
}

function batch2025(request: GatewayRequest, messages: readonly ClientMessage[], sessions: SessionFinder): ClientAction {
  checkVersionHeader(request, undefined);
  const session = requireSession(request, sessions, undefined);
  checkBatch(messages, session);
  const requests = messages.filter((message) => message.kind === "request");
  const notes = messages.filter((message) => message.kind !== "request");
  return requests.length === 0 ? { kind: "notes", session, notes } : { kind: "requests", session, requests, notes };
}

/**
 * Limits the client data that a session or a server connection retains. Throws `RequestRejection` if the data exceeds a
 * limit.
 */
export function checkRetained(action: ClientAction, maxBytes: number): ClientAction {
  if (action.kind === "initialize") checkInitialize(action.request, maxBytes);
  else if (action.kind === "streamMessage" && action.message.kind === "request") {
    if (action.message.method === "initialize") checkInitialize(action.message, maxBytes);
  } else if (action.kind === "2026" || action.kind === "stateless") checkClientMeta(action.request, maxBytes);
  return action;
}

function checkInitialize(request: ClientRequest, maxBytes: number): void {
  const { text, params } = request;
  const isLarge = text.length * BYTES_PER_CHAR > maxBytes && Buffer.byteLength(text) > maxBytes;
  if (isLarge) refuseRetained(request, `the initialize request is larger than ${maxBytes} bytes (maxInitializeBytes)`);
  checkClientInfo(request, params.clientInfo);
}

function checkClientMeta(request: ClientRequest, maxBytes: number): void {
  const meta = request.params._meta;
  if (typeof meta !== "object" || meta === null) return;
  const { [CLIENT_INFO]: info, [CLIENT_CAPABILITIES]: capabilities } = meta as Readonly<Record<string, unknown>>;
  // Most requests are smaller than the limit, so the detailed check is skipped for them.
  if (request.text.length * BYTES_PER_CHAR > maxBytes) {
    const retained = `${JSON.stringify(info) ?? ""}${JSON.stringify(capabilities) ?? ""}`;
    if (Buffer.byteLength(retained) > maxBytes)
      refuseRetained(
        request,
        `clientInfo and clientCapabilities are larger than ${maxBytes} bytes (maxInitializeBytes)`,
      );
  }
  checkClientInfo(request, info);
}

function checkClientInfo(request: ClientRequest, info: unknown): void {
  if (typeof info !== "object" || info === null) return;
  const { name, title, version } = info as Readonly<Record<string, unknown>>;
  for (const [member, value] of Object.entries({ name, title, version }))
    if (typeof value === "string" && value.length > MAX_CLIENT_NAME_CHARS)
      refuseRetained(request, `clientInfo.${member} has more than ${MAX_CLIENT_NAME_CHARS} characters`);
}

function refuseRetained({ id }: ClientRequest, problem: string): never {
  throw new RequestRejection(400, INVALID_PARAMS, `Invalid params: ${problem}`, { id });
}

export function isBatch(parsed: ClientMessages): parsed is readonly ClientMessage[] {
  return Array.isArray(parsed);
}

export function other2025(request: GatewayRequest, sessions: SessionFinder): ClientAction {
  if (request.method !== "GET" && request.method !== "DELETE") {
    throw new RequestRejection(405, REJECTED, "Method not allowed", { headers: ["allow", "GET, POST, DELETE"] });
  }
  if (request.method === "GET") {
    const accept = request.headers.get("accept") ?? "";
    if (!accept.includes("text/event-stream") && !accept.includes("*/*")) {
      throw new RequestRejection(406, REJECTED, "Not Acceptable: the client must accept text/event-stream");
    }
  }
  checkVersionHeader(request, undefined);
  const session = requireSession(request, sessions, undefined);
  if (request.method === "DELETE") return { kind: "delete", session };
  const lastEventId = request.headers.get("last-event-id");
  return { kind: "listen", session, after: lastEventId === undefined ? undefined : parseEventId(lastEventId) };
}

function checkVersionHeader(request: GatewayRequest, id: string | undefined): void {
  const version = request.headers.get("mcp-protocol-version");
  if (version === undefined || is2025Version(version) || is2026Version(version)) return;
  throw new RequestRejection(
    400,
    UNSUPPORTED_VERSION,
    `Bad Request: unsupported protocol version: ${version.slice(0, 40)}`,
    {
      id,
      data: { supported: VERSIONS_2025, requested: version.slice(0, 40) },
    },
  );
}

function requireSession(request: GatewayRequest, sessions: SessionFinder, id: string | undefined): Session {
  const sessionId = request.headers.get("mcp-session-id");
  if (sessionId === undefined) {
    throw new RequestRejection(
      400,
      REJECTED,
      "Bad Request: the mcp-session-id header is required; initialize a session first",
      {
        id,
      },
    );
  }
  const session = sessions.find(sessionId);
  // Unknown sessions, ended sessions, and sessions of other owners get the same error, so that clients cannot find out
  // which ids exist.
  if (session === undefined) throw new RequestRejection(404, SESSION_NOT_FOUND, "Session not found", { id });
  return session;
}

function checkBatch(messages: readonly ClientMessage[], session: Session): void {
  if (messages.length === 0) throw new RequestRejection(400, INVALID_REQUEST, "Invalid Request: the batch is empty");
  if (messages.length > MAX_BATCH)
    throw new RequestRejection(400, INVALID_REQUEST, `Invalid Request: a batch has at most ${MAX_BATCH} messages`);
  if (!allowsBatches(session.version)) {
    throw new RequestRejection(
      400,
      INVALID_REQUEST,
      `Invalid Request: protocol version ${session.version} has no batches`,
    );
  }
  if (messages.some((message) => message.kind === "request" && message.method === "initialize")) {
    throw new RequestRejection(400, INVALID_REQUEST, "Invalid Request: initialize must not be part of a batch");
  }
}

export function statelessPost(parsed: ClientMessages): ClientAction {
  if (isBatch(parsed))
    throw new RequestRejection(400, INVALID_REQUEST, "Invalid Request: there are no batches without a session");
  return parsed.kind === "request" ? { kind: "stateless", request: parsed } : { kind: "ignored" };
}

/** Clients interpret status 405 as "not supported". */
export function statelessOther({ method }: GatewayRequest): never {
  throw new RequestRejection(405, REJECTED, `Method not allowed: ${method} needs a session, and there are none here`, {
    headers: ["allow", "POST"],
  });
}

/** A message follows 2026-07-28 if the version header contains a 2026-07-28 version or its `_meta` contains any version. */
export function is2026(request: GatewayRequest, message: ClientMessages): boolean {
  if (is2026Version(request.headers.get("mcp-protocol-version") ?? "")) return true;
  return isBatch(message) ? message.some(claims) : claims(message);
}

/**
 * Returns undefined for a notification, which is accepted and dropped. Throws `RequestRejection` if the message is
 * invalid.
 */
export function post2026(request: GatewayRequest, message: ClientMessages): ClientRequest | undefined {
  if (isBatch(message))
    throw new RequestRejection(400, INVALID_REQUEST, "Invalid Request: this protocol version has no batches");
  if (message.kind === "response")
    throw new RequestRejection(
      400,
      INVALID_REQUEST,
      "Invalid Request: this protocol version has no responses of clients",
      {
        id: message.id,
      },
    );
  if (message.kind === "notification") return undefined;
  checkEnvelope(message);
  checkVersion(request, message);
  checkMirrors(request, message);
  return message;
}

function claims(message: ClientMessage): boolean {
  return message.kind !== "response" && readMeta(message)?.[PROTOCOL_VERSION] !== undefined;
}

function checkEnvelope(request: ClientRequest): void {
  const meta = readMeta(request);
  const capabilities = meta?.[CLIENT_CAPABILITIES];
  const missing = [
    ...(typeof meta?.[PROTOCOL_VERSION] === "string" ? [] : [PROTOCOL_VERSION]),
    ...(typeof capabilities === "object" && capabilities !== null && !Array.isArray(capabilities)
      ? []
      : [CLIENT_CAPABILITIES]),
  ];
  if (missing.length > 0) {
    throw new RequestRejection(400, INVALID_PARAMS, `Invalid params: _meta lacks ${missing.join(" and ")}`, {
      id: request.id,
      data: { missing },
    });
  }
}

function checkVersion(request: GatewayRequest, message: ClientRequest): void {
  const claimed = String(readMeta(message)?.[PROTOCOL_VERSION]);
  const header = request.headers.get("mcp-protocol-version");
  if (header !== claimed) mismatch(message, "MCP-Protocol-Version", header, claimed);
  if (is2026Version(claimed)) return;
  throw new RequestRejection(400, UNSUPPORTED_VERSION, "Unsupported protocol version", {
    id: message.id,
    data: { supported: VERSIONS_2026, requested: claimed.slice(0, 40) },
  });
}

function checkMirrors(request: GatewayRequest, message: ClientRequest): void {
  const method = request.headers.get("mcp-method");
  if (method !== message.method) mismatch(message, "Mcp-Method", method, message.method);
  const member = MIRRORED.get(message.method);
  if (member === undefined) return;
  const value = String(message.params[member]);
  const header = request.headers.get("mcp-name");
  if (header === undefined || readMirrorHeader(header) !== value) mismatch(message, "Mcp-Name", header, value);
}

function mismatch(message: ClientRequest, name: string, header: string | undefined, body: string): never {
  const said = header === undefined ? "is missing" : `is '${header.slice(0, 100)}'`;
  throw new RequestRejection(
    400,
    HEADER_MISMATCH,
    `Header mismatch: ${name} ${said}, the body says '${body.slice(0, 100)}'`,
    {
      id: message.id,
    },
  );
}

function readMeta(message: {
  readonly params: Readonly<Record<string, unknown>>;
}): Record<string, unknown> | undefined {
  const meta = message.params._meta;
  return typeof meta === "object" && meta !== null && !Array.isArray(meta)
    ? (meta as Record<string, unknown>)
    : undefined;
}

export const SESSION_PARAMETER = "sessionId";

/**
 * Tells whether the request uses the deprecated HTTP+SSE transport. On a path that ends with `/sse`, a POST without the
 * parameter `sessionId` and a GET with `mcp-session-id` use streamable HTTP instead.
 */
export function isOldTransport(request: GatewayRequest): boolean {
  if (!request.path.endsWith("/sse")) return false;
  if (request.method === "POST") return readForm(QUERY, request.query).has(SESSION_PARAMETER);
  return request.method === "GET" && !request.headers.has("mcp-session-id");
}
