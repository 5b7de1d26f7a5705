/**
 * Returns everything that the request parser reads from chunks of bytes: the requests, their bodies, and the end. The
 * parser continues with the next request when the previous one is complete, as on a connection.
 */
import { peerInput } from "../../../src/base/peer-inputs.ts";
import type { ParsedRequest } from "../../../src/http/h1/request-parser.ts";
import { RequestParser } from "../../../src/http/h1/request-parser.ts";
import { checkRequestLine, RequestError } from "../../../src/http/request-head.ts";

export interface ReadRequest {
  readonly head: ParsedRequest;
  body: string;
  complete: boolean;
}

export interface Reading {
  readonly requests: ReadRequest[];
  /** Why reading stopped; undefined if more could follow. */
  refusal: string | undefined;
  kind: string | undefined;
  /** The connection ends with the last request: nothing after it was read. */
  closed: boolean;
}

export function readRequests(pieces: readonly Buffer[]): Reading {
  const reading: Reading = { requests: [], refusal: undefined, kind: undefined, closed: false };
  let current: ReadRequest | undefined;
  const parser: RequestParser = new RequestParser(peerInput("client/http1-head"), peerInput("client/request-framing"), {
    head(head, body) {
      if (head.fault !== undefined) {
        reading.refusal = head.fault;
        reading.kind = "fault";
        return;
      }
      checkRequestLine(head, true);
      current = { head, body: body?.toString("latin1") ?? "", complete: !parser.isInBody };
      reading.requests.push(current);
    },
    data(chunk) {
      if (current) current.body += chunk.toString("latin1");
    },
    end() {
      if (current) current.complete = true;
    },
  });
  try {
    for (const piece of pieces) {
      for (let at = 0; at < piece.length && !reading.closed && reading.refusal === undefined; ) {
        at = parser.push(piece, at);
        reading.closed = current?.complete === true && !current.head.keepAlive;
      }
    }
  } catch (error) {
    if (!(error instanceof RequestError)) throw error;
    reading.refusal = error.message;
    reading.kind = error.kind;
  }
  return reading;
}

/** The same bytes, cut at these places. */
export function cutAt(bytes: Buffer, places: readonly number[]): Buffer[] {
  const pieces: Buffer[] = [];
  let from = 0;
  for (const place of [...places].sort((a, b) => a - b)) {
    if (place > from && place < bytes.length) {
      pieces.push(bytes.subarray(from, place));
      from = place;
    }
  }
  return [...pieces, bytes.subarray(from)];
}
