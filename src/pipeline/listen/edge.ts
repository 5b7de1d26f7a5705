/**
 * Converts a parsed head to a request, and rejects heads that servers could interpret differently (RFC 9112 section
 * 11).
 */

import { isHeaderName } from "../../base/header-names.ts";
import { GatewayError } from "../../core/errors.ts";
import { type Exchange, type GatewayRequest, NO_BODY } from "../../core/exchange.ts";
import { errorReply, type Reply } from "../../core/reply.ts";
import { requestState, responseState } from "../../core/snapshot.ts";
import { END_TO_END_HEADERS, foldHeaderName, imitatesReservedHeader } from "../../http/header-rules.ts";
import { HeaderList, isHeaderValue } from "../../http/headers.ts";
import { isKnownMethod } from "../../http/request-methods.ts";
import { canonicalPath, isPlainPath, pathFault } from "../../http/request-path.ts";
import { redactUrl } from "../../observe/trace/redact.ts";
import type { Trace } from "../../observe/trace/trace.ts";
import type { PipelineEnv } from "../phases/pipeline-env.ts";
import { BodyCapture } from "../records/body-capture.ts";

const MAX_HEADER_LINES = 100;
const MAX_TARGET_CHARS = 8 * 1024;

/**
 * Requests that repeat these headers are rejected, because two servers could choose different lines. Each header has
 * its own bit.
 */
const SINGLETONS = new Map(
  [
    "host",
    "authorization",
    "proxy-authorization",
    "content-type",
    "content-length",
    "transfer-encoding",
    "origin",
    "expect",
    "upgrade",
    "mcp-session-id",
    "mcp-protocol-version",
    "mcp-method",
    "mcp-name",
    "last-event-id",
    "x-request-id",
    "x-api-key",
  ].map((name, i) => [name, 1 << i] as const),
);

const HOST = /^(?:[A-Za-z0-9._~-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?$/;

const PLAIN_CONNECTION = /^(?:keep-alive|close|upgrade)$/i;

const E = 0x65;
const COLON = 0x3a;
const F = 0x66;
const H = 0x68;
const U = 0x75;
const X = 0x78;

export interface ReadHead {
  readonly method: string;
  readonly target: string;
  readonly version: GatewayRequest["version"];
  /** The pseudo-header `:scheme` of HTTP/2. */
  readonly scheme?: string | undefined;
  /** Alternates lowercase names and values. The request takes ownership of the array if no line is removed. */
  readonly pairs: string[];
  /** True if the parser has validated names and values (see `HeaderList`). */
  readonly areLinesSafe?: boolean;
  /** Explains why the request must be rejected. */
  readonly fault: string | undefined;
}

export interface Head {
  readonly host: string;
  /** The path is in canonical form. */
  readonly path: string;
  readonly rawPath: string;
  readonly query: string;
  readonly headers: HeaderList;
  /** True if the target is an `https` URL, which a client sends to a forward proxy. */
  readonly namesHttps: boolean;
  /** True if the client sent a forwarding header, even if it was removed. */
  readonly isForwarded: boolean;
}

type Target = Omit<Head, "headers" | "isForwarded" | "namesHttps"> & { readonly isHttpsUrl?: boolean };

/** Throws a GatewayError if the request must be rejected. */
export function readHead(read: ReadHead, peerIsTrusted: boolean, isUpgrade: boolean, isForwardProxy = false): Head {
  const { method, version, pairs: raw } = read;
  if (!isKnownMethod(method)) throw reject("the method is not known");
  if (method === "TRACE" || (method === "CONNECT" && !isForwardProxy))
    throw new GatewayError("method_not_allowed", {
      headers: { allow: "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS" },
    });

  if (raw.length > MAX_HEADER_LINES * 2) throw new GatewayError("too_many_headers");
  if (read.fault !== undefined) throw reject(read.fault);
  // The list is copied when the first line is removed.
  let kept: string[] | undefined;
  let host: string | undefined;
  let listed = "";
  let seen = 0;
  let isForwarded = false;
  for (let i = 0; i < raw.length; i += 2) {
    const name = raw[i] as string;
    const value = raw[i + 1] as string;
    const bit = SINGLETONS.get(name);
    if (bit !== undefined) {
      if ((seen & bit) !== 0) throw reject(`more than one ${name} header`);
      seen |= bit;
      if (name === "host") host = value;
    } else if (imitatesReservedHeader(name)) {
      throw reject(`the header ${name} could be mistaken for ${foldHeaderName(name)}`);
    }
    const isForwarding = isForwardingHeader(name);
    isForwarded ||= isForwarding;
    // Forwarding headers are accepted only from a proxy that the operator trusts.
    if ((isForwarding && !peerIsTrusted) || isRemoved(name, isUpgrade)) {
      kept ??= raw.slice(0, i);
      continue;
    }
    if (name === "connection" && !PLAIN_CONNECTION.test(value)) listed = `${listed}${value},`;
    kept?.push(name, value);
  }
  const pairs = kept ?? raw;
  if (version !== "1.0" && host === undefined) throw reject("no Host header");

  if (method === "CONNECT" && !isUpgrade) throw reject("CONNECT needs HTTP/1.1 and no body");
  const target = method === "CONNECT" ? readAuthority(read.target, host) : readTarget(read.target, method, host);
  return {
    host: target.host,
    path: target.path,
    rawPath: target.rawPath,
    query: target.query,
    headers: new HeaderList(listed === "" ? pairs : withoutListed(pairs, listed), read.areLinesSafe === true),
    namesHttps: target.isHttpsUrl === true || read.scheme === "https",
    isForwarded,
  };
}

function isForwardingHeader(name: string): boolean {
  switch (name.charCodeAt(0)) {
    case X:
      return name.startsWith("x-forwarded-") || name === "x-real-ip";
    case F:
      return name === "forwarded";
    default:
      return false;
  }
}

function isRemoved(name: string, isUpgrade: boolean): boolean {
  switch (name.charCodeAt(0)) {
    case X:
      // These headers describe the gateway's limits, so a backend must not receive a client's values.
      return name.startsWith("x-ratelimit-");
    // An upgrade offer that the gateway ignores is not forwarded (RFC 9110 section 7.8).
    case H:
      return !isUpgrade && name === "http2-settings";
    case U:
      return !isUpgrade && name === "upgrade";
    // The gateway itself answers expectations.
    case E:
      return name === "expect";
    default:
      return false;
  }
}

/**
 * Removes headers that `connection` names before any policy runs. Otherwise the client could name a header that a
 * policy adds (CVE-2025-48865).
 */
function withoutListed(pairs: readonly string[], listed: string): string[] {
  const names = new Set(listed.split(",").map((name) => name.trim().toLowerCase()));
  const kept: string[] = [];
  for (let i = 0; i < pairs.length; i += 2) {
    const name = pairs[i] as string;
    if (name === "connection" || (names.has(name) && !END_TO_END_HEADERS.has(name))) continue;
    kept.push(name, pairs[i + 1] as string);
  }
  return kept;
}

/** The target of CONNECT is a host and a port (RFC 9112 section 3.2.3). */
function readAuthority(target: string, hostHeader: string | undefined): Target {
  if (target.length > MAX_TARGET_CHARS || !HOST.test(target) || !/:[0-9]+$/.test(target))
    throw reject("the target of CONNECT is not a host and a port");
  const given = hostHeader?.toLowerCase();
  const isSame = given === undefined || given === target.toLowerCase() || given === hostOf(target.toLowerCase());
  if (!isSame) throw reject("the request target and the Host header disagree");
  return { host: target, path: "/", rawPath: "/", query: "" };
}

function hostOf(authority: string): string {
  return authority.replace(/:[0-9]+$/, "");
}

function readTarget(url: string, method: string, hostHeader: string | undefined): Target {
  if (url.length > MAX_TARGET_CHARS) throw reject("the request target is longer than 8 KiB");
  let host = hostHeader ?? "";
  let target = url;
  let isHttpsUrl = false;
  if (hostHeader !== undefined && !HOST.test(host)) throw reject("the Host header is not a host name");
  if (target.charCodeAt(0) !== 47 /* / */) {
    if (target === "*" && method === "OPTIONS") return { host, path: "*", rawPath: "*", query: "" };
    const absolute = /^https?:\/\/([^/?#]*)(.*)$/i.exec(target);
    if (!absolute) throw reject("the request target is neither a path nor an http URL");
    // RFC 9112 section 3.2.2 gives the target precedence, but the gateway rejects a mismatch.
    if (hostHeader !== undefined && (absolute[1] as string).toLowerCase() !== host.toLowerCase())
      throw reject("the request target and the Host header disagree");
    host = absolute[1] as string;
    if (!HOST.test(host)) throw reject("the request target has no valid host");
    isHttpsUrl = target.charCodeAt("http".length) !== COLON;
    target = (absolute[2] as string).startsWith("/") ? (absolute[2] as string) : `/${absolute[2]}`;
  }
  const question = target.indexOf("?");
  const rawPath = question < 0 ? target : target.slice(0, question);
  const query = question < 0 ? "" : target.slice(question + 1);
  if (rawPath.includes("#") || query.includes("#")) throw reject("a fragment in the request target");
  const path = isPlainPath(rawPath) ? rawPath : safePath(rawPath);
  return { host, path, rawPath, query, isHttpsUrl };
}

function safePath(rawPath: string): string {
  const fault = pathFault(rawPath);
  if (fault !== undefined) throw reject(fault);
  return canonicalPath(rawPath);
}

function reject(reason: string): GatewayError {
  return new GatewayError("bad_request", { message: `bad request: ${reason}` });
}

const MAX_SHOWN_CHARS = 256;
const MAX_SHOWN_LINES = 100;
const REQUEST_LINE = /^([!#$%&'*+\-.^_`|~0-9A-Za-z]{1,32}) (\S*)(?: HTTP\/(\d\.\d))?$/;

export interface RejectedHead {
  readonly method: string;
  readonly target: string;
  readonly version: string;
  readonly rawHeaders: readonly string[];
}

export interface Rejection {
  readonly reply: Reply;
  settle(isComplete: boolean): void;
}

export function rejectedRequest(head: RejectedHead, scheme: "http" | "https"): GatewayRequest {
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
export function parseRejectedHead(bytes: Buffer | undefined): RejectedHead {
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
