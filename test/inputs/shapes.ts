/**
 * Hostile inputs by format. `inside` places a value where the reader looks for it.
 */
import { brotliCompressSync, deflateRawSync, gzipSync } from "node:zlib";
import { many } from "./hostile.ts";

type Shapes<T> = Record<string, (bytes: number) => T>;
type Inside = (value: string) => string;

const itself: Inside = (value) => value;

export function jsonShapes(inside: Inside = itself): Shapes<string> {
  return {
    "many small items": (n) => inside(`[${many(n, () => "1", ",")}]`),
    "many objects": (n) => inside(`[${many(n, (i) => `{"name":"n${i}","id":${i}}`, ",")}]`),
    "many names": (n) => inside(`{${many(n, (i) => `"name${i}":1`, ",")}}`),
    "one large string": (n) => inside(`"${"x".repeat(n)}"`),
    "one large escaped string": (n) => inside(`"${many(n, () => "\\u0041\\n")}"`),
    "one large number": (n) => inside("1".repeat(n)),
    "equal names": (n) => inside(`{${many(n, () => '"a":1', ",")}}`),
    "deep lists": (n) => inside("[".repeat(n / 2) + "]".repeat(n / 2)),
    "deep objects": (n) => inside(`${'{"a":'.repeat(n / 6)}1${"}".repeat(n / 6)}`),
    "never completed": (n) => inside('[{"a":"'.repeat(n / 7)),
    "never completed string": (n) => `{"a":"${"\\".repeat(n)}`,
    "invalid at the end": (n) => inside(`[${many(n, (i) => `{"a":${i}}`, ",")},]`),
    "white space": (n) => inside(`${" \n".repeat(n / 2)}1`),
  };
}

export function sseShapes(event: (bytes: number) => string = (n) => "x".repeat(n)): Shapes<Buffer> {
  const shapes: Shapes<string> = {
    "many small events": (n) => many(n, () => `data: ${event(1)}\n\n`),
    "many named events": (n) => many(n, (i) => `event: message\nid: ${i}\ndata: ${event(1)}\n\n`),
    "one large event": (n) => `data: ${event(n)}\n\n`,
    "one event of many lines": (n) => `${"data:\n".repeat(n / 6)}\n`,
    "equal fields": (n) => `${"id: 1\n".repeat(n / 6)}data: ${event(1)}\n\n`,
    "empty lines": (n) => "\n".repeat(n),
    "carriage returns": (n) => "\r".repeat(n),
    comments: (n) => ":\n".repeat(n / 2),
    "never completed line": (n) => `data: ${"x".repeat(n)}`,
    "never completed event": (n) => `data: ${event(1)}\n${"id: 1\n".repeat(n / 6)}`,
    "invalid at the end": (n) => `${many(n, () => `data: ${event(1)}\n\n`)}data: \u0000{[\n\n`,
  };
  return Object.fromEntries(Object.entries(shapes).map(([name, make]) => [name, (n: number) => Buffer.from(make(n))]));
}

export function lineShapes(line: (bytes: number, index: number) => string): Shapes<Buffer> {
  const shapes: Shapes<string> = {
    "many small lines": (n) => many(n, (i) => `${line(1, i)}\n`),
    "one large line": (n) => `${line(n, 0)}\n`,
    "empty lines": (n) => "\n".repeat(n),
    "equal lines": (n) => many(n, () => `${line(1, 0)}\n`),
    "lines with carriage returns": (n) => many(n, (i) => `${line(1, i)}\r\n`),
    "never completed": (n) => `${line(1, 0)}\n${"x".repeat(n)}`,
    "invalid lines": (n) => many(n, () => '{"a"\n'),
    "invalid at the end": (n) => `${many(n, (i) => `${line(1, i)}\n`)}{[\n`,
  };
  return Object.fromEntries(Object.entries(shapes).map(([name, make]) => [name, (n: number) => Buffer.from(make(n))]));
}

export function formShapes(): Shapes<string> {
  return {
    "many fields": (n) => many(n, (i) => `name${i}=1`, "&"),
    "equal names": (n) => many(n, () => "a=1", "&"),
    "one large value": (n) => `a=${"x".repeat(n)}`,
    "one large name": (n) => "x".repeat(n),
    "escapes only": (n) => `a=${"%41".repeat(n / 3)}`,
    "invalid escapes": (n) => `a=${"%4".repeat(n / 2)}`,
    "empty fields": (n) => "&".repeat(n),
    "only equals signs": (n) => "=".repeat(n),
    "invalid at the end": (n) => `${many(n, (i) => `n${i}=1`, "&")}&%`,
  };
}

/** Compressed forms of a text. The sizes are those of the text, because the reader's work grows with it. */
export function compressedShapes(
  text: (bytes: number) => string,
  compress: (bytes: Buffer) => Buffer = gzipSync,
): Shapes<Buffer> {
  return {
    "highly compressed": (n) => compress(Buffer.alloc(n)),
    "compressed text": (n) => compress(Buffer.from(text(n))),
    "hardly compressed": (n) => compress(noise(n)),
    "never completed": (n) => {
      const whole = compress(noise(n));
      return whole.subarray(0, whole.length - 8);
    },
    "bytes after the end": (n) => Buffer.concat([compress(Buffer.from("x")), Buffer.alloc(n, 1)]),
    "not compressed": (n) => Buffer.from("x".repeat(n)),
    "compressed twice": (n) => compress(compress(Buffer.alloc(n))),
  };
}

export const COMPRESSIONS = { gzip: gzipSync, br: brotliCompressSync, raw: deflateRawSync };

/** The same bytes each time, which do not compress. */
export function noise(bytes: number): Buffer {
  const out = Buffer.alloc(bytes);
  let state = 12_345;
  for (let i = 0; i < bytes; i++) {
    state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0;
    out[i] = state >>> 24;
  }
  return out;
}
