/**
 * The head of an HTTP/2 request has the same reading as the head of HTTP/1.1 with the same lines: the same verdict, host,
 * path, and headers. Heads that have no such form follow the rules of RFC 9113.
 */
import { peerInput } from "../../../src/base/peer-inputs.ts";
import type { ParsedRequest } from "../../../src/http/h1/request-parser.ts";
import { RequestParser } from "../../../src/http/h1/request-parser.ts";
import { parseStreamHead, type StreamHead } from "../../../src/http/h2/parse-stream-head.ts";
import { isSameAuthority } from "../../../src/http/host.ts";
import { RequestError, type RequestHead, readRequestHead } from "../../../src/http/request-head.ts";
import type { Random } from "../../support/random.ts";
import { defineTarget, expect, expectSame, refusalOf } from "../target.ts";

const HEAD = peerInput("client/http2-head");
const HTTP1_HEAD = peerInput("client/http1-head");
const FRAMING = peerInput("client/request-framing");
const PSEUDO = new Set([":method", ":scheme", ":authority", ":path"]);
const FILLER = "x".repeat(1_000);

/** `large` adds lines, up to the limits of a head. */
type HeadCase = { readonly isTrusted: boolean; readonly lines: readonly string[]; readonly large: number };

interface Read {
  readonly head: RequestHead | undefined;
  readonly problem: string | undefined;
}

function read(parse: () => RequestHead): Read {
  let head: RequestHead | undefined;
  const refusal = refusalOf(() => {
    head = parse();
  }, RequestError);
  return { head, problem: refusal && `${(refusal as RequestError).kind}: ${refusal.message}` };
}

/** The lines as an HTTP/1.1 client would send them, or undefined if it could not. */
function inHttp1(raw: readonly string[]): Buffer | undefined {
  const pseudo = new Map<string, string>();
  const lines: [name: string, value: string][] = [];
  const cookies: string[] = [];
  let hosts = 0;
  for (let i = 0; i < raw.length; i += 2) {
    const [name = "", value = ""] = raw.slice(i, i + 2);
    // A client of HTTP/1.1 would send another line for such a value or name, or frame another body.
    if (!isSendable(name + value) || value.trim() !== value || !/^:?[^\s:A-Z]+$/.test(name)) return undefined;
    if (/^(?:connection|transfer-encoding|upgrade|keep-alive|http2-settings|content-length)$/.test(name))
      return undefined;
    if (name.startsWith(":")) {
      if (pseudo.has(name) || lines.length > 0 || !PSEUDO.has(name)) return undefined;
      pseudo.set(name, value);
      continue;
    }
    if (name === "cookie") {
      cookies.push(value);
      if (cookies.length > 1) continue;
    }
    if (name === "host") {
      hosts += 1;
      const authority = pseudo.get(":authority");
      if (hosts === 1 && authority !== undefined && isSameAuthority(authority, value)) continue;
    }
    lines.push([name, value]);
  }
  // A parser of HTTP/1.1 removes the white space around a value.
  if (cookies.includes("")) return undefined;
  const method = pseudo.get(":method") ?? "";
  const path = pseudo.get(":path") ?? "";
  const scheme = pseudo.get(":scheme") ?? "http";
  // Another form of the target, or none.
  if (!/^(?:\/[\x21-\x7e]*|\*)$/.test(path) || !/^[A-Z]+$/.test(method) || method === "CONNECT") return undefined;
  if (!/^https?$/i.test(scheme)) return undefined;
  const authority = pseudo.get(":authority");
  const all = authority === undefined ? lines : [["host", authority] as const, ...lines];
  const shown = all.map(([name, value]) => `${name}: ${name === "cookie" ? cookies.join("; ") : value}\r\n`);
  return Buffer.from(`${method} ${path} HTTP/1.1\r\n${shown.join("")}\r\n`, "latin1");
}

/** A field of HTTP/2 consists of bytes. */
function isSendable(text: string): boolean {
  return !/[\r\n\0]/.test(text) && Buffer.from(text, "latin1").toString("latin1") === text;
}

function readHttp1(bytes: Buffer, isTrusted: boolean): Read {
  let request: ParsedRequest | undefined;
  return read(() => {
    const parser = new RequestParser(HTTP1_HEAD, FRAMING, {
      head: (parsed) => {
        request ??= parsed;
      },
      data: ignore,
      end: ignore,
    });
    parser.push(bytes, 0);
    if (request === undefined) throw new RequestError("bad", "the head is incomplete");
    return readRequestHead(HTTP1_HEAD, request, isTrusted, false);
  });
}

function checkAccepted(head: RequestHead, { contentLength, method }: StreamHead, raw: readonly string[]): void {
  const sent = raw.filter((_, i) => i % 2 === 0);
  expect(!sent.includes(":protocol"), "an extended CONNECT was accepted");
  expect(method !== "CONNECT" && method !== "TRACE", `${method} was accepted`);
  expect(head.path === "*" || head.path.startsWith("/"), "a path that does not begin with a slash");
  expect(!head.path.split(/[/\\]/).some((part) => /^\.{1,2}(?:;|$)/.test(part)), "a dot segment was accepted");
  expect(!/[\s/\\@?#%,]/.test(head.host) && head.host !== "", "a host with a separator, or none");
  expectSame(head.headers.get("host"), head.host, "the Host header");
  expect(contentLength === undefined || Number.isSafeInteger(contentLength), "an unsafe length");
  for (const [i, text] of head.headers.pairs.entries())
    expect(i % 2 === 0 ? /^[!#$%&'*+.^_`|~0-9a-z-]+$/i.test(text) : !/[\r\n\0]/.test(text), "an unsafe line");
  expect(!head.headers.has(":path") && !head.headers.has("expect"), "a line of the protocol was passed on");
}

const LINES = [
  "host: a.example", "host: b.example", "host: a.example:80", "host: ", "host: a b", "cookie: a=1", "cookie: b=2", "cookie: ",
  "te: trailers", "te: gzip", "content-type: application/grpc", "content-length: 3", "content-length: 03", "content-length: -1",
  "content-length: 9999999999999999", "expect: 100-continue", "expect: x", "x-a: 1", "x-b: \u00e9", "x_forwarded_for: 1",
  "x-forwarded-for: 1.2.3.4", "forwarded: for=1", "x-real-ip: 1", "authorization: Bearer x", "authorization: Basic y",
  "mcp-session-id: 1", "mcp_session_id: 1", "x-ratelimit-limit: 1", "x-api-key: k", "via: 2 x", "accept: */*", "connection: x-a",
  "transfer-encoding: chunked", "upgrade: websocket", ":protocol: websocket", "X-A: 1", "x y: 1", "x: \u0001", "x:  padded ",
  ":authority: a.example", ":path: /x", ":method: POST", ":status: 200", "origin: http://a", "origin: null", "proxy-authorization: x",
]; // biome-ignore format: a table
const AUTHORITIES = [
  "a.example", "A.Example", "a.example:80", "a.example.", "b.example", "[::1]", "[::1]:443", "u@a.example", "a b", "", "1.2.3.4",
  "a.example:99999", "xn--a",
]; // biome-ignore format: a table
const PATHS = [
  "/", "//", "a", "b", ".", "..", "%2e", "%2E%2e", "%2f", "%5c", "\\", ";x=1", "?", "#", "%", "%zz", "%00", "%61", "*", " ", "é", "=",
]; // biome-ignore format: a table
const METHODS = ["GET", "POST", "OPTIONS", "HEAD", "DELETE", "TRACE", "CONNECT", "PUT", "get", ""];
const SCHEMES = ["https", "http", "HTTPS", "ftp", ""];

function generate(random: Random): HeadCase {
  const lines = [
    `:method: ${random.oneIn(3) ? random.pick(METHODS) : "GET"}`,
    `:scheme: ${random.oneIn(6) ? random.pick(SCHEMES) : "https"}`,
    `:path: ${random.oneIn(16) ? "" : "/"}${random.text(PATHS, 5)}`,
  ];
  if (!random.oneIn(8)) lines.push(`:authority: ${random.oneIn(3) ? random.pick(AUTHORITIES) : "a.example"}`);
  if (random.oneIn(12)) lines.splice(random.int(lines.length), 1);
  lines.push(...random.list(5, () => random.pick(LINES)));
  return { isTrusted: random.oneIn(4), lines, large: random.oneIn(40) ? random.int(130) : 0 };
}

function pairsOf({ lines, large }: HeadCase): string[] {
  const raw = lines.flatMap((line) => {
    const colon = line.indexOf(": ", 1);
    return colon < 0 ? [line, ""] : [line.slice(0, colon), line.slice(colon + 2)];
  });
  const count = Math.min(200, Math.max(0, Math.floor(large)));
  // Few large lines reach the limit of bytes, and many small ones the limit of lines.
  for (let i = 0; i < count; i++) raw.push(`x-${i}`, count < 20 ? FILLER : "1");
  return raw;
}

export const http2Heads = defineTarget<HeadCase>({
  name: "http2-heads",
  seeds: [
    { lines: [":method: GET", ":scheme: https", ":path: /a/b?c=d", ":authority: a.example", "x-a: 1"] },
    { lines: [":method: POST", ":scheme: http", ":path: /", ":authority: a", "host: A", "cookie: a=1", "cookie: b=2"] },
    { lines: [":method: OPTIONS", ":scheme: https", ":path: *", "host: [::1]:80", "x-forwarded-for: 1.2.3.4"] },
  ].map(({ lines }) => ({ isTrusted: false, lines, large: 0 })),
  smokeCases: 6_000,
  generate,
  run(input) {
    const raw = pairsOf(input);
    const copy = [...raw];
    const parsed = parseStreamHead(raw);
    const { head, problem } = read(() => readRequestHead(HEAD, parsed, input.isTrusted, false));
    expectSame(raw, copy, "the received fields");
    if (head !== undefined) checkAccepted(head, parsed, raw);
    const bytes = inHttp1(raw);
    const verdict = problem ?? `accepted ${parsed.method} ${head?.headers.pairs.length} ${head?.query !== ""}`;
    if (bytes === undefined) return `${verdict.slice(0, 60)}, only HTTP/2`;
    const other = readHttp1(bytes, input.isTrusted);
    expectSame(problem === undefined, other.problem === undefined, `the verdict (${problem}, ${other.problem})`);
    if (head === undefined || other.head === undefined) return verdict.slice(0, 60);
    const isHttps = raw.some((text, i) => text === ":scheme" && raw[i + 1]?.toLowerCase() === "https");
    expectSame(head.namesHttps, isHttps, "the scheme");
    const shown = ({ host, path, rawPath, query, isForwarded, headers }: RequestHead) => [
      ...[host, path, rawPath, query, isForwarded],
      headers.pairs,
    ];
    expectSame(shown(head), shown(other.head), "the head");
    return verdict.slice(0, 60);
  },
});

function ignore(): void {
  // The head is what is looked at.
}
