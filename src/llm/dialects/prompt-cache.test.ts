import assert from "node:assert/strict";
import { test } from "node:test";
import type { PromptCaching } from "../request/llm-call.ts";
import { markPrompt } from "./prompt-cache.ts";

const ALL: PromptCaching = { system: true, tools: true, messages: true, minTokens: 0, ttl: "5m" };
const MARK = { type: "ephemeral" };
const CLAUDE = "anthropic.claude-sonnet-4-5";
const POINT = { cachePoint: { type: "default" } };

test("messages: the last tool, the system prompt and the last block of the conversation are marked", () => {
  const body = {
    system: "S",
    tools: [{ name: "a" }, { name: "b" }],
    messages: [
      { role: "user", content: "one" },
      { role: "assistant", content: [{ type: "text", text: "two" }] },
      { role: "user", content: "three" },
    ],
  };
  assert.deepEqual(markPrompt(body, "messages", "claude", ALL), {
    system: [{ type: "text", text: "S", cache_control: MARK }],
    tools: [{ name: "a" }, { name: "b", cache_control: MARK }],
    messages: [
      ...body.messages.slice(0, 2),
      { role: "user", content: [{ type: "text", text: "three", cache_control: MARK }] },
    ],
  });
});

test("converse: cache points follow the cached content; models without support get none, Nova none after tools", () => {
  const body = {
    system: [{ text: "S" }],
    toolConfig: { tools: [{ toolSpec: { name: "a" } }], toolChoice: { auto: {} } },
    messages: [{ role: "user", content: [{ text: "one" }] }],
  };
  const marked = {
    system: [{ text: "S" }, POINT],
    toolConfig: { tools: [{ toolSpec: { name: "a" } }, POINT], toolChoice: { auto: {} } },
    messages: [{ role: "user", content: [{ text: "one" }, POINT] }],
  };
  assert.deepEqual(markPrompt(body, "converse", `us.${CLAUDE}`, ALL), marked);
  const nova = { ...marked, toolConfig: body.toolConfig };
  assert.deepEqual(markPrompt(body, "converse", "amazon.nova-pro-v1:0", ALL), nova);
  assert.equal(markPrompt(body, "converse", "meta.llama3", ALL), body);
});

test("a request with its own markers is unchanged; a quoted marker does not count", () => {
  const own = {
    system: [{ type: "text", text: "S", cache_control: MARK }],
    messages: [{ role: "user", content: "x" }],
  };
  assert.equal(markPrompt(own, "messages", "claude", ALL), own);
  const inMessage = { messages: [{ role: "user", content: [{ type: "text", text: "x", cache_control: MARK }] }] };
  assert.equal(markPrompt(inMessage, "messages", "claude", ALL), inMessage);
  const quoted = { messages: [{ role: "user", content: '{"cache_control":{}}' }] };
  assert.notEqual(markPrompt(quoted, "messages", "claude", ALL), quoted);
});

test("short prompts are not marked; each marker counts everything before it", () => {
  const body = { system: "s".repeat(400), messages: [{ role: "user", content: "m".repeat(400) }] };
  const marked = markPrompt(body, "messages", "claude", { ...ALL, minTokens: 150 });
  assert.equal(marked.system, body.system);
  assert.notDeepEqual(marked.messages, body.messages);
  assert.deepEqual(markPrompt(body, "messages", "claude", { ...ALL, minTokens: 1_000 }), body);
});

test("content that cannot have a marker gets none: thinking, empty text, unknown shapes", () => {
  for (const content of [[{ type: "thinking", thinking: "x" }], [{ type: "text", text: "" }], [], null, 7, [7]]) {
    const body = { system: "", tools: [], messages: [{ role: "assistant", content }] };
    const marked = JSON.stringify(markPrompt(body, "messages", "claude", ALL));
    assert.ok(!marked.includes("cache_control"), marked);
  }
  assert.deepEqual(markPrompt({ messages: "x", system: 3, tools: {} }, "messages", "claude", ALL).messages, "x");
  assert.deepEqual(markPrompt({ messages: "x", system: "x" }, "converse", CLAUDE, ALL), { messages: "x", system: "x" });
});

test("ttl 1h is set in both formats", () => {
  const long: PromptCaching = { ...ALL, ttl: "1h" };
  const messages = markPrompt({ system: "S", messages: [] }, "messages", "claude", long);
  assert.deepEqual(messages.system, [{ type: "text", text: "S", cache_control: { ...MARK, ttl: "1h" } }]);
  const converse = markPrompt({ system: [{ text: "S" }] }, "converse", CLAUDE, long);
  assert.deepEqual(converse.system, [{ text: "S" }, { cachePoint: { type: "default", ttl: "1h" } }]);
});
