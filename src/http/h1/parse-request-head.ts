/**
 * Splits the head of an HTTP/1.1 request into its lines, and finds out how the body is framed. A line that violates the
 * grammar is rejected (RequestError). A readable head that could be framed in two ways (RFC 9112 sections 6.3 and 11) is
 * returned with its fault. `readRequestHead` judges what the lines say.
 */

import { constantRegExp } from "../../base/constant-regexp.ts";
import { isHeaderName, lowerHeaderName } from "../../base/header-names.ts";
import { areHeaderLines, isHeaderValue } from "../headers.ts";
import { type ReceivedHead, RequestError } from "../request-head.ts";
import { beginsWithMethod, isKnownMethod } from "../request-methods.ts";
import { listsToken, trimmed } from "./message-framing.ts";

export interface ParsedRequest extends ReceivedHead {
  readonly version: "1.0" | "1.1";
  readonly areLinesSafe: true;
  readonly isChunked: boolean;
  readonly contentLength: number | undefined;
  readonly keepAlive: boolean;
  /** The `upgrade` header, or undefined if `connection` does not list `upgrade`. */
  readonly upgrade: string | undefined;
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: the pattern matches control characters
const FORBIDDEN_SO_FAR = /[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n|$)|(?<!\r)\n/g;
/** Enough for the longest method and the space after it. */
const BEGINNING_BYTES = 17;
/** These trailers could replace the body length or host at a server that merges trailers into headers. */
const FRAMING_TRAILER = /^(?:content-length|transfer-encoding|host)$/i;
const LENGTH = /^[0-9]{1,15}$/;
const OTHER_HTTP = /^HTTP\/(?:0\.9|2\.0)$/;
const TOKEN = "[!#$%&'*+\\-.^_`|~0-9A-Za-z]+";
const EXTENSIONS = constantRegExp(
  `^(?:;${TOKEN}(?:=(?:${TOKEN}|"(?:[\\t !#-\\[\\]-~\\x80-\\xff]|\\\\[\\t -~\\x80-\\xff])*"))?)+$`,
);

/**
 * Rejects bytes that cannot become a valid head, before its end arrives. The first `checked` bytes were checked before, so
 * that a head in many pieces is not read again for each of them.
 */
export function checkPartialHead(head: Buffer, checked: number): void {
  if (checked < BEGINNING_BYTES && !beginsWithMethod(head.toString("latin1", 0, BEGINNING_BYTES)))
    throw new RequestError("bad", "the request does not begin with a method");
  // The last checked byte may be a CR, whose verdict depends on the next byte, or an LF, which needs the byte before it.
  const from = Math.max(0, checked - 2);
  FORBIDDEN_SO_FAR.lastIndex = Math.max(0, checked - 1 - from);
  if (FORBIDDEN_SO_FAR.test(head.toString("latin1", from)))
    throw new RequestError("bad", "a control character in the head");
}

/** `text` is the head without the final empty line. */
export function parseRequestHead(text: string): ParsedRequest {
  let lineEnd = text.indexOf("\r\n");
  const line = lineEnd < 0 ? text : text.slice(0, lineEnd);
  const methodEnd = line.indexOf(" ");
  const targetEnd = line.indexOf(" ", methodEnd + 1);
  const method = line.slice(0, Math.max(0, methodEnd));
  const target = line.slice(methodEnd + 1, targetEnd < 0 ? undefined : targetEnd);
  const isOld = isHttp10(method, targetEnd < 0 ? "HTTP/0.9" : line.slice(targetEnd + 1));

  const areValues = areHeaderLines(text);
  const pairs: string[] = [];
  let length: string | undefined;
  let coding: string | undefined;
  let connection: string | undefined;
  let upgrade: string | undefined;
  let expect: string | undefined;
  let fault: string | undefined;
  while (lineEnd >= 0) {
    const start = lineEnd + 2;
    lineEnd = text.indexOf("\r\n", start);
    const end = lineEnd < 0 ? text.length : lineEnd;
    const colon = text.indexOf(":", start);
    const name = lowerHeaderName(text.slice(start, colon < start || colon > end ? start : colon));
    if (name === undefined) throw new RequestError("bad", "a malformed header line");
    const value = trimmed(text, colon + 1, end);
    if (!areValues && !isHeaderValue(value)) throw new RequestError("bad", "a control character in the head");
    pairs.push(name, value);
    switch (name) {
      case "content-length":
        fault ??= tabFault(text, colon, end);
        if (length !== undefined) fault ??= "more than one content-length header";
        length = value;
        break;
      case "transfer-encoding":
        fault ??= tabFault(text, colon, end);
        if (coding !== undefined) fault ??= "more than one transfer-encoding header";
        coding = value;
        break;
      case "connection":
        connection = connection === undefined ? value : `${connection},${value}`;
        break;
      case "upgrade":
        upgrade = upgrade === undefined ? value : `${upgrade},${value}`;
        break;
      case "expect":
        expect = value;
    }
  }
  fault ??= framingFault(length, coding, isOld);
  const tokens = connection === undefined ? "" : connection.toLowerCase();
  return {
    method,
    target,
    version: isOld ? "1.0" : "1.1",
    pairs,
    areLinesSafe: true,
    bytes: text.length,
    isChunked: coding !== undefined,
    contentLength: length === undefined ? undefined : Number(length),
    keepAlive: isOld ? listsToken(tokens, "keep-alive") && !listsToken(tokens, "close") : !listsToken(tokens, "close"),
    expects:
      expect === undefined || isOld ? "nothing" : expect.toLowerCase() === "100-continue" ? "continue" : "unknown",
    upgrade: upgrade !== undefined && listsToken(tokens, "upgrade") ? upgrade : undefined,
    fault,
  };
}

/** `text` includes the first semicolon. */
export function checkExtensions(text: string): void {
  if (!EXTENSIONS.test(text)) throw new RequestError("bad", "a malformed chunk extension");
}

export function checkTrailer(line: string): void {
  if (!isHeaderValue(line)) throw new RequestError("bad", "a control character in a trailer");
  const name = line.slice(0, Math.max(0, line.indexOf(":")));
  if (!isHeaderName(name)) throw new RequestError("bad", "a malformed trailer");
  if (FRAMING_TRAILER.test(name)) throw new RequestError("bad", "a trailer that frames the message");
}

function isHttp10(method: string, version: string): boolean {
  if (version === "HTTP/1.1") return false;
  if (version === "HTTP/1.0") return true;
  const isRequest = OTHER_HTTP.test(version) && isKnownMethod(method);
  throw new RequestError(isRequest ? "version" : "bad", "the HTTP version is not 1.0 or 1.1");
}

function framingFault(length: string | undefined, coding: string | undefined, isOld: boolean): string | undefined {
  if (coding !== undefined) {
    if (length !== undefined) return "both content-length and transfer-encoding";
    return isOld || coding.toLowerCase() !== "chunked" ? "transfer-encoding other than chunked" : undefined;
  }
  return length !== undefined && !LENGTH.test(length) ? "the content-length is not a number" : undefined;
}

/** Parsers disagree on whether a tab is white space in these lines. */
function tabFault(text: string, from: number, to: number): string | undefined {
  const tab = text.indexOf("\t", from);
  return tab >= 0 && tab < to ? "a tab in a header that frames the message" : undefined;
}
