/**
 * What a peer may send to one reader, and the reader. The shapes make inputs of about the given size.
 */
import type { InputId } from "../../src/base/peer-inputs.ts";
import { endTurn } from "./turns.ts";

export interface HostileInput<T> {
  readonly shapes: Readonly<Record<string, (bytes: number) => T>>;
  /** The gateway's own reader. An error means that the reader refused the input. */
  readonly read: (input: T, pieceBytes: number) => unknown;
  /** Readers of streams read pieces of these sizes. */
  readonly pieces?: readonly number[];
  /** The smallest size at which work is counted; the other sizes are two and four times this. */
  readonly bytes?: number;
  /** For work of a library that grows faster within the limit of the input: fewer steps are not compared. */
  readonly uncomparedSteps?: number;
}

/** Hides the type of the input. */
export interface Hostile {
  readonly shapes: readonly string[];
  readonly pieces: readonly number[];
  readonly bytes: number;
  readonly uncomparedSteps: number;
  /** Returns the action that reads a new input. Making the input is not part of it. */
  prepare(shape: string, bytes: number, pieceBytes: number): () => unknown;
}

/** Other names than those of entries do not compile. */
export type HostileInputs = Readonly<Partial<Record<InputId, Hostile>>>;

/** Inputs of more bytes take the same steps for longer. */
export const MAX_MEASURED_BYTES = 4 * 1024 * 1024;

/** Enough to see a term that grows with the square, and little enough for a test. */
const COUNTED_BYTES = 1_000;

export function hostile<T>({
  shapes,
  read,
  pieces = [],
  bytes = COUNTED_BYTES,
  uncomparedSteps = 400,
}: HostileInput<T>): Hostile {
  return {
    shapes: Object.keys(shapes),
    pieces: pieces.length > 0 ? pieces : [Number.POSITIVE_INFINITY],
    bytes,
    uncomparedSteps,
    prepare(shape, size, pieceBytes) {
      const make = shapes[shape];
      if (make === undefined) throw new Error(`unknown shape ${shape}`);
      const input = make(size);
      // Joins the parts of a repeated text, which is no work of the reader.
      if (typeof input === "string") input.charCodeAt(0);
      return () => read(input, pieceBytes);
    },
  };
}

/** Joins the hostile inputs of one entry that more than one reader reads, or that has more than one form. */
export function together(forms: Readonly<Record<string, Hostile>>): Hostile {
  const all = Object.entries(forms);
  const shapes = new Map(
    all.flatMap(([name, form]) =>
      form.shapes.map((shape): [string, { form: Hostile; shape: string }] => [`${name}: ${shape}`, { form, shape }]),
    ),
  );
  return {
    shapes: [...shapes.keys()],
    pieces: [...new Set(all.flatMap(([, { pieces }]) => pieces))],
    bytes: Math.max(...all.map(([, { bytes }]) => bytes)),
    uncomparedSteps: Math.max(...all.map(([, { uncomparedSteps }]) => uncomparedSteps)),
    prepare(name, size, pieceBytes) {
      const found = shapes.get(name);
      if (found === undefined) throw new Error(`unknown shape ${name}`);
      return found.form.prepare(found.shape, size, pieceBytes);
    },
  };
}

/** Streams may arrive in many small pieces, or whole. */
export const STREAM_PIECES = [11, Number.POSITIVE_INFINITY];

/** Each piece is read in its own iteration of the event loop. */
export function* inPieces(bytes: Buffer, pieceBytes: number): Iterable<Buffer> {
  for (const piece of cut(bytes, pieceBytes)) {
    yield piece;
    endTurn();
  }
}

/** Copies, because readers may keep or reuse what they receive. */
export function cut(bytes: Buffer, pieceBytes: number): Buffer[] {
  const size = Math.max(1, Math.min(pieceBytes, bytes.length));
  const pieces: Buffer[] = [];
  for (let at = 0; at < bytes.length; at += size) pieces.push(Buffer.from(bytes.subarray(at, at + size)));
  return pieces;
}

/** Repeats an item up to the size. */
export function many(bytes: number, item: (index: number) => string, separator = ""): string {
  const items: string[] = [];
  for (let length = 0; length < bytes; length += (items.at(-1) as string).length + separator.length)
    items.push(item(items.length));
  return items.join(separator);
}

export function mapShapes<A, B>(
  shapes: Readonly<Record<string, (bytes: number) => A>>,
  map: (value: A) => B,
): Record<string, (bytes: number) => B> {
  return Object.fromEntries(Object.entries(shapes).map(([name, make]) => [name, (bytes: number) => map(make(bytes))]));
}
