/**
 * Splits the head of an HTTP/2 request (RFC 9113 section 8.3) into the parts of an HTTP/1.1 head, and finds out how the
 * body is framed. `readRequestHead` judges what the parts say.
 */
import { isSameAuthority } from "../host.ts";
import { headBytes, type ReceivedHead } from "../request-head.ts";

const LENGTH = /^[0-9]{1,15}$/;

export interface StreamHead extends ReceivedHead {
  readonly contentLength: number | undefined;
  readonly wantsTrailers: boolean;
  readonly isGrpc: boolean;
}

/** `raw` alternates names and values as received. */
export function parseStreamHead(raw: readonly string[]): StreamHead {
  let method = "";
  let path = "";
  let authority: string | undefined;
  let scheme: string | undefined;
  let cookie = -1;
  let contentLength: number | undefined;
  let wantsTrailers = false;
  let isGrpc = false;
  let hasHost = false;
  let expects: StreamHead["expects"] = "nothing";
  let fault: string | undefined;
  // The authority becomes the Host header. A different one of the client is the second, which no request may have.
  let pairs = ["host", ""];
  for (let i = 0; i + 1 < raw.length; i += 2) {
    const name = raw[i] as string;
    const value = raw[i + 1] as string;
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
      case ":scheme":
        scheme = value;
        continue;
      case ":protocol":
        fault = "WebSocket over HTTP/2 is not supported: connect with HTTP/1.1";
        continue;
      case "host": {
        const isRepeated = !hasHost && authority !== undefined && isSameAuthority(authority, value);
        hasHost = true;
        if (isRepeated && method !== "CONNECT") continue;
        break;
      }
      case "cookie":
        // Clients may split the cookie header (RFC 9113 section 8.2.3), but HTTP/1.1 has a single line.
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
  const isConnect = method === "CONNECT";
  if (authority === undefined || (isConnect && hasHost)) pairs = pairs.slice(2);
  else pairs[1] = authority;
  const target = isConnect ? (authority ?? "") : path;
  return {
    method,
    target,
    scheme,
    version: "2",
    pairs,
    bytes: headBytes(method, target, pairs),
    fault,
    expects,
    contentLength,
    wantsTrailers,
    isGrpc,
  };
}
