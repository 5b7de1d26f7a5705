/**
 * The head of an outgoing request as HTTP/2 fields, and what an answer's fields say. What belongs to one HTTP/1.1
 * connection has no place here (RFC 9113 section 8.2.2).
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
    // The frames say where a body ends; a length without one would be a lie.
    if (name === "content-length" && body === undefined && value !== "0") continue;
    const before = Object.hasOwn(fields, name) ? fields[name] : undefined;
    if (before === undefined) fields[name] = value;
    else if (Array.isArray(before)) before.push(value);
    else fields[name] = [String(before), value];
  }
  if (wantsTrailers === true) fields.te = "trailers";
  return fields;
}

/** `raw`: name, value, name, value, … as they came; pseudo headers are left out. */
export function headerList(raw: readonly string[]): HeaderList {
  return new HeaderList(plainPairs(raw));
}

export function plainPairs(raw: readonly string[]): string[] {
  const pairs: string[] = [];
  for (let i = 0; i + 1 < raw.length; i += 2)
    if (!(raw[i] as string).startsWith(":")) pairs.push(raw[i] as string, raw[i + 1] as string);
  return pairs;
}
