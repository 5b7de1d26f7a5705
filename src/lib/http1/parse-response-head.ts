/**
 * The head of an HTTP/1.1 response, from its text. What could be framed two ways (RFC 9112 section 6.3, section 11) is
 * refused: repeated or combined length headers, codings other than chunked, folded lines, bare line breaks.
 */
import { HeaderList } from "../http/headers.ts";
import { ExpectedError } from "../text/expected-error.ts";

export interface ParsedHead {
  readonly status: number;
  readonly headers: HeaderList;
  /** Whether the connection may serve another request after this response. */
  readonly keepAlive: boolean;
}

export class ResponseError extends ExpectedError {
  constructor(message: string) {
    super(message);
    this.name = "ResponseError";
  }
}

const STATUS_LINE = /^HTTP\/1\.([01]) ([1-5][0-9]{2})(?: .*)?$/;
// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what must not be there
const FORBIDDEN = /[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)|(?<!\r)\n/;
const NAME = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;

const TAB = 9;
const SPACE = 32;

export interface Framing {
  readonly chunked: boolean;
  /** Undefined: until the connection closes. */
  readonly length: number | undefined;
}

export function parseResponseHead(text: string): { head: ParsedHead; framing: Framing } {
  if (FORBIDDEN.test(text)) throw new ResponseError("a control character in the response head");
  let lineEnd = text.indexOf("\r\n");
  const status = STATUS_LINE.exec(lineEnd < 0 ? text : text.slice(0, lineEnd));
  if (!status) throw new ResponseError("the response does not begin with an HTTP/1.1 status line");
  const isOld = status[1] === "0";
  // HTTP/1.0 has no interim responses: to its readers this one would be the answer, and what follows its body.
  if (isOld && (status[2] as string) < "200") throw new ResponseError("an interim response in HTTP/1.0");
  const pairs: string[] = [];
  let length: number | undefined;
  let chunked = false;
  let connection = "";
  while (lineEnd >= 0) {
    const start = lineEnd + 2;
    lineEnd = text.indexOf("\r\n", start);
    const [name, value] = parseLine(lineEnd < 0 ? text.slice(start) : text.slice(start, lineEnd));
    pairs.push(name, value);
    if (name === "content-length") {
      if (length !== undefined || !/^[0-9]{1,15}$/.test(value))
        throw new ResponseError("the content-length is repeated or not a number");
      length = Number(value);
    } else if (name === "transfer-encoding") {
      if (chunked || isOld || value.toLowerCase() !== "chunked")
        throw new ResponseError("a transfer-encoding other than chunked");
      chunked = true;
    } else if (name === "connection") connection += `,${value.toLowerCase()}`;
  }
  if (chunked && length !== undefined) throw new ResponseError("both content-length and transfer-encoding");
  const keepAlive = isOld ? connection.includes("keep-alive") : !connection.includes("close");
  return {
    head: { status: Number(status[2]), headers: new HeaderList(pairs), keepAlive },
    framing: { chunked, length },
  };
}

/** A line of a trailer section. */
export function parseTrailer(text: string): [name: string, value: string] {
  if (FORBIDDEN.test(text)) throw new ResponseError("a control character in the trailers");
  const line = parseLine(text);
  // The body is over: a length that comes now could only be meant for another reader (RFC 9110 section 6.5.1).
  if (line[0] === "content-length" || line[0] === "transfer-encoding")
    throw new ResponseError(`a ${line[0]} in the trailers`);
  return line;
}

function parseLine(line: string): [name: string, value: string] {
  const colon = line.indexOf(":");
  const name = line.slice(0, Math.max(0, colon));
  if (!NAME.test(name)) throw new ResponseError("a malformed header line");
  return [name.toLowerCase(), withoutBlanks(line, colon + 1)];
}

/** Only space and tab may surround a value (RFC 9110 section 5.6.3): to `trim()` the byte 0xA0 is a blank as well. */
function withoutBlanks(line: string, from: number): string {
  let start = from;
  let end = line.length;
  while (start < end && isBlank(line.charCodeAt(start))) start += 1;
  while (end > start && isBlank(line.charCodeAt(end - 1))) end -= 1;
  return line.slice(start, end);
}

function isBlank(code: number): boolean {
  return code === SPACE || code === TAB;
}
