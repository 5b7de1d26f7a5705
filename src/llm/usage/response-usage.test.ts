import assert from "node:assert/strict";
import { test } from "node:test";
import { brotliCompressSync, deflateSync, gzipSync } from "node:zlib";
import { encodeEventStreamMessage } from "../../../test/support/llm/event-stream.ts";
import {
  AWS,
  bytewise,
  chatUsage,
  chunk,
  claudeStart,
  claudeText,
  SSE,
  sse,
  tap,
} from "../../../test/support/llm/usage.ts";
import type { LlmAttributes } from "../../core/request-attributes.ts";

const answers: { name: string; type: string; bytes: Buffer; expected: LlmAttributes }[] = [
  {
    name: "chat JSON",
    type: "application/json",
    bytes: Buffer.from(
      JSON.stringify({
        model: "gpt-x",
        choices: [{ message: { content: '"usage":{"total_tokens":999}' } }],
        usage: chatUsage,
      }),
    ),
    expected: { responseModel: "gpt-x", inputTokens: 11, outputTokens: 4, totalTokens: 15, cachedInputTokens: 8 },
  },
  {
    name: "JSON with all counts zero",
    type: "application/json",
    bytes: Buffer.from('{"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}}'),
    expected: { inputTokens: 0, outputTokens: 0, totalTokens: 0 },
  },
  {
    name: "a chat stream with usage in its last chunk",
    type: SSE,
    bytes: sse(chunk("a"), chunk("b"), { ...chunk(""), choices: [], usage: chatUsage }, "[DONE]"),
    expected: { responseModel: "gpt-x", inputTokens: 11, outputTokens: 4, totalTokens: 15, cachedInputTokens: 8 },
  },
  {
    name: "a chat stream whose text says [DONE] and usage",
    type: SSE,
    bytes: sse(chunk('data: [DONE]\n\n "usage":{"total_tokens":1}'), { choices: [], usage: chatUsage }, "[DONE]"),
    expected: { responseModel: "gpt-x", inputTokens: 11, outputTokens: 4, totalTokens: 15, cachedInputTokens: 8 },
  },
  {
    name: "a responses stream",
    type: SSE,
    bytes: sse(
      { type: "response.output_text.delta", delta: "x" },
      {
        type: "response.completed",
        response: {
          model: "gpt-y",
          usage: { input_tokens: 3, output_tokens: 2, total_tokens: 5, input_tokens_details: { cached_tokens: 1 } },
        },
      },
    ),
    expected: { responseModel: "gpt-y", inputTokens: 3, outputTokens: 2, totalTokens: 5, cachedInputTokens: 1 },
  },
  {
    name: "a messages stream, cache counted as input",
    type: SSE,
    bytes: sse(
      claudeStart,
      claudeText,
      { type: "message_delta", usage: { output_tokens: 20 } },
      { type: "message_stop" },
    ),
    expected: {
      responseModel: "claude-x",
      inputTokens: 100,
      outputTokens: 20,
      totalTokens: 120,
      cachedInputTokens: 95,
      cacheCreationInputTokens: 0,
    },
  },
  {
    name: "a Gemini stream",
    type: SSE,
    bytes: sse(
      {
        candidates: [{ content: { parts: [{ text: "a" }] } }],
        usageMetadata: { promptTokenCount: 4, totalTokenCount: 4 },
        modelVersion: "gemini-x",
      },
      {
        candidates: [{ content: { parts: [{ text: "b" }] } }],
        usageMetadata: { promptTokenCount: 4, candidatesTokenCount: 6, totalTokenCount: 10 },
      },
    ),
    expected: { responseModel: "gemini-x", inputTokens: 4, outputTokens: 6, totalTokens: 10 },
  },
  {
    name: "a Gemini stream as a JSON list",
    type: "application/json",
    bytes: Buffer.from(
      JSON.stringify([
        { usageMetadata: { promptTokenCount: 4, candidatesTokenCount: 1 } },
        { usageMetadata: { promptTokenCount: 4, candidatesTokenCount: 6 }, modelVersion: "gemini-x" },
      ]),
    ),
    expected: { responseModel: "gemini-x", inputTokens: 4, outputTokens: 6, totalTokens: 10 },
  },
  {
    name: "Bedrock JSON",
    type: "application/json",
    bytes: Buffer.from('{"usage":{"inputTokens":1,"outputTokens":2,"totalTokens":3,"cacheReadInputTokens":10}}'),
    expected: { inputTokens: 11, outputTokens: 2, totalTokens: 13, cachedInputTokens: 10 },
  },
  {
    name: "a Bedrock stream",
    type: AWS,
    bytes: Buffer.concat([
      encodeEventStreamMessage("contentBlockDelta", { delta: { text: "hi" } }),
      encodeEventStreamMessage("metadata", { usage: { inputTokens: 1, outputTokens: 2, totalTokens: 3 } }),
    ]),
    expected: { inputTokens: 1, outputTokens: 2, totalTokens: 3 },
  },
  {
    name: "a Bedrock stream of another model's events",
    type: AWS,
    bytes: encodeEventStreamMessage("chunk", {
      bytes: Buffer.from(
        JSON.stringify({
          type: "message_stop",
          "amazon-bedrock-invocationMetrics": { inputTokenCount: 9, outputTokenCount: 3 },
        }),
      ).toString("base64"),
    }),
    expected: { inputTokens: 9, outputTokens: 3, totalTokens: 12 },
  },
];

for (const { name, type, bytes, expected } of answers) {
  test(`counts ${name}, whole, byte by byte, and encoded [S8-16]`, () => {
    const wanted = { estimatedTokens: 7, ...expected };
    assert.deepEqual(tap(type, [bytes]), wanted);
    assert.deepEqual(tap(type, bytewise(bytes)), wanted);
    assert.deepEqual(tap(type, bytewise(gzipSync(bytes)), "end", "gzip"), wanted);
    assert.deepEqual(tap(type, [brotliCompressSync(bytes)], "end", "br"), wanted);
    assert.deepEqual(tap(type, [deflateSync(bytes)], "end", "deflate"), wanted);
  });
}

test("CRLF, comments and byte order marks change nothing", () => {
  const text = sse(chunk("a"), { choices: [], usage: chatUsage }).toString();
  for (const variant of [
    text.replaceAll("\n", "\r\n"),
    `\ufeff${text}`,
    `: ping\n\n${text}: bye\n\n`,
    text.replaceAll("\n", "\r"),
  ]) {
    assert.equal(tap(SSE, [Buffer.from(variant)]).totalTokens, 15);
  }
});

test("a chat stream that breaks off costs the estimated prompt and the delivered output", () => {
  const attributes = tap(SSE, [sse(chunk("one two"), chunk(" three"), chunk(" four"))], "abort");
  assert.deepEqual(attributes, {
    estimatedTokens: 7,
    responseModel: "gpt-x",
    inputTokens: 7,
    outputTokens: 6,
    totalTokens: 13,
  });
});

test("a messages stream that breaks off costs the counted input and the delivered output", () => {
  const attributes = tap(SSE, [sse(claudeStart, claudeText)], "abort");
  assert.equal(attributes.inputTokens, 100);
  assert.equal(attributes.outputTokens, 1 + 4);
});

test("a Gemini stream that breaks off costs what its last chunk counted", () => {
  const attributes = tap(
    SSE,
    [
      sse({
        candidates: [{ content: { parts: [{ text: "many words here" }] } }],
        usageMetadata: { promptTokenCount: 4, candidatesTokenCount: 3, totalTokenCount: 7 },
      }),
    ],
    "abort",
  );
  assert.deepEqual([attributes.inputTokens, attributes.outputTokens], [4, 3]);
});

test("a stream that ended without usage is estimated", () => {
  assert.equal(tap(SSE, [sse(chunk("one two three"), "[DONE]")]).outputTokens, 3);
});

test("long streams are sampled, and the sample is extrapolated", () => {
  const events = Array.from({ length: 1000 }, () => chunk(" word"));
  const { outputTokens = 0 } = tap(SSE, [sse(...events)], "abort");
  assert.ok(outputTokens >= 1000 && outputTokens <= 2000, String(outputTokens));
});

test("streams in one chunk, or encoded, are estimated alike", () => {
  const events = Array.from({ length: 400 }, () => chunk(" word"));
  const whole = tap(SSE, [sse(...events)], "abort").outputTokens ?? 0;
  const pieces =
    tap(
      SSE,
      events.map((event) => sse(event)),
      "abort",
    ).outputTokens ?? 0;
  const encoded = tap(SSE, [gzipSync(sse(...events))], "abort", "gzip").outputTokens ?? 0;
  assert.ok(whole >= 400 && Math.abs(pieces / whole - 1) < 0.05, `${whole} ${pieces}`);
  assert.equal(encoded, whole);
});

/** A few characters that compress badly, because much larger outputs than inputs are not decoded. */
const noise = (i: number): string => (Math.imul(i + 1, 0x9e3779b1) >>> 0).toString(36);
const MANY = Array.from({ length: 8_000 }, (_, i) => chunk(` word ${noise(i)}${noise(i * i)}`));
const IMAGE = Array.from({ length: 45_000 }, (_, i) => noise(i)).join("");
const [START, WORD, USED] = [chunk("a"), chunk(" word"), { ...chunk(""), choices: [], usage: chatUsage }];
/** Streams of more bytes than are read after decoding. */
const largeStreams: Readonly<Record<string, Buffer>> = {
  "many events": sse(START, ...MANY, USED, "[DONE]"),
  "many events with CRLF": Buffer.from(
    sse(START, ...MANY, USED, "[DONE]")
      .toString()
      .replaceAll("\n", "\r\n"),
  ),
  "many events with CR": Buffer.from(
    sse(START, ...MANY, USED, "[DONE]")
      .toString()
      .replaceAll("\n", "\r"),
  ),
  "a large first event": sse({ ...START, image: IMAGE }, WORD, USED),
  "a large event between others": sse(START, { ...WORD, image: IMAGE }, USED),
  "usage at the end of a large event": sse(START, { image: IMAGE, usage: chatUsage }),
  "usage without an end": sse(START, ...MANY, USED).subarray(0, -1),
};
for (const [name, bytes] of Object.entries(largeStreams))
  for (const [encoding, compress] of [
    ["gzip", gzipSync],
    ["br", brotliCompressSync],
  ] as const)
    test(`the usage of a large encoded stream is read: ${name}, ${encoding}`, () => {
      assert.ok(bytes.length > 256 * 1024);
      const { inputTokens, outputTokens, totalTokens } = tap(SSE, [compress(bytes)], "end", encoding);
      assert.deepEqual([inputTokens, outputTokens, totalTokens], [11, 4, 15]);
    });

test("large encoded streams without usage are estimated like plain ones", () => {
  const plain = tap(SSE, [sse(...MANY)], "abort").outputTokens ?? 0;
  const encoded = tap(SSE, [gzipSync(sse(...MANY))], "abort", "gzip").outputTokens ?? 0;
  assert.ok(plain >= 8_000 && Math.abs(encoded / plain - 1) < 0.1, `${plain} ${encoded}`);
});

test("text in the skipped part of an encoded stream cannot forge usage", () => {
  const forged = `data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`;
  const said = Array.from({ length: 4_000 }, (_, i) => chunk(`${noise(i)}${noise(i * i)}${forged}\n\n${forged}\n\n`));
  const { totalTokens = 0 } = tap(SSE, [gzipSync(sse(...said))], "end", "gzip");
  assert.ok(totalTokens > 1_000, String(totalTokens));
});

test("JSON without usage reports nothing, so the estimate is kept", () => {
  assert.deepEqual(tap("application/json", [Buffer.from('{"ok":true}')]), { estimatedTokens: 7 });
});
