/**
 * The head and the trailers of an answer as HTTP/2 fields. What belongs to one HTTP/1.1 connection has no place here
 * (RFC 9113 section 8.2.2), and repeated names become lists.
 */
import type { OutgoingHttpHeaders } from "node:http2";
import { HOP_BY_HOP_HEADERS } from "../../../http/header-rules.ts";
import type { HeaderList } from "../../../http/headers.ts";

export function responseFields(status: number, headers: HeaderList): OutgoingHttpHeaders {
  return fieldsOf(headers.pairs, { ":status": status });
}

export function trailerFields(flat: readonly string[] | undefined): OutgoingHttpHeaders {
  return fieldsOf(flat ?? [], {});
}

function fieldsOf(pairs: readonly string[], fields: OutgoingHttpHeaders): OutgoingHttpHeaders {
  for (let i = 0; i + 1 < pairs.length; i += 2) {
    const name = pairs[i] as string;
    const value = pairs[i + 1] as string;
    if (HOP_BY_HOP_HEADERS.has(name) || name.startsWith(":") || name === "__proto__") continue;
    const before = Object.hasOwn(fields, name) ? fields[name] : undefined;
    if (before === undefined) fields[name] = value;
    else if (Array.isArray(before)) before.push(value);
    else fields[name] = [String(before), value];
  }
  return fields;
}
