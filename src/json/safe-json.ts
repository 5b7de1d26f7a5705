/**
 * Serializes JSON for display in a terminal, with the characters escaped that could move the cursor, start a line, or
 * reorder the text.
 */
import { escapeLines } from "../base/safe-text.ts";

type Steps = Generator<undefined, string, undefined>;

export function safeJson(value: unknown, indent?: number): string {
  return escapeLines(JSON.stringify(value, null, indent));
}

/**
 * Produces the same string as `safeJson(value, 2)` in steps, so that a large object does not block the event loop.
 * A member that is an iterable is written as an array.
 */
export function* safeJsonInSteps(value: Readonly<Record<string, unknown>>): Steps {
  const members: string[] = [];
  for (const [name, member] of Object.entries(value)) {
    if (member === undefined) continue;
    yield;
    const text = isIterable(member) ? yield* listInSteps(member) : indented(member);
    members.push(`  ${safeJson(name)}: ${text}`);
  }
  return members.length === 0 ? "{}" : `{\n${members.join(",\n")}\n}`;
}

const PIECE_CHARS = 64 * 1024;

/**
 * Returns the JSON of an object of lists in pieces, each of which ends after a complete item. Pieces can be redacted and
 * sent one at a time, so that a large object does not block the event loop.
 */
export function safeJsonPieces(lists: Readonly<Record<string, readonly unknown[]>>): string[] {
  const pieces: string[] = [];
  let piece = "{";
  for (const [index, [name, list]] of Object.entries(lists).entries()) {
    piece += `${index === 0 ? "" : ","}${safeJson(name)}:[`;
    for (const [at, item] of list.entries()) {
      piece += `${at === 0 ? "" : ","}${safeJson(item)}`;
      if (piece.length < PIECE_CHARS) continue;
      pieces.push(piece);
      piece = "";
    }
    piece += "]";
  }
  return [...pieces, `${piece}}`];
}

function isIterable(value: unknown): value is Iterable<unknown> {
  return typeof value === "object" && value !== null && Symbol.iterator in value;
}

function* listInSteps(list: Iterable<unknown>): Steps {
  const items: string[] = [];
  for (const item of list) {
    items.push(`    ${indented(item, "    ")}`);
    yield;
  }
  return items.length === 0 ? "[]" : `[\n${items.join(",\n")}\n  ]`;
}

function indented(value: unknown, indent = "  "): string {
  return safeJson(value ?? null, 2).replaceAll("\n", `\n${indent}`);
}
