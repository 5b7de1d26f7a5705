/**
 * Writes an HTTP/1.1 request head. Rejects values that could end their line early.
 */

import { ExpectedError } from "../../base/errors.ts";
import { isHeaderName } from "../../base/header-names.ts";
import { type HeaderList, isHeaderValue } from "../headers.ts";
import type { OutgoingRequest } from "../http-client.ts";

export class RequestError extends ExpectedError {
  constructor(message: string) {
    super(message);
    this.name = "RequestError";
  }
}

const METHOD = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
const PATH = /^[\x21-\x7e\x80-\xff]+$/;

export type BodyFraming =
  | { readonly kind: "none" }
  | { readonly kind: "length"; readonly length: number }
  | { readonly kind: "chunked" };

export function requestHead(
  method: string,
  path: string,
  headers: HeaderList,
  framing: BodyFraming,
  upgrade: string | undefined,
): string {
  if (!METHOD.test(method)) throw new RequestError("not a valid method");
  if (!PATH.test(path)) throw new RequestError("not a valid request target");
  let head = `${method} ${path} HTTP/1.1\r\n`;
  const { pairs, isSafe } = headers;
  for (let i = 0; i < pairs.length; i += 2) {
    const name = pairs[i] as string;
    // The framing headers of this connection are set below.
    if (name === "content-length" || name === "transfer-encoding" || name === "connection") continue;
    const value = pairs[i + 1] as string;
    if (!isSafe && !isHeaderName(name)) throw new RequestError("a header has no valid name");
    if (!isSafe && !isHeaderValue(value)) throw new RequestError(`the header ${name} has a control character`);
    head += `${name}: ${value}\r\n`;
  }
  if (framing.kind === "length") head += `content-length: ${framing.length}\r\n`;
  else if (framing.kind === "chunked") head += "transfer-encoding: chunked\r\n";
  head +=
    upgrade === undefined ? "connection: keep-alive\r\n\r\n" : `connection: upgrade\r\nupgrade: ${upgrade}\r\n\r\n`;
  return head;
}

export function framingOf({ method, headers, body }: OutgoingRequest): BodyFraming {
  if (Buffer.isBuffer(body)) return { kind: "length", length: body.length };
  if (body === undefined)
    return method === "POST" || method === "PUT" || method === "PATCH"
      ? { kind: "length", length: 0 }
      : { kind: "none" };
  const length = headers.get("content-length");
  return length === undefined ? { kind: "chunked" } : { kind: "length", length: Number(length) };
}

/**
 * Returns the header lines of the HTTP/1.1 request, alternating names and values. If the request cannot be sent, its
 * own headers are returned.
 */
export function writtenHeaders(request: OutgoingRequest): readonly string[] {
  const { method, path, headers, upgrade } = request;
  try {
    return requestHead(method, path, headers, framingOf(request), upgrade)
      .split("\r\n")
      .slice(1, -2)
      .flatMap((line) => {
        const colon = line.indexOf(": ");
        return [line.slice(0, colon), line.slice(colon + 2)];
      });
  } catch (error) {
    if (!(error instanceof RequestError)) throw error;
    return headers.pairs;
  }
}
