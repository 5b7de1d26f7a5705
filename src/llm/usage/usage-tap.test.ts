import assert from "node:assert/strict";
import { test } from "node:test";
import { brotliCompressSync, deflateSync, gzipSync } from "node:zlib";
import { encodeEventStreamMessage } from "../../../test/support/llm/event-stream.ts";
import type { LlmFacts } from "../../core/facts.ts";
import { createUsageTap, settleUsage } from "./usage-tap.ts";

const SSE = "text/event-stream; charset=utf-8";
const AWS = "application/vnd.amazon.eventstream";

function tap(
  contentType: string,
  chunks: readonly Buffer[],
  how: "end" | "abort" = "end",
  encoding?: string,
): LlmFacts {
  const facts: LlmFacts = { estimatedTokens: 7 };
  const watched = createUsageTap(contentType, encoding, (report) => settleUsage(facts, report));
  for (const chunk of chunks) watched.data(chunk);
  watched[how]();
  return facts;
}

const sse = (...events: unknown[]): Buffer =>
  Buffer.from(events.map((event) => `data: ${typeof event === "string" ? event : JSON.stringify(event)}\n\n`).join(""));
const bytewise = (bytes: Buffer): Buffer[] => [...bytes].map((byte) => Buffer.from([byte]));

const chunk = (content: string, extra = {}) => ({
  id: "1",
  object: "chat.completion.chunk",
  model: "gpt-x",
  choices: [{ index: 0, delta: { content } }],
  usage: null,
  ...extra,
});
const chatUsage = {
  prompt_tokens: 11,
  completion_tokens: 4,
  total_tokens: 15,
  prompt_tokens_details: { cached_tokens: 8 },
};
const claudeStart = {
  type: "message_start",
  message: {
    model: "claude-x",
    usage: { input_tokens: 5, cache_read_input_tokens: 95, cache_creation_input_tokens: 0, output_tokens: 1 },
  },
};
const claudeText = { type: "content_block_delta", index: 0, delta: { type: "text_delta", text: "one two three four" } };

const answers: { name: string; type: string; bytes: Buffer; expected: LlmFacts }[] = [
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

test("a chat stream that breaks off costs the estimated question and what was delivered", () => {
  const facts = tap(SSE, [sse(chunk("one two"), chunk(" three"), chunk(" four"))], "abort");
  assert.deepEqual(facts, {
    estimatedTokens: 7,
    responseModel: "gpt-x",
    inputTokens: 7,
    outputTokens: 6,
    totalTokens: 13,
  });
});

test("a messages stream that breaks off costs the counted input and what was delivered", () => {
  const facts = tap(SSE, [sse(claudeStart, claudeText)], "abort");
  assert.equal(facts.inputTokens, 100);
  assert.equal(facts.outputTokens, 1 + 4);
});

test("a Gemini stream that breaks off costs what its last chunk counted", () => {
  const facts = tap(
    SSE,
    [
      sse({
        candidates: [{ content: { parts: [{ text: "many words here" }] } }],
        usageMetadata: { promptTokenCount: 4, candidatesTokenCount: 3, totalTokenCount: 7 },
      }),
    ],
    "abort",
  );
  assert.deepEqual([facts.inputTokens, facts.outputTokens], [4, 3]);
});

test("a stream that ended without usage is estimated", () => {
  assert.equal(tap(SSE, [sse(chunk("one two three"), "[DONE]")]).outputTokens, 3);
});

test("long streams are sampled, and the sample stands for the whole", () => {
  const events = Array.from({ length: 1000 }, () => chunk(" word"));
  const { outputTokens = 0 } = tap(SSE, [sse(...events)], "abort");
  assert.ok(outputTokens >= 1000 && outputTokens <= 2000, String(outputTokens));
});

test("streams that come in one piece, or encoded, are estimated alike", () => {
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

test("JSON without usage says nothing, so that the estimate stands", () => {
  assert.deepEqual(tap("application/json", [Buffer.from('{"ok":true}')]), { estimatedTokens: 7 });
});

test("bytes that are no stream, and events beyond all bounds, are passed by [M4]", () => {
  assert.deepEqual(tap(AWS, [Buffer.from("not an event stream at all")]), { estimatedTokens: 7 });
  assert.deepEqual(tap(SSE, [Buffer.alloc(3 * 1024 * 1024, "a")]), { estimatedTokens: 7 });
  assert.deepEqual(tap("application/json", [Buffer.from("garbage")], "end", "gzip"), { estimatedTokens: 7 });
});

test("a bomb of zeros is not unfolded", () => {
  const bomb = gzipSync(Buffer.alloc(64 * 1024 * 1024));
  assert.deepEqual(tap("application/json", [bomb], "end", "gzip"), { estimatedTokens: 7 });
});

const pieces = (bytes: Buffer, size = 60_000): Buffer[] =>
  Array.from({ length: Math.ceil(bytes.length / size) }, (_, i) => bytes.subarray(i * size, (i + 1) * size));
const image = "A".repeat(3 * 1024 * 1024);
const responsesUsage = { input_tokens: 30, output_tokens: 12, total_tokens: 42 };

test("an event of 3 MiB is passed by, and what follows it still counts", () => {
  const bytes = sse(chunk("Hello"), chunk(image), chunk("", { choices: [], usage: chatUsage }), "[DONE]");
  for (const cut of [60_000, 65_536, 60_001]) {
    const facts = tap(SSE, pieces(bytes, cut));
    assert.equal(facts.inputTokens, 11);
    assert.equal(facts.outputTokens, 4);
  }
});

test("the usage at the end of an event of 3 MiB counts, and nothing that merely looks like it [M3]", () => {
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

test("the last event counts without the blank line behind it", () => {
  const bytes = sse(chunk("Hello"), chunk("", { choices: [], usage: chatUsage }));
  for (const missing of [1, 2]) assert.equal(tap(SSE, [bytes.subarray(0, -missing)]).outputTokens, 4);
});

test("a stream whose only usage is that of its first event is estimated by what it wrote", () => {
  const facts = tap(SSE, [sse(claudeStart), sse(claudeText), sse({ type: "message_stop" })]);
  assert.equal(facts.inputTokens, 100);
  assert.ok((facts.outputTokens ?? 0) >= 4, String(facts.outputTokens));
});

test("an encoded stream with a large event is read like a plain one", () => {
  const bytes = sse(chunk(image), chunk("", { choices: [], usage: chatUsage }), "[DONE]");
  assert.equal(tap(SSE, [gzipSync(bytes)], "end", "gzip").outputTokens, 4);
});

test("events that come many at a time count like events that come one by one", () => {
  const events = Array.from({ length: 200 }, (_, i) => sse(chunk(`word${i} and more of it`)));
  const end = sse(chunk("", { choices: [], usage: chatUsage }), "[DONE]");
  for (const many of [1, 4, 50, 200]) {
    const reads = Array.from({ length: events.length / many }, (_, i) =>
      Buffer.concat(events.slice(i * many, (i + 1) * many)),
    );
    const whole = tap(SSE, [...reads.slice(0, -1), Buffer.concat([reads.at(-1) ?? Buffer.alloc(0), end])]);
    assert.deepEqual([whole.inputTokens, whole.outputTokens, whole.responseModel], [11, 4, "gpt-x"]);
    // Without usage by sample: as good whichever way they come.
    const broken = tap(SSE, reads, "abort").outputTokens ?? 0;
    const estimated = tap(SSE, events, "abort").outputTokens ?? 0;
    assert.ok(Math.abs(broken - estimated) <= estimated / 10, `${broken} and ${estimated}`);
  }
});
