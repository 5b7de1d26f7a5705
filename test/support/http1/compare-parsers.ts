/**
 * Compares the request parser with Node's parser on the same bytes. Both must parse the same requests. The parser may
 * reject more than Node for listed reasons, but never less.
 */
import type { NodeReading } from "./node-requests.ts";
import type { Reading } from "./read-requests.ts";

/** Why we are stricter, by the words of the refusal. */
export const STRICTER: Readonly<Record<string, string>> = {
  "transfer-encoding other than chunked": "Node accepts other codings before chunked, and any on HTTP/1.0",
  "the HTTP version is not 1.0 or 1.1": "Node reads HTTP/0.9 and HTTP/2.0 request lines",
  "a control character before the request": "Node skips bare CR and LF before a request",
  "the request does not begin with a method": "Node skips a bare LF before a request",
  "too many empty lines before the request": "Node skips any number of them",
  "a chunk size is too large": "Node reads 64 bits, leading zeros included; we read 8 digits",
  "the content-length is not a number": "Node reads lengths up to 64 bits; we read 15 digits",
  "a tab in a header that frames the message": "Node takes a tab before the value, and refuses one behind a coding",
  "both content-length and transfer-encoding": "Node ignores an empty Transfer-Encoding",
  "more than one transfer-encoding header": "Node takes the last of several codings",
  "a trailer that frames the message": "Node takes Host in a trailer",
  "a malformed chunk extension": "Node takes extensions with empty names or values",
  "the method is not served": "Node reads TRACE",
  "the target of CONNECT is not a host and a port": "Node reads other targets of CONNECT",
  "the request target is malformed": "Node checks targets more loosely",
};

/** A complaint, or the reason why we are stricter, or nothing. */
export interface Comparison {
  readonly complaint?: string;
  readonly stricter?: string;
}

export function compareReadings(ours: Reading, node: NodeReading): Comparison {
  const count = Math.max(ours.requests.length, node.requests.length);
  for (let i = 0; i < count; i++) {
    const mine = ours.requests[i];
    const theirs = node.requests[i];
    if (mine === undefined) {
      if (ours.closed) return {};
      // Whatever else is wrong with it: such a version alone is enough.
      if (ours.refusal !== undefined && theirs?.version !== "1.1" && theirs?.version !== "1.0")
        return strict("the HTTP version is not 1.0 or 1.1");
      return ours.refusal === undefined ? { complaint: `request ${i} is read by Node alone` } : strict(ours.refusal);
    }
    if (theirs === undefined) {
      // A head that Node refuses must not be a request for us.
      return { complaint: `request ${i} is read by us alone; Node: ${node.refusal}` };
    }
    const { head } = mine;
    const isSame =
      head.method === theirs.method &&
      head.target === theirs.target &&
      head.version === theirs.version &&
      head.pairs.join("\n") === theirs.pairs.join("\n");
    if (!isSame) return { complaint: `request ${i} is read differently` };
    // What broke the body may have been found earlier or later, but no byte of it may differ.
    const shared = Math.min(mine.body.length, theirs.body.length);
    if (mine.body.slice(0, shared) !== theirs.body.slice(0, shared)) return { complaint: `body ${i} differs` };
    if (mine.complete && theirs.complete && mine.body !== theirs.body) return { complaint: `body ${i} differs` };
    if (mine.complete && !theirs.complete) return { complaint: `body ${i} ends for us alone; Node: ${node.refusal}` };
    if (!mine.complete && theirs.complete)
      return ours.refusal === undefined ? { complaint: `body ${i} ends for Node alone` } : strict(ours.refusal);
    // Nothing after it is a request on this connection.
    if (mine.complete && !head.keepAlive) return {};
    // Node reads no further after an offer that nobody takes; we do.
    if (head.upgrade !== undefined || head.method === "CONNECT") return {};
  }
  // Both read the same so far; who refuses what follows is compared only if it is us alone.
  if (ours.refusal !== undefined && node.refusal === undefined) return early(ours.refusal);
  return {};
}

function strict(refusal: string): Comparison {
  return refusal in STRICTER ? { stricter: refusal } : { complaint: `we alone refuse: ${refusal}` };
}

/** Node has not made up its mind, because more could come; whatever came, it would have to refuse it or be listed. */
function early(refusal: string): Comparison {
  return { stricter: refusal in STRICTER ? refusal : `before Node: ${refusal}` };
}
