/** Readers whose growth is known, to test the counting. */
import { cut, hostile, inPieces, many } from "./hostile.ts";

const lines = (n: number): string => many(n, (i) => `item${i}\n`);
const bytes = (n: number): Buffer => Buffer.from(lines(n));

function quadratic<T>(make: (n: number) => T, read: (input: T) => unknown) {
  return hostile<T>({ shapes: { only: make }, read });
}

export const quadraticWork = {
  "a linear search for each item": quadratic(lines, (text) => {
    const seen: string[] = [];
    for (const line of text.split("\n")) if (!seen.includes(line)) seen.push(line);
    return seen.length;
  }),
  "a search with a callback for each item": quadratic(lines, (text) => {
    const seen: { line: string }[] = [];
    for (const line of text.split("\n")) if (!seen.some((one) => one.line === line)) seen.push({ line });
    return seen.length;
  }),
  "Buffer.concat for each piece": quadratic(bytes, (input) => {
    let held = Buffer.alloc(0);
    for (const piece of inPieces(input, 8)) held = Buffer.concat([held, piece]);
    return held.length;
  }),
  "a search of the whole text for each piece": quadratic(bytes, (input) => {
    let held = "";
    for (const piece of inPieces(input, 8)) {
      held += piece.toString("latin1");
      if (held.includes("\0")) return "found";
    }
    return held.length;
  }),
  "a shift of the list for each item": quadratic(lines, (text) => {
    const waiting = text.split("\n");
    let count = 0;
    while (waiting.shift() !== undefined) count += 1;
    return count;
  }),
  "a copy of the list for each item": quadratic(lines, (text) => {
    let all: string[] = [];
    for (const line of text.split("\n")) all = [...all, line];
    return all.length;
  }),
  "a copy of the rest of the text for each item": quadratic(bytes, (input) => {
    let rest = input;
    let count = 0;
    for (let end = rest.indexOf("\n"); end >= 0; end = rest.indexOf("\n")) {
      rest = Buffer.from(rest.subarray(end + 1));
      count += 1;
    }
    return count;
  }),
  "a regular expression that searches to the end for each item": quadratic(lines, (text) => {
    let count = 0;
    for (const _ of text.split("\n")) if (!/never/.test(text)) count += 1;
    return count;
  }),
};

export const linearWork = {
  "a set of items": hostile<string>({
    shapes: { only: lines },
    read: (text) => new Set(text.split("\n")).size,
  }),
  "a list of pieces": hostile<Buffer>({
    shapes: { only: bytes },
    read: (input) => Buffer.concat(cut(input, 8)).toString("utf8").length,
  }),
  "sorted items": hostile<string>({
    shapes: { only: lines },
    read: (text) => text.split("\n").sort().length,
  }),
};
