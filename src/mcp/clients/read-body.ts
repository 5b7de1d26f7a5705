/**
 * The body of a client's POST as text, up to the backend's limit. One that is larger is refused in the client's own
 * protocol: its rest is read and thrown away up to a bound, because clients that are still sending do not look at an
 * answer, and because the official SDK writes the id last.
 */
import { isUtf8 } from "node:buffer";
import type { Exchange } from "../../core/exchange.ts";
import { followBody } from "../../lib/http/body.ts";
import type { BodyStream } from "../../lib/http/body-stream.ts";
import { INVALID_REQUEST, PARSE_ERROR } from "../wire/json-rpc.ts";
import { member, slice } from "../wire/json-text.ts";
import { Refused } from "./downstream.ts";

/** Read beyond the limit without keeping it. */
const MAX_DISCARDED_BYTES = 16 * 1024 * 1024;
/** Where the id is looked for in what is too large: at its beginning and at its end. */
const MAX_ID_WINDOW_BYTES = 4 * 1024;

/** Throws Refused, also later. */
export function readBody(exchange: Exchange, maxBytes: number): string | Promise<string> {
  const { body } = exchange.request;
  if (body.kind === "none") return "";
  if (body.kind === "bytes") return asText(body.bytes, maxBytes);
  if (body.length !== undefined && body.length > maxBytes + MAX_DISCARDED_BYTES) throw tooLarge(maxBytes, undefined);
  return readUpTo(body.stream, maxBytes).then((bytes) => {
    exchange.request.body = { kind: "bytes", bytes };
    return asText(bytes, maxBytes);
  });
}

function asText(bytes: Buffer, maxBytes: number): string {
  if (bytes.length > maxBytes) throw tooLarge(maxBytes, idIn(window(bytes, "start"), window(bytes, "end")));
  if (!isUtf8(bytes)) throw new Refused(400, PARSE_ERROR, "Parse error: the body is not valid UTF-8");
  return bytes.toString("utf8");
}

function readUpTo(stream: BodyStream, maxBytes: number): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    let chunks: Buffer[] = [];
    let bytes = 0;
    let first: Buffer | undefined;
    let last = Buffer.alloc(0);
    const stop = followBody(stream, {
      data(chunk) {
        bytes += chunk.length;
        if (bytes <= maxBytes) {
          chunks.push(chunk);
          return;
        }
        first ??= window(Buffer.concat([...chunks, chunk]), "start");
        last = Buffer.from(window(Buffer.concat([last, chunk]), "end"));
        chunks = [];
        if (bytes <= maxBytes + MAX_DISCARDED_BYTES) return;
        stop();
        stream.pause();
        reject(tooLarge(maxBytes, idIn(first, Buffer.alloc(0))));
      },
      end() {
        if (first) reject(tooLarge(maxBytes, idIn(first, last)));
        else resolve(chunks.length === 1 ? (chunks[0] as Buffer) : Buffer.concat(chunks));
      },
      failed: reject,
    });
  });
}

function tooLarge(maxBytes: number, id: string | undefined): Refused {
  return new Refused(413, INVALID_REQUEST, `Invalid Request: the message is larger than ${maxBytes} bytes`, { id });
}

function window(bytes: Buffer, side: "start" | "end"): Buffer {
  return side === "start" ? bytes.subarray(0, MAX_ID_WINDOW_BYTES) : bytes.subarray(-MAX_ID_WINDOW_BYTES);
}

/** The last member of the whole object: what ends the text cannot stand in a string or deeper. */
const LAST_MEMBER = /[,{]\s*"id"\s*:\s*("(?:[^"\\]|\\.)*"|-?\d{1,20})\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$/;

/** The id of a message of which only the beginning and the end are known. */
function idIn(first: Buffer, last: Buffer): string | undefined {
  const text = first.toString("utf8");
  const found = member(text, 0, "id");
  const id = found && found.end < text.length ? slice(text, found) : LAST_MEMBER.exec(last.toString("utf8"))?.[1];
  return id !== undefined && isId(id) ? id : undefined;
}

function isId(text: string): boolean {
  try {
    const value = JSON.parse(text) as unknown;
    return typeof value === "string" || typeof value === "number";
  } catch {
    return false;
  }
}
