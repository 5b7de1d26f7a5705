/**
 * Parses a request into a tree in which short placeholders replace encoded images and files. Writing the tree restores
 * the data.
 */

import { InputError, type PeerInput } from "../base/peer-inputs.ts";
import { finish, type Steps } from "../base/sliced-work.ts";
import type { Members } from "./json.ts";
import { readMembersInSteps } from "./parse-in-steps.ts";
import { BACKSLASH, COMMA, endOfString, QUOTE } from "./syntax.ts";

export interface Skeleton {
  readonly value: Members;
  write(value: Members): readonly Buffer[];
  /**
   * Replaces the placeholders in a string of the tree with the encoded data. `maxBytes` truncates each part of the
   * string and each placeholder's data.
   */
  resolve(text: string, maxBytes?: number): string;
}

const MIN_BLOB_BYTES = 16 * 1024;
const SAMPLE_BYTES = 64;
const STEP_BYTES = 32 * 1024;

/** `tooLarge` completes a message that begins with "a request". */
export type NoSkeleton = { readonly tooLarge: string } | "not JSON";

/** `nonce` must be unknown to the client, so that the client cannot forge a placeholder. */
export function readSkeleton(input: PeerInput<"JSON">, bytes: Buffer, nonce: string): Skeleton | NoSkeleton {
  return finish(skeletonSteps(input, bytes, nonce));
}

/** The limit of bytes does not apply to images and files. */
export function* skeletonSteps(input: PeerInput<"JSON">, bytes: Buffer, nonce: string): Steps<Skeleton | NoSkeleton> {
  const { maxBytes: maxTreeBytes } = input;
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
  let value: Members | undefined;
  try {
    value = yield* readMembersInSteps(input, tree);
  } catch (error) {
    if (!(error instanceof InputError)) throw error;
    return error.problem === "items" ? { tooLarge: `of more than ${input.maxItems} values and names` } : tooLarge;
  }
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
  const mark = `@blob-${nonce}-`;
  let copied = 0;
  for (let at = text.indexOf(mark); at >= 0; at = text.indexOf(mark, at + mark.length)) {
    const end = text.indexOf("@", at + mark.length);
    const number = end < 0 ? "" : text.slice(at + mark.length, end);
    if (!/^\d+$/.test(number)) continue;
    if (at > copied) pieces.push(Buffer.from(text.slice(copied, at)));
    const blob = blobs[Number(number)];
    if (blob && blob.length > 0) pieces.push(blob);
    copied = end + 1;
  }
  if (copied < text.length) pieces.push(Buffer.from(text.slice(copied)));
  return pieces;
}

function markOf(nonce: string, index: number): string {
  return `@blob-${nonce}-${index}@`;
}

/** Returns the offset at which the base64 data of a string or data URL starts, or undefined if there is none. */
function startOfBlob(bytes: Buffer, start: number, end: number): number | undefined {
  if (bytes.toString("latin1", start, start + 5) === "data:") {
    const comma = bytes.indexOf(COMMA, start);
    return comma > 0 && comma - start < 256 && isBase64(bytes, comma + 1, end) ? comma + 1 : undefined;
  }
  return isBase64(bytes, start, end) ? start : undefined;
}

/**
 * Matches only samples, because prose of that size has spaces throughout. A string with a backslash is rejected,
 * because it has JSON escapes.
 */
function isBase64(bytes: Buffer, start: number, end: number): boolean {
  const middle = start + ((end - start) >> 1);
  const samples = [start, middle, end - SAMPLE_BYTES].map((at) => bytes.toString("latin1", at, at + SAMPLE_BYTES));
  return (
    samples.every((sample) => /^[A-Za-z0-9+/_-]+={0,2}$/.test(sample)) &&
    bytes.subarray(start, end).indexOf(BACKSLASH) < 0
  );
}
