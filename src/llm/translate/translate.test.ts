import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import type { Format } from "../dialect.ts";
import type { Members } from "../json.ts";
import { translationBetween } from "./index.ts";
import {
  type OutEvent,
  type Translation,
  type TranslationContext,
  TranslationError,
  UpstreamStreamError,
} from "./translation.ts";

const GOLDEN = "test/golden/llm";
const FORMATS: Readonly<Record<string, Format>> = {
  chat: "chat",
  messages: "messages",
  gemini: "generateContent",
  converse: "converse",
};

interface Golden {
  readonly request: Members;
  readonly upstreamRequest: Members;
  readonly upstreamResponse: Members;
  readonly response: Members;
  readonly upstreamStream?: readonly [type: string, data: Members][];
  readonly stream?: readonly OutEvent[];
}

function context(overrides: Partial<TranslationContext> = {}): TranslationContext {
  let ids = 0;
  return {
    model: "upstream-model",
    stream: false,
    maxTokensMember: "max_completion_tokens",
    newId: () => `id${++ids}`,
    createdSeconds: 1_700_000_000,
    includeUsage: true,
    ...overrides,
  };
}

function between(client: Format, provider: Format): Translation {
  const translation = translationBetween(client, provider);
  assert.ok(translation, `${client} to ${provider}`);
  return translation;
}

function streamThrough(
  translation: Translation,
  events: readonly (readonly [string, Members])[],
  overrides: Partial<TranslationContext> = {},
): OutEvent[] {
  const stream = translation.stream(context({ stream: true, ...overrides }));
  return [...events.flatMap(([type, data]) => stream.event(type, data)), ...stream.end()];
}

for (const direction of readdirSync(GOLDEN).sort()) {
  const [client = "", provider = ""] = direction.split("-to-").map((word) => FORMATS[word]);
  for (const file of readdirSync(join(GOLDEN, direction)).sort()) {
    const golden = JSON.parse(readFileSync(join(GOLDEN, direction, file), "utf8")) as Golden;
    const name = `${direction} ${file.replace(".json", "")}`;
    const translation = between(client as Format, provider as Format);
    test(`${name}: the request`, () =>
      assert.deepEqual(translation.request(golden.request, context()), golden.upstreamRequest));
    test(`${name}: the response`, () =>
      assert.deepEqual(translation.response(golden.upstreamResponse, context()), golden.response));
    const { upstreamStream, stream } = golden;
    if (upstreamStream)
      test(`${name}: the stream`, () => assert.deepEqual(streamThrough(translation, upstreamStream), stream));
  }
}

const user = (content: unknown) => ({ messages: [{ role: "user", content }] });
const refused: [client: Format, provider: Format, body: Members, param: string][] = [
  ["chat", "messages", { ...user("x"), seed: 1 }, "seed"],
  ["chat", "messages", { ...user("x"), n: 2 }, "n"],
  ["chat", "messages", { ...user("x"), logit_bias: { 5: 1 } }, "logit_bias"],
  ["chat", "messages", { ...user("x"), frequency_penalty: 0.5 }, "frequency_penalty"],
  ["chat", "messages", { ...user("x"), response_format: { type: "json_object" } }, "response_format"],
  ["chat", "messages", { ...user("x"), functions: [] }, "functions"],
  ["chat", "messages", { ...user("x"), api_base: "http://evil" }, "api_base"],
  ["chat", "messages", { ...user("x"), web_search_options: {} }, "web_search_options"],
  ["chat", "messages", user([{ type: "input_audio", input_audio: {} }]), "messages[0].content[0].type"],
  [
    "chat",
    "messages",
    user([{ type: "image_url", image_url: { url: "data:image/png,raw" } }]),
    "messages[0].content[0].image_url.url",
  ],
  ["chat", "messages", user([{ type: "file", file: { file_id: "f" } }]), "messages[0].content[0].file"],
  ["chat", "messages", { messages: [{ role: "robot", content: "x" }] }, "messages[0].role"],
  [
    "chat",
    "messages",
    { messages: [{ role: "assistant", tool_calls: [{ id: "1", function: { name: "f", arguments: "{not json" } }] }] },
    "messages[0].tool_calls[0].function.arguments",
  ],
  ["chat", "messages", { ...user("x"), tools: [{ type: "custom" }] }, "tools[0].type"],
  ["chat", "messages", { messages: "x" }, "messages"],
  ["chat", "generateContent", { ...user("x"), logprobs: true }, "logprobs"],
  ["chat", "generateContent", { messages: [{ role: "tool", tool_call_id: "nobody", content: "x" }] }, "messages"],
  ["chat", "generateContent", { ...user("x"), reasoning_effort: "extreme" }, "reasoning_effort"],
  ["chat", "converse", user([{ type: "image_url", image_url: { url: "https://example.com/a.png" } }]), "messages"],
  [
    "chat",
    "converse",
    { ...user("x"), response_format: { type: "json_schema", json_schema: { schema: {} } } },
    "response_format",
  ],
  ["messages", "chat", { ...user("x"), container: "c" }, "container"],
  ["messages", "chat", { ...user("x"), inference_geo: "eu" }, "inference_geo"],
  ["messages", "chat", { ...user("x"), tools: [{ type: "web_search_20250305", name: "web_search" }] }, "tools[0].type"],
  ["messages", "chat", user([{ type: "search_result" }]), "messages[0].content[0].type"],
  [
    "messages",
    "chat",
    user([{ type: "tool_result", tool_use_id: "t", content: [{ type: "image" }] }]),
    "messages[0].content[0].content[0].type",
  ],
];
for (const [client, provider, body, param] of refused) {
  test(`${client} to ${provider} refuses ${param} by name: ${JSON.stringify(body).slice(0, 60)}`, () => {
    assert.throws(
      () => between(client, provider).request({ model: "m", ...body }, context()),
      (error) => error instanceof TranslationError && error.param === param,
    );
  });
}

test("members that mean nothing, and nulls, are accepted", () => {
  const neutral = {
    n: 1,
    logprobs: false,
    presence_penalty: 0,
    frequency_penalty: 0,
    seed: null,
    store: true,
    metadata: {},
    response_format: { type: "text" },
    tool_choice: null,
  };
  assert.ok(between("chat", "messages").request({ model: "m", ...user("x"), ...neutral }, context()));
});

test("a history of another model gets the mark that Gemini 3 asks for", () => {
  const body = {
    messages: [
      {
        role: "assistant",
        tool_calls: [
          { id: "1", function: { name: "f", arguments: "{}" } },
          { id: "2", function: { name: "f", arguments: "{}" } },
        ],
      },
    ],
  };
  const sent = JSON.stringify(between("chat", "generateContent").request(body, context({ model: "gemini-3-pro" })));
  assert.equal(sent.split("skip_thought_signature_validator").length, 2);
});

test("usage is left out of a chat stream unless the client asked for it", () => {
  const events = [
    [
      "",
      {
        candidates: [{ content: { parts: [{ text: "a" }] }, finishReason: "STOP" }],
        usageMetadata: { promptTokenCount: 1, candidatesTokenCount: 1 },
      },
    ],
  ] as const;
  const silent = streamThrough(between("chat", "generateContent"), events, { includeUsage: false });
  assert.ok(!JSON.stringify(silent).includes("usage"));
  assert.deepEqual(silent.at(-1), { data: "[DONE]" });
});

const broken: [client: Format, provider: Format, events: [string, Members][], message: RegExp][] = [
  [
    "chat",
    "messages",
    [
      ["message_start", { type: "message_start", message: {} }],
      ["error", { type: "error", error: { type: "overloaded_error", message: "Overloaded" } }],
    ],
    /Overloaded/,
  ],
  ["chat", "messages", [["message_start", { type: "message_start", message: {} }]], /ended early/],
  ["chat", "generateContent", [["", { error: { code: 503, message: "busy" } }]], /busy/],
  ["chat", "generateContent", [["", { candidates: [{ content: { parts: [{ text: "a" }] } }] }]], /ended early/],
  ["chat", "converse", [["exception", { message: "throttled" }]], /throttled/],
  ["messages", "chat", [["", { error: { message: "boom" } }]], /boom/],
  ["messages", "chat", [["", { choices: [{ delta: { content: "a" } }] }]], /ended early/],
  ["messages", "generateContent", [["", { error: { message: "boom" } }]], /boom/],
];
for (const [client, provider, events, message] of broken) {
  test(`a ${provider} stream that fails (${message.source}) has no clean end for a ${client} client`, () => {
    assert.throws(
      () => streamThrough(between(client, provider), events),
      (error) => error instanceof UpstreamStreamError && message.test(error.message),
    );
  });
}
