/**
 * Represents one running request of a client without a session. The response is JSON, or an event stream if the server
 * sends a message first or is slow.
 */

import { peerInput } from "../../base/peer-inputs.ts";
import type { BackendRun, ResponseReceiver } from "../../core/backend.ts";
import type { CelAttributes } from "../../core/cel-attributes.ts";
import type { Exchange } from "../../core/exchange.ts";
import type { McpGuardrails } from "../../core/mcp-guardrails.ts";
import type { McpAccess } from "../../core/request-attributes.ts";
import type { WireTap } from "../../core/wire.ts";
import type { HeaderList } from "../../http/headers.ts";
import { find, insertMembers, member, singleLine, slice, withMembers } from "../../json/json-text.ts";
import { readJson } from "../../json/read-json.ts";
import { GATEWAY_INFO } from "../aggregation/merge-responses.ts";
import { sendJson } from "../aggregation/router.ts";
import {
  type Call,
  type CallHandle,
  type Failure,
  failureHeaders,
  type GuardReporter,
  type Interceptor,
  intercept,
  type Question,
  type RoutedTarget,
  type ShadowReporter,
} from "../protocol/call.ts";
import {
  asClientRequest,
  asServerMessage,
  type ClientRequest,
  editedRequest,
  errorText,
  METHOD_NOT_FOUND,
  resultText,
  type ServerMessage,
  withId,
} from "../protocol/json-rpc.ts";
import {
  CLIENT_CAPABILITIES,
  HEADER_MISMATCH,
  is2025Version,
  LATEST_2025,
  LATEST_2026,
  MISSING_CAPABILITY,
  PROTOCOL_VERSION,
  SERVER_INFO,
  UNSUPPORTED_VERSION,
} from "../protocol/protocol-version.ts";
import type { ClientGroup } from "../session/client-group.ts";
import { eventStreamHeaders, type Heartbeat, KEEP_ALIVE_MS, sendPieces, totalBytes } from "../session/event-stream.ts";
import {
  CANCELLED,
  type CallOutcome,
  type CallReport,
  failureOutcome,
  isLargeAnswer,
  readyLargeAnswer,
  responseOutcome,
} from "../session/session-calls.ts";
import type { SessionStore } from "../session/session-store.ts";

const OWN_MESSAGE = peerInput("gateway/mcp-message");
const PART = peerInput("mcp-server/part");

/** Disconnects a client that does not read when more bytes than this are queued. */
const MAX_QUEUED_BYTES = 8 * 1024 * 1024;
const END_OF_EVENT = Buffer.from("\n\n");
const KEEP_ALIVE = Buffer.from(": keep-alive\n\n");

/** Maps JSON-RPC errors to HTTP statuses (2026-07-28, transports and basic). */
const HTTP_STATUS_BY_CODE: Readonly<Record<number, number>> = {
  [METHOD_NOT_FOUND]: 404,
  [HEADER_MISMATCH]: 400,
  [MISSING_CAPABILITY]: 400,
  [UNSUPPORTED_VERSION]: 400,
};

export interface SessionlessCallHost {
  readonly report: CallReport;
  readonly access: McpAccess | undefined;
  readonly guardrails: McpGuardrails | undefined;
  /** 2025 clients receive errors with status 200 instead of 400 or 404. */
  readonly hidesStatus?: boolean;
  nowMs(): number;
  ended(call: SessionlessCall): void;
}

export class SessionlessCall implements Call, BackendRun, Heartbeat {
  next: Heartbeat | undefined = undefined;
  previous: Heartbeat | undefined = undefined;
  readonly request: ClientRequest;
  readonly headers: HeaderList;
  readonly wire: WireTap;
  running: CallHandle | undefined = undefined;
  readonly #sink: ResponseReceiver;
  readonly #env: SessionlessCallHost;
  #hasHead = false;
  #isOver = false;
  #queue: (readonly Buffer[])[] | undefined = undefined;
  #queuedBytes = 0;
  #lastWriteMs: number;
  #target: RoutedTarget | undefined = undefined;

  constructor(request: ClientRequest, headers: HeaderList, sink: ResponseReceiver, env: SessionlessCallHost) {
    this.request = request;
    this.headers = headers;
    this.wire = sink;
    this.#sink = sink;
    this.#env = env;
    this.#lastWriteMs = env.nowMs();
  }

  get access(): McpAccess | undefined {
    return this.#env.access;
  }

  get guardrails(): McpGuardrails | undefined {
    return this.#env.guardrails;
  }

  get caller(): CelAttributes {
    return this.#env.report.caller;
  }

  get watched(): ShadowReporter {
    return this.#env.report.watched;
  }

  get guarded(): GuardReporter {
    return this.#env.report.guarded;
  }

  routed(target: RoutedTarget): void {
    this.#target = target;
  }

  notified(message: ServerMessage): void {
    if (!this.#isOver) this.#event(message.text);
  }

  asked(question: Question): void {
    // 2026-07-28 servers send no requests, and the bridge responds to requests from 2025 servers.
    question.answer('"error":{"code":-32601,"message":"The client cannot be asked"}');
  }

  answered(message: ServerMessage): void {
    if (this.#isOver) return;
    const status = message.kind === "error" ? errorStatus(message) : 200;
    if (!isLargeAnswer(message)) {
      this.#report(responseOutcome(this.request, this.#target, message), message.text);
      this.#end(withId(message, this.request.id), status);
      return;
    }
    readyLargeAnswer(message, {
      request: this.request,
      target: this.#target,
      isOver: () => this.#isOver,
      ready: ({ outcome, bytes }) => {
        this.#report(outcome, message.text);
        this.#end(bytes, status);
      },
      failed: (failure) => this.failed(failure),
    });
  }

  failed(failure: Failure): void {
    if (this.#isOver) return;
    this.#report(failureOutcome(failure));
    const text = errorText(this.request.id, failure.code, failure.message, failure.data);
    this.#end(text, failure.status, failureHeaders(failure));
  }

  abort(): void {
    if (this.#isOver) return;
    this.#report(CANCELLED);
    this.#over();
    this.running?.cancel("the client closed the connection");
  }

  /** Ends the call if it is a subscription whose head was sent. Other calls continue. */
  drain(): void {
    if (this.#isOver || this.request.method !== "subscriptions/listen" || !this.#hasHead) return;
    this.#over();
    this.running?.cancel("the gateway stops");
    this.#sink.end();
  }

  resume(): void {
    const queue = this.#queue;
    if (queue === undefined) return;
    this.#queue = undefined;
    this.#queuedBytes = 0;
    for (const pieces of queue) this.#write(pieces);
    if (this.#isOver && this.#queue === undefined) this.#sink.end();
  }

  beat(nowMs: number): void {
    if (!this.#isOver && nowMs - this.#lastWriteMs >= KEEP_ALIVE_MS) this.#write([KEEP_ALIVE]);
  }

  #event(json: string | readonly Buffer[]): void {
    const head = "event: message\ndata: ";
    if (typeof json === "string") this.#write([Buffer.from(`${head}${singleLine(json)}\n\n`)]);
    else this.#write([Buffer.from(head), ...json, END_OF_EVENT]);
  }

  #write(pieces: readonly Buffer[]): void {
    if (!this.#hasHead) {
      this.#hasHead = true;
      this.#sink.head(200, eventStreamHeaders(undefined));
    }
    this.#lastWriteMs = this.#env.nowMs();
    if (this.#queue === undefined) {
      if (!sendPieces(this.#sink, pieces)) this.#queue = [];
      return;
    }
    const bytes = totalBytes(pieces);
    this.#queue.push(pieces);
    this.#queuedBytes += bytes;
    // The limit is checked without this message, because a single message may exceed it.
    if (this.#queuedBytes - bytes <= MAX_QUEUED_BYTES || this.#isOver) return;
    this.#report(CANCELLED);
    this.#over();
    this.running?.cancel("the client reads too slowly");
    this.#sink.fail(new Error("the client reads too slowly"));
  }

  #report(outcome: CallOutcome, answer?: string): void {
    this.#env.report.ended(this.request, this.#target, outcome, answer);
  }

  #end(text: string | readonly Buffer[], status: number, headers: readonly string[] = []): void {
    this.#over();
    if (!this.#hasHead) {
      const shown = this.#env.hidesStatus && (status === 400 || status === 404) ? 200 : status;
      sendJson(this.#sink, shown, text, headers);
      return;
    }
    this.#event(text);
    if (this.#queue === undefined || this.#queue.length === 0) this.#sink.end();
  }

  #over(): void {
    this.#isOver = true;
    this.#env.ended(this);
  }
}

function errorStatus(message: ServerMessage): number {
  const code = find(message.text, 0, "error", "code");
  return (code && HTTP_STATUS_BY_CODE[Number(slice(message.text, code))]) ?? 200;
}

const ENVELOPE = new Map([
  [PROTOCOL_VERSION, JSON.stringify(LATEST_2026)],
  [CLIENT_CAPABILITIES, "{}"],
]);
const CAPABILITIES = ["tools", "prompts", "resources", "completions"];

/** Returns undefined if a server must handle the request. */
export function ownResult({ method }: ClientRequest): string | undefined {
  return method === "ping" || method === "logging/setLevel" ? "{}" : undefined;
}

export function asRequest2026(request: ClientRequest): ClientRequest {
  if (request.method === "initialize") {
    const envelope = [...ENVELOPE].map(([key, value]) => `${JSON.stringify(key)}:${value}`).join(",");
    return asClientRequest("server/discover", `{"_meta":{${envelope}}}`);
  }
  const { text } = request;
  const params = find(text, 0, "params");
  const meta = params && member(text, params.start, "_meta");
  const sent = request.params._meta;
  const isObject = typeof sent === "object" && sent !== null && !Array.isArray(sent);
  const written = withMembers(text, isObject ? meta : undefined, ENVELOPE);
  const meant = { ...request.params, _meta: readJson(OWN_MESSAGE, written) };
  if (params === undefined)
    return editedRequest(request, [insertMembers(text, 0, `"params":{"_meta":${written}}`)], meant);
  const edit = meta
    ? { start: meta.start, end: meta.end, text: written }
    : insertMembers(text, params.start, `"_meta":${written}`);
  return editedRequest(request, [edit], meant);
}

function statelessInterceptor(sent: ClientRequest): Interceptor {
  return {
    request(call) {
      call.request = sent;
      return undefined;
    },
    result({ client: { request } }, message) {
      return request.method === "initialize" ? asInitialized(message, request) : undefined;
    },
  };
}

function asInitialized(answer: ServerMessage, { params }: ClientRequest): ServerMessage {
  const { result } = readJson(PART, answer.text) as { result: Readonly<Record<string, unknown>> };
  const { capabilities, instructions, _meta: meta } = result;
  const asked = String(params.protocolVersion);
  const offered = typeof capabilities === "object" && capabilities !== null ? capabilities : {};
  const info = (meta as Record<string, unknown> | undefined)?.[SERVER_INFO];
  return asServerMessage(
    resultText(
      "0",
      JSON.stringify({
        protocolVersion: is2025Version(asked) ? asked : LATEST_2025,
        capabilities: Object.fromEntries(CAPABILITIES.filter((name) => name in offered).map((name) => [name, {}])),
        serverInfo: info ?? GATEWAY_INFO,
        ...(typeof instructions === "string" ? { instructions } : {}),
      }),
    ),
  );
}

export interface SessionlessServices {
  readonly report: CallReport;
  readonly sessions: SessionStore;
  nowMs(): number;
}

/** `sent` is the request that servers receive. */
export function runSessionless(
  group: ClientGroup,
  { request, sent }: { readonly request: ClientRequest; readonly sent: ClientRequest },
  exchange: Exchange,
  sink: ResponseReceiver,
  { report, sessions, nowMs }: SessionlessServices,
): BackendRun {
  const isStateless = sent !== request;
  const call = new SessionlessCall(request, exchange.request.headers, sink, {
    report,
    access: exchange.mcp.access,
    guardrails: exchange.mcp.guardrails,
    hidesStatus: isStateless,
    nowMs,
    ended: (ended) => {
      sessions.stopHeartbeat(ended);
      group.count(-1);
    },
  });
  group.count(1);
  sessions.startHeartbeat(call);
  call.running = isStateless
    ? intercept(call, [statelessInterceptor(sent)], (translated) => group.run(translated))
    : group.run(call);
  return call;
}
