/**
 * Reads the body of a client's POST up to a limit. The rest of a larger body is discarded up to a second limit, because
 * many clients do not read the response while they are sending.
 */
import { isUtf8 } from "node:buffer";
import { MemoryExhausted } from "../../base/memory-budget.ts";
import { type PeerInput, peerInput } from "../../base/peer-inputs.ts";
import type { Exchange } from "../../core/exchange.ts";
import type { StreamedBody } from "../../core/read-body.ts";
import { type BodyStream, followBody, readAll } from "../../http/body.ts";
import { member, slice } from "../../json/json-text.ts";
import { readJson } from "../../json/read-json.ts";
import { INVALID_REQUEST, PARSE_ERROR } from "../protocol/json-rpc.ts";
import { RequestRejection } from "./http-request.ts";

const ID = peerInput("client/mcp-part");

/** The official SDKs use this code for errors without a JSON-RPC code. */
const OVERLOADED = -32000;
const RETRY_SECONDS = "5";
const MAX_DISCARDED_BYTES = 16 * 1024 * 1024;
/** The gateway searches this many bytes at the start and at the end of an oversized message for its id. */
const MAX_ID_WINDOW_BYTES = 4 * 1024;

/** Throws `RequestRejection`, or rejects with it, if the body cannot be accepted. */
export function readBody(exchange: Exchange, input: PeerInput): string | Promise<string> {
  const { body } = exchange.request;
  const { maxBytes } = input;
  if (body.kind === "none") return "";
  if (body.kind === "bytes") return asText(body.bytes, maxBytes);
  if (body.length !== undefined && body.length > maxBytes + MAX_DISCARDED_BYTES) throw tooLarge(maxBytes, undefined);
  return readUpTo(exchange, body, input).then((bytes) => {
    exchange.request.body = { kind: "bytes", bytes };
    return asText(bytes, maxBytes);
  });
}

function asText(bytes: Buffer, maxBytes: number): string {
  if (bytes.length > maxBytes) throw tooLarge(maxBytes, idIn(window(bytes, "start"), window(bytes, "end")));
  if (!isUtf8(bytes)) throw new RequestRejection(400, PARSE_ERROR, "Parse error: the body is not valid UTF-8");
  return bytes.toString("utf8");
}

async function readUpTo(exchange: Exchange, body: StreamedBody, input: PeerInput): Promise<Buffer> {
  const { stream, length } = body;
  const { maxBytes } = input;
  body.taken = true;
  try {
    return await readAll(stream, input, length === undefined || length > maxBytes ? undefined : length, {
      memory: exchange.bodyReservation(),
      tooLarge: (kept, chunk) => discardRest(stream, maxBytes, kept, chunk),
    });
  } catch (error) {
    if (!(error instanceof MemoryExhausted)) throw error;
    throw new RequestRejection(503, OVERLOADED, "Server error: there is no memory for the message; try again later", {
      headers: ["retry-after", RETRY_SECONDS],
    });
  }
}

function discardRest(stream: BodyStream, maxBytes: number, kept: Buffer, chunk: Buffer): Promise<never> {
  const first = Buffer.from(window(Buffer.concat([kept.subarray(0, MAX_ID_WINDOW_BYTES), chunk]), "start"));
  let last = Buffer.from(window(chunk, "end"));
  let bytes = kept.length + chunk.length;
  return new Promise((_resolve, reject) => {
    const stop = followBody(stream, {
      data(next) {
        bytes += next.length;
        last = Buffer.from(window(Buffer.concat([last, next]), "end"));
        if (bytes <= maxBytes + MAX_DISCARDED_BYTES) return;
        stop();
        stream.pause();
        reject(tooLarge(maxBytes, idIn(first, Buffer.alloc(0))));
      },
      end: () => reject(tooLarge(maxBytes, idIn(first, last))),
      failed: reject,
    });
  });
}

function tooLarge(maxBytes: number, id: string | undefined): RequestRejection {
  return new RequestRejection(413, INVALID_REQUEST, `Invalid Request: the message is larger than ${maxBytes} bytes`, {
    id,
  });
}

function window(bytes: Buffer, side: "start" | "end"): Buffer {
  return side === "start" ? bytes.subarray(0, MAX_ID_WINDOW_BYTES) : bytes.subarray(-MAX_ID_WINDOW_BYTES);
}

/** Matches the id at the end of the message, where it cannot be inside a string or a nested object. */
const LAST_MEMBER = /[,{]\s*"id"\s*:\s*("(?:[^"\\]|\\.)*"|-?\d{1,20})\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$/;

function idIn(first: Buffer, last: Buffer): string | undefined {
  const text = first.toString("utf8");
  const found = member(text, 0, "id");
  const id = found && found.end < text.length ? slice(text, found) : LAST_MEMBER.exec(last.toString("utf8"))?.[1];
  return id !== undefined && isId(id) ? id : undefined;
}

function isId(text: string): boolean {
  try {
    const value = readJson(ID, text);
    return typeof value === "string" || typeof value === "number";
  } catch {
    return false;
  }
}
