import assert from "node:assert/strict";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import { encodeEventStreamMessage } from "../../../test/support/llm/event-stream.ts";
import { createContentReader } from "./response-content.ts";

const JSON_TYPE = "application/json";
const SSE = "text/event-stream";
const AWS = "application/vnd.amazon.eventstream";

const json = (value: unknown): Buffer => Buffer.from(JSON.stringify(value));
const sse = (...events: unknown[]): Buffer =>
  Buffer.from(events.map((event) => `data: ${typeof event === "string" ? event : JSON.stringify(event)}\n\n`).join(""));

function read(contentType: string, bytes: Buffer, encoding?: string, pieceBytes = 7) {
  let text = "";
  const content = createContentReader(contentType, encoding, (piece) => {
    text += piece;
  });
  const silent = createContentReader(contentType, encoding);
  for (let at = 0; at < bytes.length; at += pieceBytes) {
    content.data(bytes.subarray(at, at + pieceBytes));
    silent.data(bytes.subarray(at, at + pieceBytes));
  }
  const report = content.end();
  assert.deepEqual(silent.end(), report, "the reason is found without the words, too");
  return [text, report.finish, report.isWhole];
}

const CHAT = { choices: [{ message: { content: "Hello." }, finish_reason: "stop" }] };

test("complete responses, in every dialect", () => {
  for (const [body, text, finish] of [
    [CHAT, "Hello.", "stop"],
    [
      {
        type: "message",
        content: [
          { type: "thinking", thinking: "Hm. " },
          { type: "text", text: "Hello." },
          { type: "tool_use", name: "add", input: { a: 1 } },
        ],
        stop_reason: "tool_use",
      },
      'Hm. Hello.{"a":1}',
      "tool_use",
    ],
    [
      { candidates: [{ content: { parts: [{ text: "Hello." }] }, finishReason: "MAX_TOKENS" }] },
      "Hello.",
      "MAX_TOKENS",
    ],
    [
      {
        object: "response",
        status: "completed",
        output: [
          { type: "reasoning", summary: [{ text: "Hm. " }] },
          { type: "message", content: [{ type: "output_text", text: "Hello." }] },
          { type: "function_call", name: "add", arguments: "{}" },
        ],
      },
      "Hm. Hello.{}",
      "completed",
    ],
    [
      { object: "response", status: "incomplete", incomplete_details: { reason: "max_output_tokens" }, output: [] },
      "",
      "max_output_tokens",
    ],
    [
      {
        output: {
          message: {
            content: [
              { reasoningContent: { reasoningText: { text: "Hm. " } } },
              { text: "Hello." },
              { toolUse: { name: "add", input: { a: 1 } } },
            ],
          },
        },
        stopReason: "end_turn",
      },
      'Hm. Hello.{"a":1}',
      "end_turn",
    ],
    [{ object: "list", data: [{ embedding: [0.1] }] }, "", undefined],
  ] as const)
    assert.deepEqual(read(JSON_TYPE, json(body)), [text, finish, true], JSON.stringify(body));
});

test("streams, in every dialect and however they are split", () => {
  const messages = sse(
    { type: "message_start", message: { model: "m", stop_reason: null } },
    { type: "content_block_delta", index: 0, delta: { type: "text_delta", text: "Hel" } },
    { type: "content_block_delta", index: 0, delta: { type: "text_delta", text: "lo." } },
    { type: "message_delta", delta: { stop_reason: "end_turn" }, usage: { output_tokens: 2 } },
  );
  const chat = sse(
    { choices: [{ delta: { content: "Hel" }, finish_reason: null }] },
    { choices: [{ delta: { content: "lo." }, finish_reason: null }] },
    { choices: [{ delta: {}, finish_reason: "length" }] },
    "[DONE]",
  );
  const responses = sse(
    { type: "response.created", response: { object: "response", status: "in_progress" } },
    { type: "response.output_text.delta", delta: "Hello." },
    { type: "response.completed", response: { object: "response", status: "completed", output: [{ text: "Hello." }] } },
  );
  const gemini = sse(
    { candidates: [{ content: { parts: [{ text: "Hel" }] } }] },
    { candidates: [{ content: { parts: [{ text: "lo." }] }, finishReason: "STOP" }] },
  );
  for (const [bytes, finish] of [
    [messages, "end_turn"],
    [chat, "length"],
    [responses, "completed"],
    [gemini, "STOP"],
  ] as const) {
    for (const pieceBytes of [1, 7, 10_000])
      assert.deepEqual(read(SSE, bytes, undefined, pieceBytes), ["Hello.", finish, true]);
    assert.deepEqual(read(SSE, gzipSync(bytes), "gzip"), ["Hello.", finish, true]);
  }
  const list = json([
    { candidates: [{ content: { parts: [{ text: "Hel" }] } }] },
    { candidates: [{ content: { parts: [{ text: "lo." }] }, finishReason: "STOP" }] },
  ]);
  assert.deepEqual(read(JSON_TYPE, list), ["Hello.", "STOP", true]);
  const converse = Buffer.concat(
    [
      ["contentBlockDelta", { delta: { text: "Hello." } }],
      ["messageStop", { stopReason: "guardrail_intervened" }],
    ].map(([type, event]) => encodeEventStreamMessage(String(type), event as object)),
  );
  assert.deepEqual(read(AWS, converse), ["Hello.", "guardrail_intervened", true]);
});

test("a truncated stream has its text and no finish reason; text of the model is not read as one", () => {
  const cut = sse({ choices: [{ delta: { content: 'I "stop" with {"finish_reason":"stop"}' }, finish_reason: null }] });
  assert.deepEqual(read(SSE, cut), ['I "stop" with {"finish_reason":"stop"}', undefined, true]);
});

test("content that is too large or malformed is skipped, and the report shows it", () => {
  const large = Buffer.concat([Buffer.from('{"choices":[],"x":"'), Buffer.alloc(4 * 1024 * 1024, "x")]);
  assert.deepEqual(read(JSON_TYPE, large, undefined, 65_536), ["", undefined, false]);
  assert.deepEqual(read(SSE, Buffer.alloc(3 * 1024 * 1024, "x"), undefined, 65_536), ["", undefined, false]);
  assert.deepEqual(read(AWS, Buffer.alloc(64, "x")), ["", undefined, false]);
  assert.deepEqual(read(JSON_TYPE, Buffer.from("no gzip"), "gzip"), ["", undefined, false]);
  assert.deepEqual(read(JSON_TYPE, Buffer.from("<html>")), ["", undefined, true]);
});
