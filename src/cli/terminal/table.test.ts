import assert from "node:assert/strict";
import { test } from "node:test";
import { table } from "./table.ts";
import type { Paint } from "./terminal.ts";

const paintFor = (columns: number): Paint => Object.assign((text: string) => text, { columns });
const HEAD = ["TIME", "ID", "REQUEST", "RESULT"];
const WIDTHS = [12, 36, 14];
const ID = "0b6f1c2e-5a51-4f6c-9f61-2a3f0f9f5a11";
const MESSAGES = ["ok", "authentication_failed: no API key was sent", "x".repeat(300), "a word ".repeat(40).trim()];

for (const columns of [40, 60, 72, 80, 100, 120, 200])
  test(`rows that are printed one by one fit into ${columns} columns, are complete, and align with their header`, () => {
    const print = (row: string[]): string[] =>
      table([row], { paint: paintFor(columns), minWidths: WIDTHS, maxLastChars: 10_000 })
        .trimEnd()
        .split("\n");
    const head = print(HEAD);
    for (const message of MESSAGES) {
      const row = ["12:00:00.000", ID, "GET /people/1?x=1&y=2", message];
      const lines = print(row);
      assert.ok(
        [...head, ...lines].every((line) => line.length <= columns),
        lines.join("\n"),
      );
      const shown = lines.join("").replaceAll(" ", "");
      for (const cell of [row[0], message]) assert.ok(hasLettersInOrder(shown, cell ?? ""), lines.join("\n"));
      // No column is one character wide.
      assert.ok(lines.length <= 4 + Math.ceil((message.length * 2) / Math.min(30, columns - 4)), lines.join("\n"));
      // The columns align with the header.
      if (columns >= 100) assert.equal(lines[0]?.indexOf("GET"), head[0]?.indexOf("REQUEST"));
    }
  });

/** True if `text` contains the characters of `shown` in order. */
function hasLettersInOrder(shown: string, text: string): boolean {
  let at = 0;
  for (const letter of text.replaceAll(" ", "")) {
    at = shown.indexOf(letter, at) + 1;
    if (at === 0) return false;
  }
  return true;
}
