/**
 * Parses the head of an HTTP/1.1 response. Rejects heads that could be framed in two ways (RFC 9112 sections 6.3 and
 * 11).
 */

import { ExpectedError } from "../../base/errors.ts";
import { lowerHeaderName } from "../../base/header-names.ts";
import { areHeaderLines, HeaderList, isHeaderValue } from "../headers.ts";
import { listsToken, trimmed } from "./message-framing.ts";

export interface ParsedHead {
  readonly status: number;
  readonly headers: HeaderList;
  readonly keepAlive: boolean;
}

export class ResponseError extends ExpectedError {
  constructor(message: string) {
    super(message);
    this.name = "ResponseError";
  }
}

/** The reason phrase may contain any character of a header value. */
const STATUS_LINE = /^HTTP\/1\.([01]) ([1-5][0-9]{2})(?: [\t\x20-\x7e\x80-\xff]*)?$/;
const LENGTH = /^[0-9]{1,15}$/;

export interface Framing {
  readonly chunked: boolean;
  /** If the length is undefined and the body is not chunked, the body ends when the connection closes. */
  readonly length: number | undefined;
}

export function parseResponseHead(text: string): { head: ParsedHead; framing: Framing } {
  let lineEnd = text.indexOf("\r\n");
  const status = STATUS_LINE.exec(lineEnd < 0 ? text : text.slice(0, lineEnd));
  if (!status) throw new ResponseError("the response does not begin with an HTTP/1.1 status line");
  const isOld = status[1] === "0";
  // HTTP/1.0 has no interim responses. Its clients would parse the final response as the body of an interim response.
  if (isOld && (status[2] as string) < "200") throw new ResponseError("an interim response in HTTP/1.0");
  const areValues = areHeaderLines(text);
  const pairs: string[] = [];
  let length: number | undefined;
  let chunked = false;
  let connection = "";
  while (lineEnd >= 0) {
    const start = lineEnd + 2;
    lineEnd = text.indexOf("\r\n", start);
    const end = lineEnd < 0 ? text.length : lineEnd;
    const colon = text.indexOf(":", start);
    const name = nameBefore(text, start, colon, end);
    const value = areValues ? trimmed(text, colon + 1, end) : valueAfter(text, colon, end);
    pairs.push(name, value);
    // Parsers disagree on a tab next to a length or a coding, and therefore on the end of the body.
    if (name === "content-length" || name === "transfer-encoding") {
      const tab = text.indexOf("\t", colon);
      if (tab >= 0 && tab < end) throw new ResponseError("a tab in a header that frames the body");
    }
    if (name === "content-length") {
      if (length !== undefined || !LENGTH.test(value))
        throw new ResponseError("the content-length is repeated or not a number");
      length = Number(value);
    } else if (name === "transfer-encoding") {
      if (chunked || isOld || value.toLowerCase() !== "chunked")
        throw new ResponseError("a transfer-encoding other than chunked");
      chunked = true;
    } else if (name === "connection") connection += `,${value.toLowerCase()}`;
  }
  if (chunked && length !== undefined) throw new ResponseError("both content-length and transfer-encoding");
  // With HTTP/1.0, only the exact token keeps the connection alive. Any text that contains `close` closes it.
  const keepAlive = !connection.includes("close") && (!isOld || listsToken(connection, "keep-alive"));
  return {
    head: { status: Number(status[2]), headers: new HeaderList(pairs, true), keepAlive },
    framing: { chunked, length },
  };
}

export function parseTrailer(line: string): [name: string, value: string] {
  const colon = line.indexOf(":");
  const name = nameBefore(line, 0, colon, line.length);
  // The body has ended, so a length in the trailers could only target another parser (RFC 9110 section 6.5.1).
  if (name === "content-length" || name === "transfer-encoding") throw new ResponseError(`a ${name} in the trailers`);
  return [name, valueAfter(line, colon, line.length)];
}

function nameBefore(text: string, start: number, colon: number, end: number): string {
  const name = lowerHeaderName(text.slice(start, colon < start || colon > end ? start : colon));
  if (name === undefined) throw new ResponseError("a malformed header line");
  return name;
}

/** A line ends with CR LF only. A single CR or LF is not allowed in a value. */
function valueAfter(text: string, colon: number, end: number): string {
  const value = trimmed(text, colon + 1, end);
  if (!isHeaderValue(value)) throw new ResponseError("a control character in the response head");
  return value;
}
