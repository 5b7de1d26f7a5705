import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { chatUsage, chunk, claudeStart, claudeText, SSE } from "../../../test/support/llm/usage.ts";
import { endsEvent, isPlainEvents, usageEventAt } from "./event-content.ts";
import { createUsageTap, type TapReport } from "./response-usage.ts";

const token = fc.constantFrom(
  ...['"usage"', '"usageMetadata"', "usage", '"', ":", "{", "}", ",", " ", "null", "é", "data: "],
  ...["\n", "\r\n", "\n\n", "\r\n\r\n", "\r", "x".repeat(12), " ".repeat(20)],
);
const text = fc.array(token, { maxLength: 20 }).map((all) => all.join(""));

test("events are plain if their bytes end with an event and hold no usage", () => {
  let plain = 0;
  fc.assert(
    fc.property(text, fc.constantFrom("", "\n\n", "\r\n\r\n"), (middle, end) => {
      const bytes = Buffer.from(`${middle}${end}`);
      const isPlain = isPlainEvents(bytes.toString("latin1"));
      assert.equal(isPlain, endsEvent(bytes) && usageEventAt(bytes) < 0);
      if (isPlain) plain += 1;
    }),
    { numRuns: 5000 },
  );
  assert.ok(plain > 500, `${plain} were plain`);
});

function reportOf(pieces: readonly Buffer[], isText: boolean, complete: boolean): TapReport {
  const reports: TapReport[] = [];
  const tap = createUsageTap(SSE, undefined, (report) => reports.push(report));
  for (const piece of pieces) {
    const latin1 = piece.toString("latin1");
    if (isText && isPlainEvents(latin1)) tap.plain?.(latin1);
    else tap.data(piece);
  }
  if (complete) tap.end();
  else tap.abort();
  assert.equal(reports.length, 1);
  return reports[0] as TapReport;
}

test("a stream that is read as text says the same as its bytes, however it is cut", () => {
  const event = fc.oneof(
    { weight: 6, arbitrary: fc.string({ unit: "grapheme", maxLength: 80 }).map((content) => chunk(content)) },
    { weight: 2, arbitrary: fc.constant(claudeText) },
    fc.constant(claudeStart),
    fc.constant({ ...chunk(""), choices: [], usage: chatUsage }),
    fc.constant(chunk('"usage":{"total_tokens":1}')),
  );
  const events = fc.array(fc.tuple(event, fc.constantFrom("\n\n", "\r\n\r\n")), { maxLength: 60 });
  fc.assert(
    fc.property(events, fc.array(fc.nat({ max: 700 }), { minLength: 1 }), fc.boolean(), (all, sizes, complete) => {
      const bytes = Buffer.from(all.map(([one, end]) => `data: ${JSON.stringify(one)}${end}`).join(""));
      const pieces: Buffer[] = [];
      for (let at = 0, i = 0; at < bytes.length; i++) {
        const size = sizes[i % sizes.length] as number;
        // Every other piece ends with an event, as those of providers do.
        const end = i % 2 === 0 ? at + size + 1 : endOfEvent(bytes, at + size);
        pieces.push(bytes.subarray(at, end));
        at = end;
      }
      assert.deepEqual(reportOf(pieces, true, complete), reportOf(pieces, false, complete));
    }),
  );
});

function endOfEvent(bytes: Buffer, from: number): number {
  const ends = ["\n\n", "\r\n\r\n"].map((end) => ({ at: bytes.indexOf(end, from), length: end.length }));
  const found = ends.filter(({ at }) => at >= 0).sort((a, b) => a.at - b.at)[0];
  return found === undefined ? bytes.length : found.at + found.length;
}
