/**
 * Turns the head of a request into its one canonical form. HTTP/1.1 and HTTP/2 connections, the admin interface, and dry
 * runs use this function, so that routes, rules, and backends see the same method, host, path, and headers whatever the
 * protocol. It rejects heads that servers could interpret differently (RFC 9112 section 11).
 */
import { ExpectedError } from "../base/errors.ts";
import { isHeaderName } from "../base/header-names.ts";
import type { PeerInput } from "../base/peer-inputs.ts";
import { END_TO_END_HEADERS, foldHeaderName, imitatesReservedHeader } from "./header-rules.ts";
import { HeaderList, isHeaderValue } from "./headers.ts";
import { parseAuthority, withoutPort } from "./host.ts";
import { canonicalPath, isPlainPath, pathFault } from "./request-path.ts";

/**
 * The request methods that the gateway accepts, in every version of HTTP. Methods are case-sensitive (RFC 9110 section
 * 9.1), but many frameworks convert them to uppercase, so another spelling could pass a rule and be executed.
 */

/**
 * The gateway accepts these request methods, in every version of HTTP. Methods are case-sensitive (RFC 9110 section 9.1),
 * but many frameworks convert them to uppercase, so another spelling could pass a rule and be executed.
 */
const METHODS = new Set(
  (
    "GET POST PUT DELETE HEAD OPTIONS PATCH CONNECT TRACE ACL BIND CHECKOUT COPY LINK LOCK M-SEARCH MERGE MKACTIVITY " +
    "MKCALENDAR MKCOL MOVE NOTIFY PROPFIND PROPPATCH PURGE REBIND REPORT SEARCH SOURCE SUBSCRIBE UNBIND UNLINK UNLOCK UNSUBSCRIBE"
  ).split(" "),
);

/** Other methods share a metric label, so that clients choose from few series (RFC 9110 section 9.3 and RFC 5789). */
const LABELS = new Set(["", "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"]);

const BEGINNING = /^([A-Z][A-Z-]{0,14})( |$)/;

/** Checks a request of which only the beginning has arrived. */
export function beginsWithMethod(text: string): boolean {
  const [, method, end] = BEGINNING.exec(text) ?? [];
  return method !== undefined && (end === "" || METHODS.has(method));
}

export function isKnownMethod(method: string): boolean {
  return METHODS.has(method);
}

/** Only metric labels use this value. Rules and backends receive the method itself. */
export function methodLabel(method: string): string {
  return LABELS.has(method) ? method : "other";
}

const MAX_TARGET_CHARS = 8 * 1024;

/**
 * `bad` is a head that is malformed or ambiguous, `too-large` is an oversized head or trailer section, `version` is HTTP
 * 0.9 or 2.0, `extensions` is an oversized total of chunk extensions, `method` is a method that is never served, and
 * `expectation` is an unknown `expect` header.
 */
export type RequestErrorKind = "bad" | "too-large" | "version" | "extensions" | "method" | "expectation";

export class RequestError extends ExpectedError {
  readonly kind: RequestErrorKind;
  /** Contains the bytes received since the start of the head, up to the limit, if the head cannot be parsed. */
  head: Buffer | undefined = undefined;

  constructor(kind: RequestErrorKind, message: string) {
    super(message);
    this.name = "RequestError";
    this.kind = kind;
  }
}

/** A head after the parser of its protocol has split it into lines. */
export interface ReceivedHead {
  readonly method: string;
  /** The request target of HTTP/1.1, or `:path` of HTTP/2. The target of CONNECT is `:authority`. */
  readonly target: string;
  /** The `:scheme` of an HTTP/2 request. */
  readonly scheme?: string | undefined;
  readonly version: "1.0" | "1.1" | "2";
  /** Alternates lowercase names and values. The request takes ownership of the array if no line changes. */
  readonly pairs: string[];
  /** True if the parser has validated names and values (see `HeaderList`). */
  readonly areLinesSafe?: boolean;
  readonly bytes: number;
  readonly expects: "nothing" | "continue" | "unknown";
  /** Explains why the body cannot be framed safely. */
  readonly fault: string | undefined;
}

export interface RequestHead {
  /** In canonical form, with the port if the client sent one. */
  readonly host: string;
  /** In canonical form. */
  readonly path: string;
  readonly rawPath: string;
  readonly query: string;
  readonly headers: HeaderList;
  /** True if the client names an `https` URL, as clients of a forward proxy do. */
  readonly namesHttps: boolean;
  /** True if the client sent a forwarding header, even if it was removed. */
  readonly isForwarded: boolean;
}

type Target = Omit<RequestHead, "headers" | "isForwarded">;

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

const PLAIN_CONNECTION = /^(?:keep-alive|close|upgrade)$/i;

/** Matches a path, `*`, or an absolute URL (RFC 9112 section 3.2). */
const TARGET = /^(?:\/[\x21-\x7e]*|\*|[A-Za-z]+:\/\/[A-Za-z0-9._~:@[\]-]+(?:[/?][\x21-\x7e]*)?)$/;
const ABSOLUTE = /^https?:\/\/([^/?#]*)(.*)$/i;
const SCHEME = /^https?$/i;

const SLASH = 0x2f;
const COLON = 0x3a;
const E = 0x65;
const F = 0x66;
const H = 0x68;
const U = 0x75;
const X = 0x78;

/** The size of the head as an HTTP/1.1 client would send it. */
export function headBytes(method: string, target: string, pairs: readonly string[]): number {
  let bytes = method.length + target.length + " ".length + " HTTP/1.1".length;
  for (const text of pairs) bytes += text.length + 2;
  return bytes;
}

/** Throws a RequestError if the request must be rejected. The limit is that of the head in HTTP/1.1. */
export function readRequestHead(
  input: PeerInput<"HTTP head">,
  received: ReceivedHead,
  isPeerTrusted: boolean,
  isUpgrade: boolean,
  isForwardProxy = false,
): RequestHead {
  const { method, version, pairs: raw, target } = received;
  const isConnect = method === "CONNECT";
  if (received.bytes > input.maxBytes) {
    // A parser of HTTP/1.1 reads the method before the head is too large.
    if (!isKnownMethod(method)) throw bad("the request does not begin with a method");
    throw new RequestError("too-large", "the head is larger than 16 KiB");
  }
  checkRequestLine(received, isForwardProxy);
  if (received.expects === "unknown") throw new RequestError("expectation", "an unknown expectation");
  if (raw.length > input.maxItems * 2) throw new RequestError("too-large", "too many header lines");
  if (received.fault !== undefined) throw bad(received.fault);
  if (received.areLinesSafe !== true) checkLines(raw);

  // The list is copied when the first line changes.
  let kept: string[] | undefined;
  let host: string | undefined;
  let listed = "";
  let seen = 0;
  let isForwarded = false;
  for (let i = 0; i < raw.length; i += 2) {
    const name = raw[i] as string;
    let value = raw[i + 1] as string;
    const bit = SINGLETONS.get(name);
    if (bit !== undefined) {
      if ((seen & bit) !== 0) throw bad(`more than one ${name} header`);
      seen |= bit;
      if (name === "host") {
        host = parseAuthority(value)?.text;
        if (host === undefined) throw bad("the Host header is not a host name");
        if (host !== value) kept ??= raw.slice(0, i);
        value = host;
      }
    } else if (imitatesReservedHeader(name)) {
      throw bad(`the header ${name} could be mistaken for ${foldHeaderName(name)}`);
    }
    const isForwarding = isForwardingHeader(name);
    isForwarded ||= isForwarding || name === "via";
    // Forwarding headers are accepted only from a proxy that the operator trusts.
    if ((isForwarding && !isPeerTrusted) || isRemoved(name, isUpgrade)) {
      kept ??= raw.slice(0, i);
      continue;
    }
    if (name === "connection" && !PLAIN_CONNECTION.test(value)) listed = `${listed}${value},`;
    kept?.push(name, value);
  }
  const pairs = kept ?? raw;
  if (version !== "1.0" && host === undefined) throw bad("no Host header");

  if (isConnect && !isUpgrade) throw bad("CONNECT needs HTTP/1.1 and no body");
  const named = isConnect ? readConnect(target, host) : readTarget(target, method, host);
  return {
    host: named.host,
    path: named.path,
    rawPath: named.rawPath,
    query: named.query,
    namesHttps: named.namesHttps || received.scheme?.toLowerCase() === "https",
    headers: new HeaderList(listed === "" ? pairs : withoutListed(pairs, listed), true),
    isForwarded,
  };
}

/** Checks the part of the rules that needs neither headers nor the listener. */
export function checkRequestLine({ method, target, scheme, version }: ReceivedHead, isForwardProxy: boolean): void {
  if (!isKnownMethod(method)) throw bad("the method is not known");
  if (method === "CONNECT") {
    if (!isForwardProxy) throw new RequestError("method", "the method is not served");
    if (parseAuthority(target)?.port === undefined) throw bad("the target of CONNECT is not a host and a port");
  } else if (!isTarget(target, version === "2")) throw bad("the request target is malformed");
  if (method === "TRACE") throw new RequestError("method", "the method is not served");
  if (scheme !== undefined && !SCHEME.test(scheme)) throw bad("the scheme is neither http nor https");
}

function isTarget(target: string, isHttp2: boolean): boolean {
  // The absolute form is a form of HTTP/1.1 only (RFC 9113 section 8.3.1).
  if (isHttp2 && target.charCodeAt(0) !== SLASH && target !== "*") return false;
  return TARGET.test(target);
}

function checkLines(pairs: readonly string[]): void {
  for (let i = 0; i < pairs.length; i += 2) {
    if (!isHeaderName(pairs[i] as string)) throw bad("a malformed header line");
    if (!isHeaderValue(pairs[i + 1] as string)) throw bad("a control character in the head");
  }
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

/** The request target has precedence (RFC 9112 section 3.2.2), but a mismatch is rejected. */
function checkSameHost(named: string, host: string | undefined): string {
  const { text } = parseAuthority(named) ?? {};
  if (host !== undefined && text !== host) throw bad("the request target and the Host header disagree");
  if (text === undefined) throw bad("the request target has no valid host");
  return text;
}

/** The target of CONNECT is a host and a port (RFC 9112 section 3.2.3). */
function readConnect(target: string, host: string | undefined): Target {
  const { text = "" } = parseAuthority(target) ?? {};
  if (host !== undefined && host !== text && host !== withoutPort(text))
    throw bad("the request target and the Host header disagree");
  return { host: text, path: "/", rawPath: "/", query: "", namesHttps: false };
}

function readTarget(url: string, method: string, given: string | undefined): Target {
  if (url.length > MAX_TARGET_CHARS) throw bad("the request target is longer than 8 KiB");
  let host = given ?? "";
  let target = url;
  let namesHttps = false;
  if (target.charCodeAt(0) !== SLASH) {
    if (target === "*" && method === "OPTIONS") return { host, path: "*", rawPath: "*", query: "", namesHttps: false };
    const [, named, rest = ""] = ABSOLUTE.exec(target) ?? [];
    if (named === undefined) throw bad("the request target is neither a path nor an http URL");
    host = checkSameHost(named, given);
    namesHttps = target.charCodeAt("http".length) !== COLON;
    target = rest.startsWith("/") ? rest : `/${rest}`;
  }
  const question = target.indexOf("?");
  const rawPath = question < 0 ? target : target.slice(0, question);
  const query = question < 0 ? "" : target.slice(question + 1);
  if (rawPath.includes("#") || query.includes("#")) throw bad("a fragment in the request target");
  const path = isPlainPath(rawPath) ? rawPath : safePath(rawPath);
  return { host, path, rawPath, query, namesHttps };
}

function safePath(rawPath: string): string {
  const fault = pathFault(rawPath);
  if (fault !== undefined) throw bad(fault);
  return canonicalPath(rawPath);
}

function bad(reason: string): RequestError {
  return new RequestError("bad", reason);
}
