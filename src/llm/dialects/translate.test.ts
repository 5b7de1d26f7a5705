import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { between, context, streamThrough, user } from "../../../test/support/llm/strict-translation.ts";
import type { Members } from "../../json/json.ts";
import type { Format } from "../request/dialect.ts";
import { UpstreamResponseError } from "./conversation.ts";
import type { OutEvent } from "./translation.ts";

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

test("members without effect, and nulls, are accepted", () => {
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

test("a message that a chat SDK returns unchanged is accepted, and its refusal counts as text", () => {
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

test("Anthropic's cache markers stay where they were set: tools, files, results", () => {
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

test("thinking is requested by budget if the provider has budgets", () => {
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
  test(`a ${provider} response ${JSON.stringify(body)} is an error for a ${client} client, not an empty response`, () =>
    assert.throws(() => between(client, provider).response(body, context()), UpstreamResponseError));
}

test("a history of another model gets the signature that Gemini 3 requires", () => {
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

test("usage is omitted from a chat stream unless the client requested it", () => {
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
  ["messages", "invoke", [["chunk", { bytes: "bm8ganNvbg==" }]], /invalid event/],
  ["messages", "invoke", [], /ended early/],
];
for (const [client, provider, events, message] of broken) {
  test(`a ${provider} stream that fails (${message.source}) has no clean end for a ${client} client`, () => {
    assert.throws(
      () => streamThrough(between(client, provider), events),
      (error) => error instanceof UpstreamResponseError && message.test(error.message),
    );
  });
}
