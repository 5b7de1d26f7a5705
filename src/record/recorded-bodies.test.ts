import assert from "node:assert/strict";
import { once } from "node:events";
import { PassThrough } from "node:stream";
import { test } from "node:test";
import { anExchange } from "../../test/support/exchange.ts";
import { compileExpression } from "../cel/expression.ts";
import type { Exchange } from "../core/exchange.ts";
import { BodyCapture, bodyBytes, captureSentBody, promptMessages, readsContent } from "./recorded-bodies.ts";
import type { TraceMessage } from "./trace/record.ts";

const cases: [name: string, body: Record<string, unknown>, expected: [role: string, content: string][]][] = [
  [
    "Chat Completions",
    {
      messages: [
        { role: "system", content: "a" },
        {
          role: "user",
          content: [
            { type: "text", text: "b" },
            { type: "image_url", image_url: { url: "x" } },
          ],
        },
        { role: "tool", tool_call_id: "1", content: "c" },
      ],
    },
    [
      ["system", "a"],
      ["user", "b"],
      ["tool", "c"],
    ],
  ],
  [
    "Messages",
    {
      system: [{ type: "text", text: "a" }],
      messages: [{ role: "user", content: [{ type: "tool_result", content: [{ type: "text", text: "b" }] }] }],
    },
    [
      ["system", "a"],
      ["user", "b"],
    ],
  ],
  [
    "Responses",
    {
      instructions: "a",
      input: [
        { role: "user", content: [{ type: "input_text", text: "b" }] },
        { type: "function_call", name: "f", arguments: "{}" },
        { type: "function_call_output", output: "c" },
      ],
    },
    [
      ["system", "a"],
      ["user", "b"],
      ["assistant", "{}"],
      ["tool", "c"],
    ],
  ],
  ["Responses with a string", { input: "a" }, [["user", "a"]]],
  [
    "Gemini",
    {
      systemInstruction: { parts: [{ text: "a" }] },
      contents: [
        { role: "user", parts: [{ text: "b" }] },
        { role: "model", parts: [{ text: "c" }] },
      ],
    },
    [
      ["system", "a"],
      ["user", "b"],
      ["model", "c"],
    ],
  ],
  [
    "Converse",
    { system: [{ text: "a" }], messages: [{ role: "user", content: [{ text: "b" }] }] },
    [
      ["system", "a"],
      ["user", "b"],
    ],
  ],
  ["a request without messages", { model: "m" }, []],
];

for (const [name, body, expected] of cases)
  test(`the prompt of ${name}`, () => {
    assert.deepEqual(
      promptMessages(body).map(({ role, content }) => [role, content]),
      expected,
    );
  });

for (const [source, isRead] of [
  ["llm.prompt", true],
  ["llm.prompt[0].content", true],
  ['llm["prompt"].size()', true],
  ["llm", false],
  ["llm.provider", false],
  ["has(llm.promptTokens)", false],
] as const)
  test(`${source} ${isRead ? "reads" : "does not read"} the prompt`, () => {
    assert.equal(readsContent(compileExpression(source), "llm.prompt"), isRead);
  });

function traced(exchange: Exchange): TraceMessage[] {
  const messages: TraceMessage[] = [];
  exchange.trace = { point: (message) => messages.push(message), span: () => undefined, finish: () => undefined };
  return messages;
}

function capture(exchange: Exchange): void {
  if (exchange.trace) captureSentBody(exchange.trace, bodyBytes(exchange.request.body), undefined);
}

const textOf = (message: TraceMessage | undefined): string =>
  message?.type === "bodySnapshot" ? Buffer.from(message.body, "base64").toString() : "no snapshot";

test("emits a buffered body at once, and an empty body not at all", () => {
  const exchange = anExchange({ body: "hello" });
  const messages = traced(exchange);
  capture(exchange);
  assert.equal(textOf(messages[0]), "hello");
  const empty = anExchange({ body: "" });
  const none = traced(empty);
  capture(empty);
  assert.deepEqual(none, []);
});

test("truncates a body over 64 KiB and marks it", () => {
  const exchange = anExchange({ body: "x".repeat(64 * 1024 + 1) });
  const messages = traced(exchange);
  capture(exchange);
  const [message] = messages;
  assert.equal(message?.type === "bodySnapshot" && message.truncated, true);
  assert.equal(textOf(message).length, 64 * 1024);
});

test("captures a streamed body while it is read, without starting or changing it", async () => {
  const exchange = anExchange();
  const stream = Object.assign(new PassThrough(), { peek: () => undefined });
  exchange.request.body = { kind: "stream", stream, length: undefined, taken: true };
  const messages = traced(exchange);
  capture(exchange);
  stream.write("one ");
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(stream.readableFlowing, null, "nothing flows before the reader wants it");
  const got: string[] = [];
  stream.on("data", (chunk: Buffer) => got.push(chunk.toString()));
  stream.end("two");
  await once(stream, "end");
  assert.equal(got.join(""), "one two");
  assert.equal(textOf(messages[0]), "one two");
  assert.equal(messages.length, 1);
});

test("emits the received part of a body that was cut off", async () => {
  const exchange = anExchange();
  const stream = Object.assign(new PassThrough(), { peek: () => undefined });
  exchange.request.body = { kind: "stream", stream, length: undefined, taken: true };
  const messages = traced(exchange);
  capture(exchange);
  stream.on("data", () => undefined);
  stream.write("half");
  await new Promise((resolve) => setImmediate(resolve));
  stream.destroy();
  await once(stream, "close");
  assert.equal(textOf(messages[0]), "half");
});

test("a capture is emitted once", () => {
  const exchange = anExchange();
  const messages = traced(exchange);
  const capture = new BodyCapture();
  capture.add(Buffer.from("a"));
  capture.emit(exchange.trace, "response", undefined);
  capture.emit(exchange.trace, "response", undefined);
  assert.equal(messages.length, 1);
});
