import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import type { Format } from "../dialects/dialect.ts";
import { CHAT_HABITS } from "../dialects/provider.ts";
import { Losses } from "../form/losses.ts";
import type { OutEvent, Translation, TranslationContext } from "../form/translation.ts";
import { TranslationError, UpstreamAnswerError } from "../form/translation-error.ts";
import type { Members } from "../wire/json.ts";
import { translationBetween } from "./index.ts";

const GOLDEN = "test/golden/llm";
const FORMATS: Readonly<Record<string, Format>> = {
  chat: "chat",
  responses: "responses",
  messages: "messages",
  gemini: "generateContent",
  converse: "converse",
  invoke: "invoke",
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
    chat: { ...CHAT_HABITS, maxTokens: "max_completion_tokens" },
    losses: new Losses("refuse"),
    textTools: new Set(),
    betas: ["context-management-2025-06-27"],
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
  ["chat", "messages", { messages: [{ role: "user", name: "Ada", content: "x" }] }, "messages[0].name"],
  ["chat", "messages", { messages: [{ role: "assistant", audio: { id: "a" } }] }, "messages[0].audio"],
  ["chat", "converse", { messages: [{ role: "assistant", content: "x", prefix: true }] }, "messages[0].prefix"],
  [
    "messages",
    "chat",
    { ...user("x"), tools: [{ name: "f", input_schema: {}, input_examples: [] }] },
    "tools[0].input_examples",
  ],
  [
    "messages",
    "chat",
    user([{ type: "document", citations: { enabled: true }, source: { type: "text", data: "x" } }]),
    "messages[0].content[0].citations",
  ],
  [
    "messages",
    "chat",
    user([{ type: "document", context: "c", source: { type: "text", data: "x" } }]),
    "messages[0].content[0].context",
  ],
  ["messages", "converse", { ...user("x"), output_config: { effort: "low" } }, "output_config.effort"],
  ["chat", "generateContent", { ...user("x"), logprobs: true }, "logprobs"],
  ["chat", "generateContent", { messages: [{ role: "tool", tool_call_id: "nobody", content: "x" }] }, "messages"],
  ["chat", "generateContent", { ...user("x"), reasoning_effort: "extreme" }, "reasoning_effort"],
  ["chat", "converse", user([{ type: "image_url", image_url: { url: "https://example.com/a.png" } }]), "messages"],
  ["chat", "converse", { ...user("x"), response_format: { type: "json_object" } }, "response_format"],
  ["messages", "chat", { ...user("x"), container: "c" }, "container"],
  ["messages", "chat", { ...user("x"), inference_geo: "eu" }, "inference_geo"],
  ["messages", "chat", { ...user("x"), tools: [{ type: "web_search_20250305", name: "web_search" }] }, "tools[0].type"],
  [
    "messages",
    "chat",
    { messages: [{ role: "assistant", content: "x", tool_calls: [{ id: "t" }] }] },
    "messages[0].tool_calls",
  ],
  ["messages", "chat", user([{ type: "search_result" }]), "messages[0].content[0].type"],
  [
    "messages",
    "chat",
    user([{ type: "tool_result", tool_use_id: "t", content: [{ type: "video" }] }]),
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

test("a message that a chat SDK sends back as it got it is accepted, and what it refused is what it said", () => {
  const replayed = {
    role: "assistant",
    content: null,
    refusal: "I cannot.",
    annotations: [],
    audio: null,
    function_call: null,
    tool_calls: null,
    reasoning_content: "Hm.",
  };
  const sent = between("chat", "messages").request({ messages: [replayed] }, context());
  assert.deepEqual(sent.messages, [{ role: "assistant", content: [{ type: "text", text: "I cannot." }] }]);
});

test("marks for Anthropic's cache stay where they were set: tools, files, results", () => {
  const mark = { type: "ephemeral" };
  const sent = JSON.stringify(
    between("chat", "messages").request(
      {
        messages: [
          {
            role: "user",
            content: [{ type: "file", file: { file_data: "data:application/pdf;base64,AA==" }, cache_control: mark }],
          },
          { role: "assistant", tool_calls: [{ id: "1", function: { name: "f", arguments: "{}" } }] },
          { role: "tool", name: "f", tool_call_id: "1", content: [{ type: "text", text: "r", cache_control: mark }] },
        ],
        tools: [{ type: "function", function: { name: "f" }, cache_control: mark }],
      },
      context(),
    ),
  );
  assert.equal(sent.split('"cache_control":{"type":"ephemeral"}').length - 1, 3);
});

const emptyCalls: [provider: Format, events: [string, Members][]][] = [
  [
    "messages",
    [
      ["", { type: "message_start", message: {} }],
      [
        "",
        { type: "content_block_start", index: 0, content_block: { type: "tool_use", id: "t", name: "now", input: {} } },
      ],
      ["", { type: "content_block_delta", index: 0, delta: { type: "input_json_delta", partial_json: "" } }],
      ["", { type: "content_block_stop", index: 0 }],
      ["", { type: "message_delta", delta: { stop_reason: "tool_use" } }],
    ],
  ],
  [
    "converse",
    [
      ["messageStart", { role: "assistant" }],
      ["contentBlockStart", { start: { toolUse: { toolUseId: "t", name: "now" } } }],
      ["contentBlockStop", {}],
      ["messageStop", { stopReason: "tool_use" }],
    ],
  ],
];
for (const [provider, events] of emptyCalls) {
  test(`a tool that ${provider} calls without arguments is called with an empty object in a chat stream`, () => {
    const written = streamThrough(between("chat", provider), events)
      .map(({ data }) => (typeof data === "string" ? undefined : (data as { choices?: Choice[] }).choices?.[0]))
      .map((choice) => choice?.delta.tool_calls?.[0]?.function.arguments ?? "")
      .join("");
    assert.equal(written, "{}");
  });
}
interface Choice {
  readonly delta: { readonly tool_calls?: readonly { readonly function: { readonly arguments: string } }[] };
}

test("thoughts are asked for by budget where the provider has budgets", () => {
  const thinking = { type: "enabled", budget_tokens: 2048 };
  const body = { model: "m", max_tokens: 5000, ...user("x"), thinking };
  assert.deepEqual(between("messages", "converse").request(body, context()), {
    messages: [{ role: "user", content: [{ text: "x" }] }],
    inferenceConfig: { maxTokens: 5000 },
    additionalModelRequestFields: { thinking },
  });
  assert.equal(between("messages", "chat").request(body, context()).reasoning_effort, "low");
  const off = { ...body, thinking: { type: "disabled" } };
  assert.equal(between("messages", "converse").request(off, context()).additionalModelRequestFields, undefined);
});

const noAnswers: [client: Format, provider: Format, body: Members][] = [
  ["messages", "chat", {}],
  ["messages", "chat", { choices: [] }],
  ["chat", "messages", { type: "message" }],
  ["chat", "converse", { output: {} }],
  ["chat", "generateContent", { candidates: [{ content: { parts: [{ inlineData: { data: "AA==" } }] } }] }],
];
for (const [client, provider, body] of noAnswers) {
  test(`a ${provider} answer ${JSON.stringify(body)} is an error for a ${client} client, not an empty answer`, () =>
    assert.throws(() => between(client, provider).response(body, context()), UpstreamAnswerError));
}

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
  ["messages", "invoke", [["exception", { message: "throttled" }]], /throttled/],
  ["messages", "invoke", [["chunk", { bytes: "bm8ganNvbg==" }]], /no event/],
  ["messages", "invoke", [], /ended early/],
];
for (const [client, provider, events, message] of broken) {
  test(`a ${provider} stream that fails (${message.source}) has no clean end for a ${client} client`, () => {
    assert.throws(
      () => streamThrough(between(client, provider), events),
      (error) => error instanceof UpstreamAnswerError && message.test(error.message),
    );
  });
}
