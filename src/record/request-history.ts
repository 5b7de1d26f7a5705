/**
 * Keeps records of the most recent requests for rehearsals and recordings. Records are serialized into byte buffers,
 * which the garbage collector does not traverse.
 */
import { Buffer } from "node:buffer";
import { peerInput } from "../base/peer-inputs.ts";
import type { Exchange } from "../core/exchange.ts";
import type { Outcome } from "../core/policy.ts";
import { readJson } from "../json/read-json.ts";
import { type RecordedRequest, readRecord, recordText, recordTime } from "./recorded-request.ts";
import type { Redaction } from "./trace/redact.ts";

const ATTRIBUTES = peerInput("gateway/recorded-attributes");

export const RECORDED_REQUESTS = 10_000;
/** Requests above this rate are not recorded unless there is a follower. */
const RECORDED_PER_SECOND = 500;
const WINDOW_MS = 100;
const MAX_RECORD_BYTES = 32 * 1024;
const SEGMENT_BYTES = 128 * 1024;
/** Limits the history to 16 MiB. With large records, fewer than `RECORDED_REQUESTS` are kept. */
const MAX_SEGMENTS = 128;
const SHARED_CLAIMS = 1_000;
const END = "\0";

interface Segment {
  readonly bytes: Buffer;
  used: number;
  count: number;
}

export interface RequestHistory {
  /** Records a finished request, unless its record is too large or, without a follower, the rate limit is exceeded. */
  note(exchange: Exchange, outcome: Outcome, durationMs: number): void;
  /** Returns copies of the buffers, oldest first. */
  segments(): Uint8Array[];
  /** Returns the live buffers, oldest first. They are reused, so callers must read them synchronously. */
  views(): Uint8Array[];
  follow(listener: (text: string) => void): () => void;
  readonly counts: { readonly requests: number; readonly leftOut: number; readonly bytes: number };
}

export function createRequestHistory(redaction: Redaction, perSecond = RECORDED_PER_SECOND): RequestHistory {
  const perWindow = (perSecond * WINDOW_MS) / 1_000;
  const segments: Segment[] = [];
  const followers = new Set<(text: string) => void>();
  let count = 0;
  let leftOut = 0;
  let window = -1;
  let inWindow = 0;

  function isTooMany(atMs: number): boolean {
    const now = Math.floor(atMs / WINDOW_MS);
    if (now !== window) {
      window = now;
      inWindow = 0;
    }
    inWindow += 1;
    return inWindow > perWindow;
  }

  /** Returns a segment with this many free bytes, and reuses the oldest segment if the limit is reached. */
  function roomFor(bytes: number): Segment {
    const last = segments[segments.length - 1];
    if (last !== undefined && last.used + bytes <= SEGMENT_BYTES) return last;
    const first = segments[0];
    const isFull = segments.length >= MAX_SEGMENTS || (first !== undefined && count - first.count >= RECORDED_REQUESTS);
    let next: Segment;
    if (isFull && first !== undefined) {
      segments.shift();
      count -= first.count;
      next = { bytes: first.bytes, used: 0, count: 0 };
    } else next = { bytes: Buffer.allocUnsafeSlow(SEGMENT_BYTES), used: 0, count: 0 };
    segments.push(next);
    return next;
  }

  return {
    note(exchange, outcome, durationMs) {
      if (isTooMany(exchange.startedAt + durationMs) && followers.size === 0) return;
      const text = recordText(exchange, outcome, durationMs, redaction);
      const worst = text.length * 3 + 1;
      const bytes = worst <= MAX_RECORD_BYTES ? worst : Buffer.byteLength(text) + 1;
      if (bytes > MAX_RECORD_BYTES) {
        leftOut += 1;
        return;
      }
      const segment = roomFor(bytes);
      segment.used += segment.bytes.write(text, segment.used, "utf8");
      segment.bytes[segment.used] = 0;
      segment.used += 1;
      segment.count += 1;
      count += 1;
      if (followers.size > 0) for (const follower of followers) follower(text);
    },
    segments: () =>
      segments.map(({ bytes, used }) => {
        // Another thread can read shared memory without a second copy.
        const copy = new Uint8Array(new SharedArrayBuffer(used));
        copy.set(bytes.subarray(0, used));
        return copy;
      }),
    views: () => segments.map(({ bytes, used }) => bytes.subarray(0, used)),
    follow(listener) {
      followers.add(listener);
      return () => void followers.delete(listener);
    },
    get counts() {
      return { requests: Math.min(count, RECORDED_REQUESTS), leftOut, bytes: segments.length * SEGMENT_BYTES };
    },
  };
}

export function readSegments(segments: readonly Uint8Array[]): RecordedRequest[] {
  return splitRecords(segments).flatMap((text) => readRecord(text) ?? []);
}

/** Iterates over recorded requests in order of arrival. */
export interface RecordedTraffic extends Iterable<RecordedRequest> {
  readonly firstAt: number | undefined;
}

/** Parses each record only when it is iterated. */
export function readTraffic(segments: readonly Uint8Array[]): RecordedTraffic {
  const texts = splitRecords(segments).filter((text) => Number.isFinite(recordTime(text)));
  const times = Float64Array.from(texts, recordTime);
  const order = [...texts.keys()].sort((one, other) => (times[one] ?? 0) - (times[other] ?? 0));
  const parse = parseOnce();
  return {
    firstAt: order[0] === undefined ? undefined : times[order[0]],
    *[Symbol.iterator]() {
      for (const index of order) {
        const record = readRecord(texts[index] as string, parse);
        if (record) yield record;
      }
    },
  };
}

/** Returns a JSON parser that caches its results, because many requests have the same claims. */
function parseOnce(): (text: string) => unknown {
  const known = new Map<string, unknown>();
  return (text) => {
    const before = known.get(text);
    if (before !== undefined) return before;
    const value: unknown = readJson(ATTRIBUTES, text);
    if (known.size >= SHARED_CLAIMS) known.clear();
    known.set(text, value);
    return value;
  };
}

function splitRecords(segments: readonly Uint8Array[]): string[] {
  const texts = segments.flatMap((bytes) =>
    Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("utf8").split(END).slice(0, -1),
  );
  return texts.slice(-RECORDED_REQUESTS);
}
