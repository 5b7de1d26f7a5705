/**
 * Usage in large, encoded or malformed streams: oversized events are skipped, and later events count.
 */
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import { AWS, chatUsage, chunk, claudeStart, claudeText, SSE, sse, tap } from "../../../test/support/llm/usage.ts";

test("bytes that are not a stream and oversized events are skipped [M4]", () => {
  assert.deepEqual(tap(AWS, [Buffer.from("not an event stream at all")]), { estimatedTokens: 7 });
  assert.deepEqual(tap(SSE, [Buffer.alloc(3 * 1024 * 1024, "a")]), { estimatedTokens: 7 });
  assert.deepEqual(tap("application/json", [Buffer.from("garbage")], "end", "gzip"), { estimatedTokens: 7 });
});

test("a compression bomb is not decompressed", () => {
  const bomb = gzipSync(Buffer.alloc(64 * 1024 * 1024));
  assert.deepEqual(tap("application/json", [bomb], "end", "gzip"), { estimatedTokens: 7 });
});

const pieces = (bytes: Buffer, size = 60_000): Buffer[] =>
  Array.from({ length: Math.ceil(bytes.length / size) }, (_, i) => bytes.subarray(i * size, (i + 1) * size));
const image = "A".repeat(3 * 1024 * 1024);
const responsesUsage = { input_tokens: 30, output_tokens: 12, total_tokens: 42 };

test("an event of 3 MiB is skipped, and later events still count", () => {
  const bytes = sse(chunk("Hello"), chunk(image), chunk("", { choices: [], usage: chatUsage }), "[DONE]");
  for (const cut of [60_000, 65_536, 60_001]) {
    const attributes = tap(SSE, pieces(bytes, cut));
    assert.equal(attributes.inputTokens, 11);
    assert.equal(attributes.outputTokens, 4);
  }
});

test("the usage at the end of an event of 3 MiB counts, and similar text does not [M3]", () => {
  const last = (extra: object) =>
    sse(
      { type: "response.created", response: { model: "gpt-x", usage: null } },
      { type: "response.completed", response: { model: "gpt-x", output: [{ result: image }], ...extra } },
    );
  const real = tap(SSE, pieces(last({ usage: responsesUsage, user: null, metadata: {} })));
  assert.deepEqual([real.inputTokens, real.outputTokens, real.responseModel], [30, 12, "gpt-x"]);
  const fake = tap(
    SSE,
    pieces(last({ usage: null, text: '"usage":{"input_tokens":1}', schema: { usage: { type: "x" } } })),
  );
  assert.equal(fake.inputTokens, undefined);
});

test("the last event counts without a blank line after it", () => {
  const bytes = sse(chunk("Hello"), chunk("", { choices: [], usage: chatUsage }));
  for (const missing of [1, 2]) assert.equal(tap(SSE, [bytes.subarray(0, -missing)]).outputTokens, 4);
});

test("a stream whose only usage is that of its first event is estimated by what it wrote", () => {
  const attributes = tap(SSE, [sse(claudeStart), sse(claudeText), sse({ type: "message_stop" })]);
  assert.equal(attributes.inputTokens, 100);
  assert.ok((attributes.outputTokens ?? 0) >= 4, String(attributes.outputTokens));
});

test("an encoded stream with a large event is read like a plain one", () => {
  const picture = randomBytes(2 * 1024 * 1024).toString("base64");
  const bytes = sse(chunk(picture), chunk("", { choices: [], usage: chatUsage }), "[DONE]");
  assert.equal(tap(SSE, [gzipSync(bytes)], "end", "gzip").outputTokens, 4);
});

test("of a long encoded stream the first and last events count, and the size of those between", () => {
  const words = Array.from({ length: 30_000 }, (_, i) => chunk(`word ${(i * 7_919) % 30_000}`));
  const counted = sse(...words, chunk("", { choices: [], usage: chatUsage }), "[DONE]");
  assert.ok(counted.length > 1024 * 1024);
  assert.deepEqual(tap(SSE, [gzipSync(counted)], "end", "gzip"), tap(SSE, pieces(counted)));
  const plain = tap(SSE, pieces(sse(...words))).outputTokens ?? 0;
  const encoded = tap(SSE, [gzipSync(sse(...words))], "end", "gzip").outputTokens ?? 0;
  assert.ok(plain > 10_000 && Math.abs(encoded / plain - 1) < 0.1, `${encoded} instead of ${plain}`);
  const started = tap(SSE, [gzipSync(sse(claudeStart, ...words))], "end", "gzip");
  assert.equal(started.inputTokens, 100);
});

test("a stream of 8 MiB that is compressed to 22 KB is not read", () => {
  const events = sse(...Array(40_000).fill(chunk("x", { usage: chatUsage })));
  assert.deepEqual(tap(SSE, [gzipSync(events, { level: 9 })], "end", "gzip"), { estimatedTokens: 7 });
});

test("several events in one chunk count like events in separate chunks", () => {
  const events = Array.from({ length: 200 }, (_, i) => sse(chunk(`word${i} and more of it`)));
  const end = sse(chunk("", { choices: [], usage: chatUsage }), "[DONE]");
  for (const many of [1, 4, 50, 200]) {
    const reads = Array.from({ length: events.length / many }, (_, i) =>
      Buffer.concat(events.slice(i * many, (i + 1) * many)),
    );
    const whole = tap(SSE, [...reads.slice(0, -1), Buffer.concat([reads.at(-1) ?? Buffer.alloc(0), end])]);
    assert.deepEqual([whole.inputTokens, whole.outputTokens, whole.responseModel], [11, 4, "gpt-x"]);
    // Without usage, the estimate by samples is equally good either way.
    const broken = tap(SSE, reads, "abort").outputTokens ?? 0;
    const estimated = tap(SSE, events, "abort").outputTokens ?? 0;
    assert.ok(Math.abs(broken - estimated) <= estimated / 10, `${broken} and ${estimated}`);
  }
});
