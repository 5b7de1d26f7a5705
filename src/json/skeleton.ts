/**
 * A request as a tree without its encoded images and files. Short placeholders replace the encoded data while the tree
 * is changed or translated, and writing the tree restores the data. The tree of a 20 MB request is then as small as its
 * messages.
 */

import { finish, type Steps } from "../base/sliced-work.ts";
import type { Members } from "./json.ts";
import { exceedsTokensInSteps } from "./parse-cost.ts";
import { parseMembersInSteps } from "./parse-in-steps.ts";
import { BACKSLASH, COMMA, endOfString, QUOTE } from "./syntax.ts";

export interface Skeleton {
  readonly value: Members;
  write(value: Members): readonly Buffer[];
  /**
   * Returns a string of the tree with its placeholder replaced by the encoded data, or by its first `maxBytes` bytes.
   */
  resolve(text: string, maxBytes?: number): string;
}

/** Smaller strings are not replaced. */
const MIN_BLOB_BYTES = 16 * 1024;
const SAMPLE_BYTES = 64;
/**
 * Commas and opening brackets count once, and colons count twice. Parsing, translating, and writing 100,000 tokens
 * takes 102 ms of CPU time. The tools and messages of a large request have about 10,000 tokens.
 */
const MAX_TREE_TOKENS = 60_000;

/** Scanning this many bytes takes about 0.3 ms. */
const STEP_BYTES = 32 * 1024;

/** The reason completes a message that begins with "a request". */
export type NoSkeleton = { readonly tooLarge: string } | "not JSON";

/** `nonce` must be unknown to the client, so that the client cannot forge a placeholder. */
export function readSkeleton(bytes: Buffer, maxTreeBytes: number, nonce: string): Skeleton | NoSkeleton {
  return finish(skeletonSteps(bytes, maxTreeBytes, nonce));
}

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
    // The tree is already too large, so scanning the rest is unnecessary.
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
    // `split` with a capturing group alternates between text and group matches.
    const piece = i % 2 === 0 ? Buffer.from(part) : blobs[Number(part)];
    if (piece && piece.length > 0) pieces.push(piece);
  }
  return pieces;
}

function markOf(nonce: string, index: number): string {
  return `@blob-${nonce}-${index}@`;
}

/** Returns the offset after the comma of a data URL, or `start` if the string looks like base64. */
function startOfBlob(bytes: Buffer, start: number, end: number): number | undefined {
  if (bytes.toString("latin1", start, start + 5) === "data:") {
    const comma = bytes.indexOf(COMMA, start);
    return comma > 0 && comma - start < 256 && isBase64(bytes, comma + 1, end) ? comma + 1 : undefined;
  }
  return isBase64(bytes, start, end) ? start : undefined;
}

/**
 * Checks samples only, because prose of that size has spaces throughout. A backslash starts an escape, which is not
 * valid in base64.
 */
function isBase64(bytes: Buffer, start: number, end: number): boolean {
  const middle = start + ((end - start) >> 1);
  const samples = [start, middle, end - SAMPLE_BYTES].map((at) => bytes.toString("latin1", at, at + SAMPLE_BYTES));
  return (
    samples.every((sample) => /^[A-Za-z0-9+/_-]+={0,2}$/.test(sample)) &&
    bytes.subarray(start, end).indexOf(BACKSLASH) < 0
  );
}
