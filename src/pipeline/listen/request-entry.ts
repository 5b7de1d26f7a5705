/**
 * Turns a parsed head into an Exchange and passes it to the pipeline, or rejects and records it. The client's address is
 * that of the connection's peer or, behind `config.trustedProxies`, the one that `x-forwarded-for` names.
 */

import { BlockList, isIP, isIPv6, type Socket } from "node:net";
import type { TLSSocket } from "node:tls";
import { isHeaderName } from "../../base/header-names.ts";
import { isRequestId } from "../../base/ids.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { GatewayError } from "../../core/errors.ts";
import { Exchange, type GatewayRequest, NO_BODY, type RequestBody } from "../../core/exchange.ts";
import { asGatewayError, errorReply, type Reply } from "../../core/reply.ts";
import type { ClientSink } from "../../core/sink.ts";
import { requestState, responseState } from "../../core/snapshot.ts";
import { HeaderList, isHeaderValue } from "../../http/headers.ts";
import { type CanonicalHost, canonicalAddress } from "../../http/host.ts";
import { isKnownMethod, type ReceivedHead, type RequestHead, readRequestHead } from "../../http/request-head.ts";
import { BodyCapture } from "../../record/recorded-bodies.ts";
import { redactUrl } from "../../record/trace/redact.ts";
import type { Trace } from "../../record/trace/trace.ts";
import { handle } from "../phases/pipeline.ts";
import type { PipelineEnv, Served } from "../phases/pipeline-env.ts";
import type { ChargedClient } from "./backlog.ts";
import type { ListenerEnv } from "./listener-env.ts";
import type { Proxied, ProxiedConnections } from "./proxied-connections.ts";

export type IsTrustedPeer = (address: string) => boolean;

const MAX_PROXIES = 32;
/** Some proxies add the port, as in `192.0.2.1:4711` or `[2001:db8::1]:4711`. */
const WITH_PORT = /^(?:\[([^\]]+)\](?::\d{1,5})?|([\d.]+):\d{1,5})$/;

export function trustedPeers(ranges: readonly string[]): IsTrustedPeer {
  if (ranges.length === 0) return () => false;
  const list = new BlockList();
  for (const range of ranges) {
    const [address = "", bits] = range.split("/");
    const family = isIPv6(address) ? "ipv6" : "ipv4";
    if (bits === undefined) list.addAddress(address, family);
    else list.addSubnet(address, Number(bits), family);
  }
  return (peer) => {
    const address = canonicalAddress(peer);
    return isIP(address) !== 0 && list.check(address, isIPv6(address) ? "ipv6" : "ipv4");
  };
}

/**
 * Returns the last address in `x-forwarded-for` that is not a trusted proxy, or the first address if all are trusted.
 * Returns undefined if the header is absent, or if an entry is malformed or the limit is reached first.
 */
export function forwardedClient(forwardedFor: string | undefined, isTrustedPeer: IsTrustedPeer): string | undefined {
  if (forwardedFor === undefined) return undefined;
  let end = forwardedFor.length;
  for (let i = 0; i < MAX_PROXIES; i++) {
    const comma = forwardedFor.lastIndexOf(",", end - 1);
    const address = parseForwardedAddress(forwardedFor.slice(comma + 1, end).trim());
    if (address === undefined) return undefined;
    if (comma < 0 || !isTrustedPeer(address)) return address;
    // A leading comma is malformed.
    if (comma === 0) return undefined;
    end = comma;
  }
  return undefined;
}

/** Returns the address in canonical form, so that one client has one address. */
function parseForwardedAddress(entry: string): string | undefined {
  const found = isIP(entry) === 0 ? WITH_PORT.exec(entry) : null;
  const address = found ? (found[1] ?? found[2] ?? "") : entry;
  switch (isIP(address)) {
    case 4:
      return address;
    case 6:
      // A zone is meaningful only on the machine that wrote it.
      return address.includes("%") ? undefined : canonicalAddress(address);
    default:
      return undefined;
  }
}

/** This Retry-After value gives the garbage collector time to free memory, and streams time to end. */
const HTTP1_HEAD = peerInput("client/http1-head");
const HTTP2_HEAD = peerInput("client/http2-head");

const RETRY_SECONDS = "2";

export interface EntrySink extends ClientSink {
  /** True if the request asks for a protocol upgrade that the gateway forwards. */
  readonly isUpgrade: boolean;
  /** True if the client has too many HTTP/2 streams, so that this one is rejected. */
  readonly isBeyondLimit: boolean;
  /** The memory of the request and its response is charged to this client. */
  chargedTo: ChargedClient | undefined;
  reject(reply: Reply): void;
}

/** The listener that receives the requests. */
export interface RequestOwner {
  readonly env: ListenerEnv;
  readonly scheme: "http" | "https";
  /** Later requests use another configuration after a reload. */
  readonly served: Served;
  /** Counts the requests in flight. */
  requests: number;
  /** The subjects of the clients' certificates, on listeners with TLS. */
  readonly identities: WeakMap<Socket, string> | undefined;
  readonly proxied: Pick<ProxiedConnections, "find">;
}

/** Called when the head of a request has arrived. */
export function beginRequest(
  owner: RequestOwner,
  read: ReceivedHead,
  body: RequestBody,
  sink: EntrySink,
  socket: Socket,
): void {
  const { env, served } = owner;
  owner.requests += 1;
  const isForwardProxy = served.listener.forwardProxy === true;
  let head: RequestHead;
  try {
    if (env.heap.level === "full" || sink.isBeyondLimit) throw overloaded(sink.isBeyondLimit);
    head = readRequestHead(
      read.version === "2" ? HTTP2_HEAD : HTTP1_HEAD,
      read,
      isTrusted(env, peerOf(owner, socket)),
      sink.isUpgrade,
      isForwardProxy,
    );
  } catch (error) {
    const { method, target, version, pairs } = read;
    const request = rejectedRequest({ method, target, version, rawHeaders: pairs }, owner.scheme);
    const rejection = beginRejection(env, newExchange(owner, request, socket, false), asGatewayError(error));
    sink.onClose = (complete) => rejection.settle(complete);
    sink.reject(rejection.reply);
    return;
  }
  // A reverse proxy serves the host in the target, so only a forward proxy needs the scheme that the client names.
  const namesHttps = isForwardProxy && head.namesHttps;
  const request: GatewayRequest = {
    method: read.method,
    scheme: namesHttps ? "https" : owner.scheme,
    namesHttps,
    host: head.host,
    path: head.path,
    rawPath: head.rawPath,
    query: head.query,
    version: read.version,
    headers: head.headers,
    body,
  };
  const exchange = newExchange(owner, request, socket, head.isForwarded);
  sink.chargedTo = exchange;
  handle(env, served, exchange, sink);
}

/**
 * Returns the response to invalid or incomplete input. If `bytes` is undefined, nothing is recorded, because no head
 * was received or the request is already recorded.
 */
export function rejectRequest(
  owner: RequestOwner,
  bytes: Buffer | undefined,
  error: GatewayError,
  socket: Socket,
): Rejection {
  if (bytes === undefined) return { reply: errorReply(error), settle: ignore };
  const request = rejectedRequest(parseRejectedHead(bytes), owner.scheme);
  return beginRejection(owner.env, newExchange(owner, request, socket, false), error);
}

function newExchange(owner: RequestOwner, request: GatewayRequest, socket: Socket, isForwarded: boolean): Exchange {
  const { env, served } = owner;
  const peer = peerOf(owner, socket);
  const forwardedFor = isTrusted(env, peer) ? request.headers.get("x-forwarded-for") : undefined;
  const proxied = peer.proxied?.addresses?.source.address;
  const givenId = request.headers.get("x-request-id");
  return new Exchange({
    id: givenId !== undefined && isRequestId(givenId) ? givenId : env.ids.hex(8),
    listener: served.listener.name,
    source: {
      address: peer.address,
      port: peer.port,
      client: forwardedClient(forwardedFor, env.isTrustedPeer) ?? proxied,
      proxied,
      isForwarded: isForwarded || peer.proxied !== undefined ? true : undefined,
      identity: owner.identities?.get(socket),
      serverName: served.listener.tls?.parts === undefined ? undefined : serverNameOf(socket),
    },
    request,
    startedAt: env.clock.now(),
    startedMs: env.clock.monotonicMs(),
    memory: env.memory,
  });
}

/**
 * A load balancer that sends PROXY protocol headers does not write forwarding headers, so the client that it names
 * must be trusted.
 */
function isTrusted(env: ListenerEnv, peer: Peer): boolean {
  peer.isTrusted ??=
    peer.proxied === undefined
      ? env.isTrustedPeer(peer.address)
      : peer.proxied.addresses !== undefined && env.isTrustedPeer(peer.proxied.addresses.source.address);
  return peer.isTrusted;
}

function overloaded(isBeyondLimit: boolean): GatewayError {
  return new GatewayError("overloaded", {
    headers: { "retry-after": RETRY_SECONDS },
    ...(isBeyondLimit ? { detail: "the client has too many open HTTP/2 streams" } : {}),
  });
}

function serverNameOf(socket: Socket): string | undefined {
  const { servername } = socket as TLSSocket & { readonly servername?: unknown };
  return typeof servername === "string" && servername !== "" ? servername : undefined;
}

export function nameOf({ remoteAddress = "", remotePort }: Socket): string {
  return `${canonicalAddress(remoteAddress)}:${remotePort}`;
}

const PEER = Symbol("peer");

interface Peer {
  readonly address: CanonicalHost;
  readonly port: number;
  readonly proxied: Proxied | undefined;
  /** The value is undefined until it is first needed. */
  isTrusted: boolean | undefined;
}

/** Caches the peer for each connection, because Node's getters are slow. */
function peerOf({ proxied: { find } }: RequestOwner, socket: Socket & { [PEER]?: Peer }): Peer {
  const known = socket[PEER];
  if (known !== undefined) return known;
  const { remoteAddress = "", remotePort: port = 0 } = socket;
  const address = canonicalAddress(remoteAddress);
  const proxied = find(socket);
  const peer: Peer = { address, port, proxied, isTrusted: undefined };
  // A closed connection has no peer address.
  if (address !== "") socket[PEER] = peer;
  return peer;
}

function ignore(): void {
  // No head was received, or the request is already recorded.
}

const MAX_SHOWN_CHARS = 256;
const MAX_SHOWN_LINES = 100;
const REQUEST_LINE = /^([!#$%&'*+\-.^_`|~0-9A-Za-z]{1,32}) (\S*)(?: HTTP\/(\d\.\d))?$/;

interface RejectedHead {
  readonly method: string;
  readonly target: string;
  readonly version: string;
  readonly rawHeaders: readonly string[];
}

export interface Rejection {
  readonly reply: Reply;
  settle(isComplete: boolean): void;
}

function rejectedRequest(head: RejectedHead, scheme: "http" | "https"): GatewayRequest {
  const headers = HeaderList.fromRaw(head.rawHeaders.slice(0, MAX_SHOWN_LINES * 2));
  // A fragment or a user name may contain a credential, and neither is valid in a request target.
  const target = redactUrl(head.target.split("#", 1)[0] ?? "");
  const question = target.indexOf("?");
  const path = (question < 0 ? target : target.slice(0, question)).slice(0, MAX_SHOWN_CHARS);
  return {
    // An unknown method is client input of any length, so it is not recorded.
    method: isKnownMethod(head.method) ? head.method : "",
    scheme,
    namesHttps: false,
    host: (headers.get("host") ?? "").slice(0, MAX_SHOWN_CHARS),
    // A rejected path may have no canonical form.
    path,
    rawPath: path,
    query: question < 0 ? "" : target.slice(question + 1, question + 1 + MAX_SHOWN_CHARS),
    version: head.version === "1.0" || head.version === "2" ? head.version : "1.1",
    headers,
    body: NO_BODY,
  };
}

/** Reads as many lines as possible of an invalid or incomplete head. */
function parseRejectedHead(bytes: Buffer | undefined): RejectedHead {
  const [first = "", ...lines] = (bytes ?? Buffer.alloc(0)).toString("latin1").split(/\r?\n/);
  const [, method = "", target = "", version = ""] = REQUEST_LINE.exec(first) ?? [];
  const rawHeaders: string[] = [];
  for (const line of method === "" ? [] : lines) {
    const colon = line.indexOf(":");
    const name = line.slice(0, Math.max(0, colon));
    const value = line.slice(colon + 1).trim();
    if (!isHeaderName(name) || !isHeaderValue(value)) break;
    rawHeaders.push(name, value);
  }
  return { method, target, version, rawHeaders };
}

export function beginRejection(env: PipelineEnv, exchange: Exchange, error: GatewayError): Rejection {
  const { code, source, message, detail } = error;
  const reply = errorReply(error);
  const responseBytes = reply.body?.length ?? 0;
  reply.headers.set("content-length", String(responseBytes));
  reply.headers.set("x-request-id", exchange.id);
  exchange.failure = { code, source, message, detail };
  exchange.response = { status: reply.status, headers: reply.headers, source: "gateway" };
  exchange.trace = env.trace(exchange);
  if (exchange.trace !== undefined) traceRejection(env, exchange, exchange.trace, reply);
  return {
    reply,
    settle: (isComplete) =>
      env.settled(exchange, { status: reply.status, end: isComplete ? "complete" : "aborted", responseBytes }),
  };
}

function traceRejection({ redaction, clock }: PipelineEnv, exchange: Exchange, trace: Trace, reply: Reply): void {
  const { failure } = exchange;
  trace.point({ type: "requestStarted" });
  trace.point({ type: "requestSnapshot", stage: "initial request", requestState: requestState(exchange, redaction) });
  const reason = failure?.detail ?? failure?.message ?? "";
  const details = redaction.scrub(reason, exchange.request.headers.pairs);
  trace.point({ type: "policy", phase: "gateway", kind: "edge", result: "refused", details }, "warn");
  const state = responseState(exchange, redaction, clock);
  trace.point({ type: "responseSnapshot", stage: "final response", requestState: state });
  const capture = new BodyCapture();
  if (reply.body) capture.add(reply.body);
  capture.emit(trace, "response", reply.headers.get("content-type"));
}
