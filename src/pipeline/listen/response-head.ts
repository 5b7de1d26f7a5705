/**
 * The head of an answer and its trailers as text. The framing and the fate of the connection are said by us alone;
 * a value that could end its line is refused, the last gate before the client.
 */
import { STATUS_CODES } from "node:http";
import { isHeaderName } from "../../base/header-names.ts";
import { MESSAGE_HEADERS } from "../../http/header-rules.ts";
import { type HeaderList, isHeaderValue } from "../../http/headers.ts";

/** What frames or routes a message, or changes the client's state, comes too late in a trailer (RFC 9110 section 6.5.1). */
const NO_TRAILERS: ReadonlySet<string> = new Set([
  ...MESSAGE_HEADERS,
  "content-encoding",
  "content-type",
  "host",
  "set-cookie",
]);

const STATUS_LINES: string[] = [];

export interface HeadOptions {
  readonly isChunked: boolean;
  /** Seconds that the connection is kept for another request; 0 if it ends with this answer. */
  readonly keptSeconds: number;
  /** Now, in milliseconds since the epoch. */
  readonly now: number;
}

export function responseHead(status: number, headers: HeaderList, options: HeadOptions): string {
  let text = statusLine(status);
  let hasDate = false;
  const { pairs, isSafe } = headers;
  for (let i = 0; i < pairs.length; i += 2) {
    const name = pairs[i] as string;
    if (name === "connection" || name === "keep-alive" || name === "transfer-encoding") continue;
    if (name === "date") hasDate = true;
    text += isSafe ? `${name}: ${pairs[i + 1]}\r\n` : headerLine(name, pairs[i + 1] as string);
  }
  if (!hasDate) text += dateLine(options.now);
  if (options.isChunked) text += "transfer-encoding: chunked\r\n";
  return options.keptSeconds === 0
    ? `${text}connection: close\r\n\r\n`
    : `${text}connection: keep-alive\r\nkeep-alive: timeout=${options.keptSeconds}\r\n\r\n`;
}

/** 101: the names of the new protocol stand in `connection` and `upgrade`, as the backend sent them. */
export function upgradeHead(status: number, headers: HeaderList): string {
  let text = statusLine(status);
  for (let i = 0; i < headers.pairs.length; i += 2)
    text += headerLine(headers.pairs[i] as string, headers.pairs[i + 1] as string);
  return `${text}\r\n`;
}

export function trailerLines(flat: readonly string[] | undefined): string {
  let lines = "";
  if (flat === undefined) return lines;
  for (let i = 0; i + 1 < flat.length; i += 2) {
    if (!NO_TRAILERS.has(flat[i] as string)) lines += headerLine(flat[i] as string, flat[i + 1] as string);
  }
  return lines;
}

function headerLine(name: string, value: string): string {
  if (!isHeaderName(name)) throw new TypeError("a response header has an invalid name");
  if (!isHeaderValue(value)) throw new TypeError(`the response header ${name} has an invalid character`);
  return `${name}: ${value}\r\n`;
}

function statusLine(status: number): string {
  STATUS_LINES[status] ??= `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? "Unknown"}\r\n`;
  return STATUS_LINES[status];
}

let dateSecond = -1;
let dateText = "";

/** Made once a second. */
function dateLine(now: number): string {
  const second = Math.floor(now / 1000);
  if (second !== dateSecond) {
    dateSecond = second;
    dateText = `date: ${new Date(second * 1000).toUTCString()}\r\n`;
  }
  return dateText;
}
