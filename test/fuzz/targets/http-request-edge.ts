/**
 * The head of a client's request, through our parser and the edge as in the running gateway: what they accept has one
 * reading. Judged by Node's parser, by the URL parser of the platform and by rules written a second time from the RFCs.
 */
import { peerInput } from "../../../src/base/peer-inputs.ts";
import type { ParsedRequest } from "../../../src/http/h1/request-parser.ts";
import { RequestParser } from "../../../src/http/h1/request-parser.ts";
import { RequestError, type RequestHead, readRequestHead } from "../../../src/http/request-head.ts";
import type { Random } from "../../support/random.ts";
import { type NodeMessage, readWithNode } from "../node-parser.ts";
import { defineTarget, expect, expectSame, refusalOf } from "../target.ts";

type Input = { readonly isTrusted: boolean; readonly bytes: Buffer };

const ONCE = [
  "host", "authorization", "content-type", "content-length", "transfer-encoding", "origin", "mcp-session-id", "x-api-key",
  "x-request-id", "last-event-id", "upgrade",
]; // biome-ignore format: a table

function checkHead(head: RequestHead, read: ParsedRequest, message: NodeMessage, isTrusted: boolean): void {
  expectSame(read.method, message.method, "the method");
  expectSame(read.target, message.url, "the target");
  expectSame(read.version, `${message.major}.${message.minor}`, "the version");
  const sent = message.rawHeaders.filter((_, i) => i % 2 === 0).map((name) => name.toLowerCase());
  for (const name of ONCE) expect(sent.filter((one) => one === name).length <= 1, `two ${name} were accepted`);
  expect(read.version === "1.0" || sent.includes("host"), "HTTP/1.1 without Host was accepted");
  expect(!(sent.includes("content-length") && sent.includes("transfer-encoding")), "two headers frame one body");
  checkHost(head.host);
  checkPath(head, read);
  for (const name of head.headers.names()) {
    expect(name === name.toLowerCase(), "a name is not lower case");
    expect(!name.startsWith("x-ratelimit-") && name !== "expect", `${name} passed the edge`);
    if (!isTrusted) expect(!/^(?:x-forwarded-.*|forwarded|x-real-ip)$/.test(name), `${name} of a stranger passed`);
    expect(!/^(?:x_forwarded_for|x_real_ip|content_length|mcp_session_id|x_api_key)$/.test(name), `${name} passed`);
    expect(sent.includes(name), `${name} was made up`);
  }
  for (const name of ["authorization", "content-type", "cookie", "content-length", "transfer-encoding"])
    if (sent.includes(name)) expect(head.headers.has(name), `${name} was taken away by connection`);
  if (read.contentLength !== undefined) expect(Number.isSafeInteger(read.contentLength), "an unsafe length");
}

function checkHost(host: string): void {
  if (host === "") return;
  expect(!/[\s/\\@?#%,]/.test(host), "a host with a separator");
  const url = URL.canParse(`http://${host}/`) ? new URL(`http://${host}/`) : undefined;
  if (url) expect(url.username === "" && url.pathname === "/" && url.search === "", "a host that is more than a host");
}

function checkPath({ path, rawPath, query }: RequestHead, { method, target: url }: ParsedRequest): void {
  if (path === "*") {
    expect(method === "OPTIONS", "a star");
    return;
  }
  expect(path.startsWith("/"), "a path that does not begin with a slash");
  const rest = url.replace(/^[a-z]+:\/\/[^/?]*/i, "");
  const sent = rest.startsWith("/") ? rest : `/${rest}`;
  expectSame(query === "" ? rawPath : `${rawPath}?${query}`, sent.replace(/^([^?]*)\?$/, "$1"), "the path and query");
  expect(!/[\\#\s]/.test(path) && !/%00/.test(path), "a path with a character that cuts it");
  // A path is merged and decoded as a careless backend would; no segment may step out of its place.
  for (const seen of [path, rawPath, path.replace(/%2f|%5c/gi, "/"), decodeOnce(path), decodeOnce(decodeOnce(path))])
    expect(!seen.split(/[/\\]/).some((part) => /^\.{1,2}(?:;|$)/.test(part)), "a dot segment was accepted");
  // The platform's parser would take dot segments out: then the count of segments changes.
  const parsed = new URL(`http://h${path}`).pathname;
  expectSame(parsed, path, "the path as the platform reads it");
}

function decodeOnce(path: string): string {
  return path.replace(/%[0-9a-f]{2}/gi, (code) => String.fromCharCode(Number.parseInt(code.slice(1), 16)));
}

const LINES = [
  "Host: a.example", "host: a.example:80", "Host: b.example", "Host: [::1]:80", "Host: a/b", "Host: a@b", "Host: ", "Host: a b",
  "content-length: 3", "content-length: 0", "Content-Length: 3, 3", "transfer-encoding: chunked", "transfer-encoding: gzip, chunked",
  "transfer-encoding: identity", "connection: close", "connection: keep-alive, x-a", "connection: authorization", "connection: x-b,cookie",
  "authorization: Bearer x", "cookie: a=b", "x-a: 1", "x-b: 2", "x_forwarded_for: 1", "X-Forwarded-For: 1", "forwarded: for=1",
  "x-real-ip: 1", "mcp-session-id: 1", "mcp_session_id: 1", "x-ratelimit-limit: 1", "expect: 100-continue", "content_length: 1",
  "x-api-key: k", "x_api_key: k", "upgrade: websocket", "te: trailers", "x: \u00e9", "transfer_encoding: chunked",
]; // biome-ignore format: a table
const PATHS = [
  "/", "//", "a", "b", ".", "..", "%2e", "%2E%2e", "%2f", "%5c", "\\", ";x=1", "?", "#", "%", "%zz", "%00", "%61", "*", "admin", " ",
  "é", "&", "=", "%25", "%252e", ":", "@", "~", "http://a.example", "https://b.example/x",
]; // biome-ignore format: a table
const METHODS = ["GET", "POST", "OPTIONS", "HEAD", "DELETE", "TRACE", "CONNECT", "PUT"];

function generate(random: Random): Input {
  const target = `${random.oneIn(12) ? "" : "/"}${random.text(PATHS, 6)}`;
  const method = random.oneIn(3) ? random.pick(METHODS) : "GET";
  let text = `${method} ${target} HTTP/1.${random.oneIn(12) ? 0 : 1}\r\n`;
  if (!random.oneIn(12)) text += "Host: a.example\r\n";
  for (let lines = random.int(5); lines > 0; lines--) text += `${random.pick(LINES)}\r\n`;
  return { isTrusted: random.oneIn(4), bytes: Buffer.from(`${text}\r\n`, "latin1") };
}

export const httpRequestEdge = defineTarget<Input>({
  name: "http-request-edge",
  seeds: [
    "GET /a/b?c=d HTTP/1.1\r\nHost: a.example\r\n\r\n",
    "POST http://a.example/x HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3\r\nConnection: x-a\r\nX-A: 1\r\n\r\n",
    "OPTIONS * HTTP/1.1\r\nHost: [::1]:80\r\nX-Forwarded-For: 1.2.3.4\r\n\r\n",
  ].map((text) => ({ isTrusted: false, bytes: Buffer.from(text) })),
  smokeCases: 6_000,
  generate,
  run({ isTrusted, bytes }) {
    let read: ParsedRequest | undefined;
    const unreadable = refusalOf(() => {
      new RequestParser(peerInput("client/http1-head"), peerInput("client/request-framing"), {
        head: (request) => {
          read ??= request;
        },
        data: ignore,
        end: ignore,
      }).push(bytes, 0);
    }, RequestError);
    const request = read as ParsedRequest | undefined;
    if (request === undefined) return `refused by the parser: ${unreadable?.message.slice(0, 60)}`;
    let head: RequestHead | undefined;
    const refusal = refusalOf(() => {
      head = readRequestHead(peerInput("client/http1-head"), request, isTrusted, false);
    }, RequestError);
    if (refusal !== undefined || head === undefined) return `refused: ${refusal?.message.slice(0, 60)}`;
    const { messages, error } = readWithNode("request", bytes, { endsHere: false });
    const [message] = messages;
    if (message === undefined)
      throw new Error(`Node refuses it: ${(error as { reason?: string } | undefined)?.reason}`);
    checkHead(head, request, message, isTrusted);
    const { method, version, isChunked } = request;
    return `accepted ${method} ${version} ${isChunked} ${head.headers.pairs.length} ${head.query !== ""}`;
  },
});

function ignore(): void {
  // The head is what is looked at.
}
