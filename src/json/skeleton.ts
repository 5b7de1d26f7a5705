/**
 * A request as a tree without its encoded images and files. Each is replaced by a short placeholder while the tree is
 * changed or translated, and restored when the tree is written. The tree of a 20 MB request is then as small as its
 * text.
 */

import { finish, type Steps } from "../base/sliced-work.ts";
import type { Members } from "./json.ts";
import { exceedsTokensInSteps } from "./parse-cost.ts";
import { parseMembersInSteps } from "./parse-in-steps.ts";
import { BACKSLASH, COMMA, endOfString, QUOTE } from "./syntax.ts";

export interface Skeleton {
  readonly value: Members;
  /** Serializes the value in chunks. Every placeholder in it is replaced by its encoded data. */
  write(value: Members): readonly Buffer[];
  /**
   * Returns a string of the tree with its placeholder replaced by the encoded data; only the beginning if `maxBytes` is
   * given.
   */
  resolve(text: string, maxBytes?: number): string;
}

/** Smaller strings are not replaced. */
const MIN_BLOB_BYTES = 16 * 1024;
const SAMPLE_BYTES = 64;
/**
 * Counts commas, opening brackets and, twice, colons, because a name costs more. 100,000 of them took 102 ms of CPU
 * time to parse, translate and write; the tools and messages of a large request have about 10,000.
 */
const MAX_TREE_TOKENS = 60_000;

/** Takes about 0.3 ms. */
const STEP_BYTES = 32 * 1024;

/** Why there is no tree, worded to follow "a request". */
export type NoSkeleton = { readonly tooLarge: string } | "not JSON";

/** `nonce` must be unknown to the client. */
export function readSkeleton(bytes: Buffer, maxTreeBytes: number, nonce: string): Skeleton | NoSkeleton {
  return finish(skeletonSteps(bytes, maxTreeBytes, nonce));
}

/** Like `readSkeleton`, in steps. */
export function* skeletonSteps(bytes: Buffer, maxTreeBytes: number, nonce: string): Steps<Skeleton | NoSkeleton> {
  const tooLarge = { tooLarge: `of more than ${maxTreeBytes} bytes besides images` };
  const pieces: Buffer[] = [];
  const blobs: Buffer[] = [];
  let from = 0;
  let size = 0;
  let pausedAt = 0;
  const keep = (start: number, end: number): void => {
    pieces.push(bytes.subarray(start, end));
    size += end - start;
  };
  for (let quote = bytes.indexOf(QUOTE); quote >= 0; ) {
    const start = quote + 1;
    const end = endOfString(bytes, start);
    if (end - start >= MIN_BLOB_BYTES) {
      const dataStart = startOfBlob(bytes, start, end);
      if (dataStart !== undefined) {
        keep(from, dataStart);
        pieces.push(Buffer.from(markOf(nonce, blobs.length)));
        blobs.push(bytes.subarray(dataStart, end));
        from = end;
      }
    }
    // Already too large, so the rest is not scanned.
    if (size + end - from > maxTreeBytes) return tooLarge;
    quote = bytes.indexOf(QUOTE, end + 1);
    if (end - pausedAt > STEP_BYTES) {
      pausedAt = end;
      yield;
    }
  }
  keep(from, bytes.length);
  if (size > maxTreeBytes) return tooLarge;
  const tree = pieces.length === 1 ? bytes : Buffer.concat(pieces);
  if (yield* exceedsTokensInSteps(tree, MAX_TREE_TOKENS))
    return { tooLarge: `of more than ${MAX_TREE_TOKENS} values and names` };
  yield;
  const value = yield* parseMembersInSteps(tree);
  if (value === undefined) return "not JSON";
  return {
    value,
    write: (changed) => restore(JSON.stringify(changed), nonce, blobs),
    resolve(text, maxBytes) {
      if (blobs.length === 0 || !text.includes("@blob-")) return text;
      const shown = (piece: Buffer): string => piece.toString("utf8", 0, maxBytes ?? piece.length);
      return restore(text, nonce, blobs).map(shown).join("");
    },
  };
}

function restore(text: string, nonce: string, blobs: readonly Buffer[]): readonly Buffer[] {
  if (blobs.length === 0) return [Buffer.from(text)];
  const pieces: Buffer[] = [];
  for (const [i, part] of text.split(new RegExp(`@blob-${nonce}-(\\d+)@`)).entries()) {
    // `split` with a group alternates between text and the group.
    const piece = i % 2 === 0 ? Buffer.from(part) : blobs[Number(part)];
    if (piece && piece.length > 0) pieces.push(piece);
  }
  return pieces;
}

function markOf(nonce: string, index: number): string {
  return `@blob-${nonce}-${index}@`;
}

/**
 * Returns where the encoded data begins: after the comma of a data URL, or at the start if the string looks like
 * base64.
 */
function startOfBlob(bytes: Buffer, start: number, end: number): number | undefined {
  if (bytes.toString("latin1", start, start + 5) === "data:") {
    const comma = bytes.indexOf(COMMA, start);
    return comma > 0 && comma - start < 256 && isBase64(bytes, comma + 1, end) ? comma + 1 : undefined;
  }
  return isBase64(bytes, start, end) ? start : undefined;
}

/**
 * Decides by samples, because text of that size has spaces throughout. A backslash starts an escape, which is not
 * base64 either.
 */
function isBase64(bytes: Buffer, start: number, end: number): boolean {
  const middle = start + ((end - start) >> 1);
  const samples = [start, middle, end - SAMPLE_BYTES].map((at) => bytes.toString("latin1", at, at + SAMPLE_BYTES));
  return (
    samples.every((sample) => /^[A-Za-z0-9+/_-]+={0,2}$/.test(sample)) &&
    bytes.subarray(start, end).indexOf(BACKSLASH) < 0
  );
}
