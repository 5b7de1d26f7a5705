/**
 * Converts the head of an outgoing request to HTTP/2 fields, and the fields of a response to a header list. Connection
 * headers of HTTP/1.1 are omitted (RFC 9113 section 8.2.2).
 */
import type { OutgoingHttpHeaders } from "node:http2";
import { HOP_BY_HOP_HEADERS } from "../header-rules.ts";
import { HeaderList } from "../headers.ts";
import type { OutgoingRequest } from "../http-client.ts";

export function requestFields(request: OutgoingRequest, scheme: "http" | "https"): OutgoingHttpHeaders {
  const { method, path, headers, wantsTrailers, body } = request;
  const fields: OutgoingHttpHeaders = { ":method": method, ":path": path, ":scheme": scheme };
  const host = headers.get("host");
  if (host !== undefined) fields[":authority"] = host;
  const { pairs } = headers;
  for (let i = 0; i < pairs.length; i += 2) {
    const name = pairs[i] as string;
    const value = pairs[i + 1] as string;
    if (HOP_BY_HOP_HEADERS.has(name) || name === "host" || name.startsWith(":") || name === "__proto__") continue;
    // Frames delimit the body, and a length without a body would be wrong.
    if (name === "content-length" && body === undefined && value !== "0") continue;
    const before = Object.hasOwn(fields, name) ? fields[name] : undefined;
    if (before === undefined) fields[name] = value;
    else if (Array.isArray(before)) before.push(value);
    else fields[name] = [String(before), value];
  }
  if (wantsTrailers === true) fields.te = "trailers";
  return fields;
}

/** `raw` alternates names and values as received. Pseudo-headers are omitted. */
export function headerList(raw: readonly string[]): HeaderList {
  return new HeaderList(plainPairs(raw));
}

export function plainPairs(raw: readonly string[]): string[] {
  const pairs: string[] = [];
  for (let i = 0; i + 1 < raw.length; i += 2)
    if (!(raw[i] as string).startsWith(":")) pairs.push(raw[i] as string, raw[i + 1] as string);
  return pairs;
}
