/**
 * Requests and responses that were lost or broken between dialects: empty turns and results, reasoning under other
 * names, calls with interleaved fragments, members that only some providers support.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { context, request, response } from "../../../test/support/llm/translate.ts";
import type { Members } from "../../json/json.ts";
import type { Format } from "../request/dialect.ts";
import { TranslationError } from "./conversation.ts";
import { translationBetween } from "./translate.ts";

const PROVIDERS: readonly Format[] = ["chat", "messages", "generateContent", "converse"];
const TURNS: Readonly<Record<string, string>> = { generateContent: "contents" };

for (const provider of PROVIDERS) {
  test(`a turn with only thinking is omitted for ${provider}`, () => {
    const sent = request("messages", provider, {
      max_tokens: 10,
      messages: [
        { role: "user", content: "a" },
        { role: "assistant", content: [{ type: "thinking", thinking: "Hm.", signature: "" }] },
        { role: "user", content: "b" },
      ],
    });
    const turns = sent[TURNS[provider] ?? "messages"] as { role: string }[];
    assert.deepEqual(
      turns.map(({ role }) => role),
      ["user"],
    );
    assert.match(JSON.stringify(turns), /"a".*"b"/);
  });
}

test("an empty assistant message is omitted", () => {
  const messages = [
    { role: "user", content: "a" },
    { role: "assistant", content: "" },
    { role: "user", content: "b" },
  ];
  assert.equal((request("chat", "messages", { messages }).messages as unknown[]).length, 1);
});

test("content that Bedrock rejects is not sent: empty results and descriptions, tools that are used but not defined", () => {
  const messages = [
    { role: "assistant", tool_calls: [{ id: "1", function: { name: "f", arguments: "{}" } }] },
    { role: "tool", tool_call_id: "1", content: "" },
  ];
  const sent = request("chat", "converse", { messages });
  assert.match(JSON.stringify(sent.messages), /"content":\[\{"text":"\(no output\)"\}\]/);
  assert.deepEqual(sent.toolConfig, {
    tools: [{ toolSpec: { name: "f", inputSchema: { json: { type: "object" } } } }],
  });
  const tools = [{ type: "function", function: { name: "f", description: "" } }];
  const described = request("chat", "converse", { messages: [{ role: "user", content: "x" }], tools });
  assert.doesNotMatch(JSON.stringify(described), /description/);
});

test("Bedrock gets schemas, cache points and effort for models that support them", () => {
  const sent = request(
    "messages",
    "converse",
    {
      max_tokens: 9000,
      system: [{ type: "text", text: "s", cache_control: { type: "ephemeral" } }],
      messages: [{ role: "user", content: "x" }],
      output_config: { effort: "low", format: { type: "json_schema", schema: { type: "object" } } },
    },
    context("eu.anthropic.claude-sonnet-4-5-v1:0"),
  );
  assert.deepEqual(sent.system, [{ text: "s" }, { cachePoint: { type: "default" } }]);
  assert.deepEqual(sent.outputConfig, {
    textFormat: { type: "json_schema", structure: { jsonSchema: { schema: '{"type":"object"}', name: "answer" } } },
  });
  assert.deepEqual(sent.additionalModelRequestFields, { thinking: { type: "enabled", budget_tokens: 1024 } });
});

test("reasoning of chat servers reaches Messages clients, whatever its name", () => {
  for (const message of [
    { reasoning: "Hm.", content: "Yes." },
    { reasoning_content: "Hm.", content: "Yes." },
    {
      content: [
        { type: "thinking", thinking: [{ type: "text", text: "Hm." }] },
        { type: "text", text: "Yes." },
      ],
    },
  ]) {
    const said = response("messages", "chat", { choices: [{ message, finish_reason: "stop" }] });
    assert.deepEqual(said.content, [
      { type: "thinking", thinking: "Hm.", signature: "" },
      { type: "text", text: "Yes." },
    ]);
  }
});

test("`stop` with tool calls is a tool call", () => {
  const message = { content: null, tool_calls: [{ id: "1", function: { name: "f", arguments: "{}" } }] };
  const said = response("messages", "chat", { choices: [{ message, finish_reason: "stop" }] });
  assert.equal(said.stop_reason, "tool_use");
});

test("a tool with a string input keeps it, both ways", () => {
  const using = context();
  const patch = "*** Begin Patch\n";
  const sent = request(
    "responses",
    "messages",
    {
      input: [
        { type: "custom_tool_call", call_id: "c", name: "patch", input: patch },
        { type: "custom_tool_call_output", call_id: "c", output: "done" },
      ],
      tools: [{ type: "custom", name: "patch" }],
    },
    using,
  );
  assert.match(JSON.stringify(sent.messages), /"input":\{"input":"\*\*\* Begin Patch\\n"\}/);
  const block = { type: "tool_use", id: "t", name: "patch", input: { input: patch } };
  const said = translationBetween("responses", "messages")?.response(
    { content: [block], stop_reason: "tool_use" },
    using,
  );
  const [item] = (said?.output ?? []) as Members[];
  assert.deepEqual([item?.type, item?.input, item?.call_id], ["custom_tool_call", patch, "t"]);
});

test("references to data stored at OpenAI or Google are rejected by name", () => {
  const refused: [Format, Members, string][] = [
    ["responses", { input: "x", previous_response_id: "resp_1" }, "previous_response_id"],
    ["responses", { input: "x", conversation: "c" }, "conversation"],
    ["responses", { input: "x", background: true }, "background"],
    ["responses", { input: [{ type: "item_reference", id: "i" }] }, "input[0].type"],
    ["generateContent", { contents: [], cachedContent: "cachedContents/1" }, "cachedContent"],
  ];
  for (const [client, body, param] of refused)
    for (const how of ["drop", "pass", "refuse"] as const)
      assert.throws(
        () => request(client, "messages", body, context("m", how)),
        (error) => error instanceof TranslationError && error.param === param,
        `${param} ${how}`,
      );
});

const ASKED = { messages: [{ role: "user", name: "Ada", content: "x" }], seed: 7, verbosity: "low" };

test("`unsupported: drop` omits members and names them", () => {
  const using = context();
  const sent = request("chat", "messages", ASKED, using);
  assert.equal("seed" in sent, false);
  assert.deepEqual(using.losses.names, ["messages[0].name", "seed", "verbosity"]);
});

test("`unsupported: pass` sends top-level members unchanged", () => {
  const using = context("m", "pass");
  const sent = request("chat", "messages", { ...ASKED, model: "mine", max_tokens: 5 }, using);
  assert.deepEqual([sent.seed, sent.verbosity, sent.model, sent.max_tokens], [7, "low", "m", 5]);
  assert.deepEqual(using.losses.names, ["messages[0].name"]);
});

test("`unsupported: refuse` names the first", () => {
  assert.throws(
    () => request("chat", "messages", ASKED, context("m", "refuse")),
    (error) => error instanceof TranslationError && error.param === "messages[0].name",
  );
});

test("member names invented by a client cannot break a header", () => {
  const using = context();
  request("chat", "messages", { messages: [], "x\r\nset-cookie: a=b": 1, ["y".repeat(500)]: 1 }, using);
  for (const name of using.losses.names) assert.match(name, /^[\w.[\]$?-]{1,80}$/);
});

test("members of Claude Code and the Vercel SDK without effect on the response are not reported", () => {
  const using = context();
  const sent = request(
    "messages",
    "chat",
    {
      max_tokens: 5,
      messages: [{ role: "user", content: "x" }],
      context_management: { edits: [] },
      tools: [{ name: "f", input_schema: { type: "object" }, eager_input_streaming: true }],
    },
    using,
  );
  assert.equal((sent.tools as unknown[]).length, 1);
  assert.deepEqual(using.losses.names, ["context_management"]);
});

test("an image in the result of a tool reaches every provider", () => {
  const image = { type: "image", source: { type: "base64", media_type: "image/png", data: "AA==" } };
  const messages = [
    { role: "assistant", content: [{ type: "tool_use", id: "t", name: "f", input: {} }] },
    {
      role: "user",
      content: [{ type: "tool_result", tool_use_id: "t", content: [{ type: "text", text: "see" }, image] }],
    },
  ];
  for (const provider of ["chat", "generateContent", "converse"] as const)
    assert.match(JSON.stringify(request("messages", provider, { max_tokens: 5, messages })), /AA==/, provider);
});

test("signed thinking is returned only to the provider that signed it", () => {
  const body = {
    contents: [
      { role: "model", parts: [{ text: "Hm.", thought: true, thoughtSignature: "anthropic:seal" }, { text: "Yes." }] },
    ],
  };
  assert.match(JSON.stringify(request("generateContent", "messages", body)), /"signature":"seal"/);
  assert.doesNotMatch(JSON.stringify(request("generateContent", "chat", body)), /seal/);
  const messages = [{ role: "assistant", content: [{ type: "thinking", thinking: "Hm.", signature: "anth" }] }];
  const sent = JSON.stringify(request("messages", "generateContent", { messages, max_tokens: 5 }));
  assert.doesNotMatch(sent, /anth/);
});

test("Claude's responses are not truncated by a small default, and older models use a thinking budget", () => {
  const messages = [{ role: "user", content: "x" }];
  const asked = (model: string): Members =>
    request("chat", "messages", { messages, reasoning_effort: "medium" }, context(model));
  assert.equal(asked("claude-sonnet-4-5").max_tokens, 64_000);
  assert.deepEqual(asked("claude-sonnet-4-5").thinking, { type: "enabled", budget_tokens: 8192 });
  assert.deepEqual(asked("claude-opus-4-6").output_config, { effort: "medium" });
  const old = context("claude-3-5-sonnet-latest");
  const sent = request("chat", "messages", { messages, reasoning_effort: "medium" }, old);
  assert.deepEqual([sent.max_tokens, sent.thinking, old.losses.names], [8192, undefined, ["reasoning_effort"]]);
});
