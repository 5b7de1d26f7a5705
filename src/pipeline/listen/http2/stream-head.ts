/**
 * The head of an HTTP/2 request (RFC 9113 section 8.3) in the form in which every request enters: pseudo headers become
 * method, target and host. nghttp2 has refused what is malformed; here is refused what HTTP/1.1 would read otherwise.
 */
import type { EnteringHead } from "../request-entry.ts";

/** As large as a head of HTTP/1.1 may be; counted as RFC 9113 section 6.5.2 does. */
export const MAX_STREAM_HEAD_BYTES = 16 * 1024;
const BYTES_PER_FIELD = 32;

const VISIBLE = /^[\x21-\x7e]+$/;
const LENGTH = /^[0-9]{1,15}$/;

export interface StreamHead extends EnteringHead {
  readonly contentLength: number | undefined;
  /** The client reads trailers, as gRPC's do. */
  readonly wantsTrailers: boolean;
  readonly isGrpc: boolean;
}

/** `raw`: name, value, name, value, … as they came. */
export function readStreamHead(raw: readonly string[]): StreamHead {
  let method = "";
  let path = "";
  let authority: string | undefined;
  let host: string | undefined;
  let cookie = -1;
  let contentLength: number | undefined;
  let wantsTrailers = false;
  let isGrpc = false;
  let expects: StreamHead["expects"] = "nothing";
  let fault: string | undefined;
  let bytes = 0;
  // The host comes first, as in HTTP/1.1; filled in below.
  const pairs = ["host", ""];
  for (let i = 0; i + 1 < raw.length; i += 2) {
    const name = raw[i] as string;
    const value = raw[i + 1] as string;
    bytes += name.length + value.length + BYTES_PER_FIELD;
    switch (name) {
      case ":method":
        method = value;
        continue;
      case ":path":
        path = value;
        continue;
      case ":authority":
        authority = value;
        continue;
      case ":protocol":
        fault = "WebSocket over HTTP/2 is not supported: connect with HTTP/1.1";
        continue;
      case ":scheme":
        continue;
      case "host":
        if (host !== undefined) fault ??= "more than one host header";
        host = value;
        continue;
      case "cookie":
        // Clients may split it (RFC 9113 section 8.2.3); HTTP/1.1 knows one.
        if (cookie >= 0) {
          pairs[cookie] = `${pairs[cookie]}; ${value}`;
          continue;
        }
        cookie = pairs.length + 1;
        break;
      case "te":
        wantsTrailers = value.toLowerCase() === "trailers";
        break;
      case "content-type":
        isGrpc = value.startsWith("application/grpc");
        break;
      case "expect":
        expects = value.toLowerCase() === "100-continue" ? "continue" : "unknown";
        break;
      case "content-length":
        if (!LENGTH.test(value)) fault ??= "the content-length is not a number";
        else contentLength = Number(value);
    }
    pairs.push(name, value);
  }
  if (authority !== undefined && host !== undefined && authority.toLowerCase() !== host.toLowerCase())
    fault ??= "the authority and the Host header disagree";
  const named = authority ?? host;
  if (named === undefined) pairs.splice(0, 2);
  else pairs[1] = named;
  if (method !== "CONNECT" && (!VISIBLE.test(path) || !(path.startsWith("/") || path === "*")))
    fault ??= "the request target is malformed";
  return {
    method,
    target: method === "CONNECT" ? (named ?? "") : path,
    version: "2",
    pairs,
    fault,
    isTooLarge: bytes > MAX_STREAM_HEAD_BYTES,
    expects,
    contentLength,
    wantsTrailers,
    isGrpc,
  };
}
