/**
 * Every string position of the dialects: a secret is planted in one position after the other of typed samples and of
 * all golden translations, and each position is guarded unless it is on the list of structural ones here. A new member
 * of a dialect is a position like any other: it is guarded without a change to the code.
 */
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import type Anthropic from "@anthropic-ai/sdk";
import type { ConverseCommandInput, ConverseCommandOutput } from "@aws-sdk/client-bedrock-runtime";
import type { GenerateContentParameters, GenerateContentResponse } from "@google/genai";
import type OpenAI from "openai";
import { finish } from "../../base/sliced-work.ts";
import type { Members } from "../../json/json.ts";
import { createStreamGuard } from "./stream-guard.ts";
import { compileTextGuard } from "./text-guard.ts";
import { BodyTexts, type Direction } from "./text-places.ts";

const SECRET = "secret-123";
const GUARDS = [compileTextGuard("mask", [{ pattern: "(?i)secret-\\d+" }], { status: 403, message: "no" })];
const GOLDENS = "test/golden/llm";

/**
 * Members whose strings pass if they have no white space. Each is an identifier, a word of the protocol, or sealed
 * data.
 */
const STRUCTURAL = new Set([
  ...["id", "type", "role", "model", "object", "status", "event_type"],
  ...["tool_call_id", "call_id", "tool_use_id", "toolUseId", "item_id", "file_id", "container_id", "response_id"],
  ...["previous_response_id", "prompt_cache_key", "system_fingerprint", "responseId", "modelVersion", "model_version"],
  ...["mime_type", "mimeType", "media_type", "finish_reason", "finishReason", "stop_reason", "stopReason"],
  ...["signature", "thoughtSignature", "thought_signature", "encrypted_content", "encrypted_index", "obfuscation"],
]);
/** Withheld as a whole in responses. */
const WITHHELD = new Set(["logprobs", "logprobsResult", "prompt_logprobs", "token_ids", "prompt_token_ids"]);

interface Position {
  readonly path: string;
  readonly name: string;
  /** The same body with another string in this position. */
  put(text: string): Members;
}

/** All strings of a body, and the names of members where the body holds arbitrary JSON. */
function* positionsOf(body: unknown, path = "", name = ""): Generator<Position> {
  if (typeof body === "string") yield { path, name, put: (text) => text as unknown as Members };
  else if (Array.isArray(body)) {
    for (const [i, item] of body.entries())
      for (const inner of positionsOf(item, `${path}.${i}`, name))
        yield { ...inner, put: (text) => body.with(i, inner.put(text)) as unknown as Members };
  } else if (typeof body === "object" && body !== null)
    for (const [key, member] of Object.entries(body))
      for (const inner of positionsOf(member, `${path}.${key}`, key))
        yield { ...inner, put: (text) => ({ ...body, [key]: inner.put(text) }) as Members };
}

const guardedBody = (body: Members, direction: Direction): string =>
  JSON.stringify(finish(new BodyTexts(body, { direction }).guarded(GUARDS)));

function guardedEvent(body: Members): string {
  const guard = createStreamGuard(GUARDS);
  const event = { event: "message", data: JSON.stringify(body), id: undefined, retry: undefined };
  return [...finish(guard.event(event)), ...finish(guard.end())].map(({ data }) => data).join("\n");
}

let count = 0;
/** Positions that were checked: the same members in the same dialect need it once. */
const checked = new Set<string>();

/** Asserts that a secret in each position, alone and inside a sentence, is never in the output. */
function check(sample: Members, what: string, guarded: (body: Members) => string): void {
  for (const { path, name, put } of positionsOf(sample)) {
    const shape = `${what.replace(/^[\w-]+\//, "")} ${path.replace(/\.\d+/g, ".*")}`;
    if (checked.has(shape)) continue;
    checked.add(shape);
    const isFree =
      /\.(?:input(?!\.\d)|args|arguments|parameters|properties|input_schema|inputSchema|schema|json|metadata)\./.test(
        path,
      );
    count += 2;
    assert.doesNotMatch(guarded(put(`my ${SECRET} there`)), /secret-1/, `${what}: ${path} with a sentence`);
    if (STRUCTURAL.has(name) && !isFree) continue;
    assert.doesNotMatch(guarded(put(SECRET)), /secret-1/, `${what}: ${path}`);
  }
}

function goldenCases(): { readonly name: string; readonly golden: Record<string, unknown> }[] {
  return readdirSync(GOLDENS).flatMap((folder) =>
    readdirSync(`${GOLDENS}/${folder}`).map((file) => ({
      name: `${folder}/${file}`,
      golden: JSON.parse(readFileSync(`${GOLDENS}/${folder}/${file}`, "utf8")) as Record<string, unknown>,
    })),
  );
}

test("no string position of the golden requests, responses and stream events is omitted [M26]", () => {
  count = 0;
  for (const { name, golden } of goldenCases()) {
    for (const key of ["request", "upstreamRequest"])
      if (golden[key]) check(golden[key] as Members, `${name} ${key}`, (body) => guardedBody(body, "request"));
    for (const key of ["response", "upstreamResponse"])
      if (golden[key]) check(golden[key] as Members, `${name} ${key}`, (body) => guardedBody(body, "response"));
    for (const event of (golden.stream ?? []) as { readonly data: unknown }[])
      if (typeof event.data === "object") check(event.data as Members, `${name} stream`, guardedEvent);
    for (const [, event] of (golden.upstreamStream ?? []) as [string, Members][])
      check(event, `${name} upstreamStream`, guardedEvent);
  }
  assert.ok(count > 1_200, String(count));
});

/** Typed by the SDKs: a member that they rename or drop fails to compile here. */
const chatRequest: OpenAI.ChatCompletionCreateParams = {
  model: "m",
  messages: [
    { role: "developer", content: [{ type: "text", text: "a" }], name: "n" },
    {
      role: "user",
      name: "n",
      content: [
        { type: "text", text: "a" },
        { type: "input_audio", input_audio: { data: "a", format: "wav" } },
        { type: "file", file: { file_data: "a", filename: "f", file_id: "i" } },
        { type: "image_url", image_url: { url: "a", detail: "low" } },
      ],
    },
    {
      role: "assistant",
      content: [{ type: "refusal", refusal: "a" }],
      refusal: "r",
      name: "n",
      audio: { id: "i" },
      tool_calls: [
        { id: "i", type: "function", function: { name: "f", arguments: "{}" } },
        { id: "i", type: "custom", custom: { name: "f", input: "x" } },
      ],
    },
    { role: "tool", tool_call_id: "i", content: [{ type: "text", text: "a" }] },
  ],
  tools: [
    {
      type: "function",
      function: { name: "f", description: "d", parameters: { properties: { a: { description: "d", enum: ["e"] } } } },
    },
    {
      type: "custom",
      custom: {
        name: "c",
        description: "d",
        format: { type: "grammar", grammar: { definition: "d", syntax: "lark" } },
      },
    },
  ],
  tool_choice: { type: "function", function: { name: "f" } },
  response_format: { type: "json_schema", json_schema: { name: "n", description: "d", schema: { title: "t" } } },
  prediction: { type: "content", content: [{ type: "text", text: "p" }] },
  web_search_options: { user_location: { type: "approximate", approximate: { city: "c", country: "c" } } },
  stop: ["s"],
  user: "u",
  safety_identifier: "s",
  metadata: { a: "b" },
};
const chatResponse = {
  id: "i",
  object: "chat.completion",
  created: 1,
  model: "m",
  system_fingerprint: "f",
  choices: [
    {
      index: 0,
      finish_reason: "stop",
      logprobs: {
        content: [{ token: "a", bytes: [1], logprob: 0, top_logprobs: [{ token: "b", bytes: [], logprob: 0 }] }],
        refusal: [],
      },
      message: {
        role: "assistant",
        content: "a",
        refusal: "r",
        annotations: [{ type: "url_citation", url_citation: { url: "u", title: "t", start_index: 0, end_index: 1 } }],
        audio: { id: "i", data: "a", expires_at: 1, transcript: "t" },
        tool_calls: [{ id: "i", type: "function", function: { name: "f", arguments: "{}" } }],
      },
    },
  ],
} satisfies OpenAI.ChatCompletion;
const chatEvent = {
  ...chatResponse,
  object: "chat.completion.chunk",
  choices: [
    {
      index: 1,
      finish_reason: null,
      logprobs: chatResponse.choices[0]?.logprobs ?? null,
      delta: {
        role: "assistant",
        content: "a",
        refusal: "r",
        tool_calls: [{ index: 0, id: "i", function: { name: "f", arguments: "{" } }],
      },
    },
  ],
} satisfies OpenAI.ChatCompletionChunk;
const responsesRequest: OpenAI.Responses.ResponseCreateParams = {
  model: "m",
  instructions: "i",
  prompt: { id: "p", variables: { a: "b", c: { type: "input_text", text: "t" } } },
  previous_response_id: "r",
  metadata: { a: "b" },
  text: { format: { type: "json_schema", name: "n", description: "d", schema: { title: "t" } } },
  tools: [
    { type: "function", name: "f", description: "d", parameters: { title: "t" }, strict: true },
    { type: "mcp", server_label: "l", server_url: "u", server_description: "d", headers: { a: "b" } },
  ],
  input: [
    {
      role: "user",
      content: [
        { type: "input_text", text: "t" },
        { type: "input_file", file_data: "d", filename: "f" },
      ],
    },
    { type: "function_call", call_id: "c", name: "f", arguments: "{}" },
    { type: "function_call_output", call_id: "c", output: [{ type: "input_text", text: "t" }] },
    {
      type: "reasoning",
      id: "r",
      summary: [{ type: "summary_text", text: "s" }],
      content: [{ type: "reasoning_text", text: "t" }],
    },
  ],
};
const messagesRequest: Anthropic.MessageCreateParams = {
  model: "m",
  max_tokens: 1,
  system: [{ type: "text", text: "s" }],
  metadata: { user_id: "u" },
  stop_sequences: ["s"],
  tools: [{ name: "t", description: "d", input_schema: { type: "object", properties: { a: { description: "d" } } } }],
  messages: [
    {
      role: "user",
      content: [
        { type: "text", text: "t" },
        { type: "document", source: { type: "text", media_type: "text/plain", data: "d" }, title: "t", context: "c" },
        { type: "document", source: { type: "content", content: [{ type: "text", text: "t" }] } },
        { type: "search_result", source: "s", title: "t", content: [{ type: "text", text: "t" }] },
        { type: "tool_result", tool_use_id: "i", content: [{ type: "text", text: "t" }] },
      ],
    },
    {
      role: "assistant",
      content: [
        { type: "tool_use", id: "i", name: "n", input: { a: ["b"] } },
        { type: "thinking", thinking: "t", signature: "s" },
      ],
    },
  ],
};
const messagesResponse = {
  id: "i",
  type: "message",
  role: "assistant",
  model: "m",
  stop_reason: "stop_sequence",
  stop_sequence: "s",
  content: [
    {
      type: "text",
      text: "t",
      citations: [
        {
          type: "char_location",
          cited_text: "c",
          document_title: "d",
          document_index: 0,
          start_char_index: 0,
          end_char_index: 1,
          file_id: null,
        },
      ],
    },
    { type: "thinking", thinking: "t", signature: "s" },
    { type: "tool_use", id: "i", name: "n", input: { a: { b: "c" } } },
    {
      type: "web_search_tool_result",
      tool_use_id: "i",
      content: [{ type: "web_search_result", title: "t", url: "u", page_age: "p", encrypted_content: "e" }],
    },
  ],
} satisfies Partial<Record<keyof Anthropic.Message, unknown>>;
const geminiRequest: Omit<GenerateContentParameters, "model" | "config"> & Members = {
  contents: [
    {
      role: "user",
      parts: [
        { text: "t" },
        { inlineData: { mimeType: "text/plain", data: "d", displayName: "n" } },
        { functionCall: { id: "i", name: "f", args: { a: "b" } } },
        { functionResponse: { id: "i", name: "f", response: { output: "o" } } },
        { executableCode: { code: "c" } },
        { codeExecutionResult: { output: "o" } },
      ],
    },
  ],
  systemInstruction: { parts: [{ text: "s" }] },
  tools: [{ functionDeclarations: [{ name: "f", description: "d", parametersJsonSchema: { title: "t" } }] }],
  generationConfig: { stopSequences: ["s"], responseSchema: { description: "d" } },
  cachedContent: "c",
  labels: { a: "b" },
};
const geminiResponse: Partial<Record<keyof GenerateContentResponse, unknown>> = {
  candidates: [
    {
      index: 0,
      content: {
        role: "model",
        parts: [
          { text: "t" },
          { text: "t", thought: true, thoughtSignature: "s" },
          { functionCall: { name: "f", args: { a: "b" } } },
          { executableCode: { language: "l", code: "c" } },
        ],
      },
      finishReason: "STOP",
      finishMessage: "m",
      citationMetadata: { citations: [{ uri: "u", title: "t", license: "l" }] },
      groundingMetadata: {
        webSearchQueries: ["q"],
        groundingChunks: [{ web: { uri: "u", title: "t" } }],
        searchEntryPoint: { renderedContent: "h" },
        groundingSupports: [{ segment: { text: "t" } }],
      },
      logprobsResult: { chosenCandidates: [{ token: "t" }] },
    },
  ],
  promptFeedback: { blockReasonMessage: "m" },
  modelVersion: "v",
};
const converseRequest: Omit<ConverseCommandInput, "modelId"> & Members = {
  system: [{ text: "s" }],
  messages: [
    {
      role: "user",
      content: [
        { text: "t" },
        { toolResult: { toolUseId: "i", content: [{ text: "t" }, { json: { a: "b" } }] } },
        { toolUse: { toolUseId: "i", name: "n", input: { a: "b" } } },
        { document: { format: "txt", name: "n", context: "c", source: { text: "t" } } },
        { reasoningContent: { reasoningText: { text: "t", signature: "s" } } },
        { guardContent: { text: { text: "t" } } },
      ],
    },
  ],
  toolConfig: { tools: [{ toolSpec: { name: "n", description: "d", inputSchema: { json: { title: "t" } } } }] },
  promptVariables: { a: { text: "t" } },
  additionalModelRequestFields: { a: "b" },
  requestMetadata: { a: "b" },
};
const converseResponse: Partial<Record<keyof ConverseCommandOutput, unknown>> = {
  output: {
    message: {
      role: "assistant",
      content: [
        { text: "t" },
        { toolUse: { toolUseId: "i", name: "n", input: { a: "b" } } },
        { citationsContent: { content: [{ text: "t" }], citations: [{ title: "t", sourceContent: [{ text: "t" }] }] } },
      ],
    },
  },
  stopReason: "end_turn",
  additionalModelResponseFields: { a: "b" },
  trace: { guardrail: { modelOutput: ["m"] } },
};
const REQUESTS: Readonly<Record<string, object>> = {
  chatRequest,
  responsesRequest,
  messagesRequest,
  geminiRequest,
  converseRequest,
  completions: { model: "m", prompt: ["p"], suffix: "s", stop: "s", user: "u" },
  embeddings: { model: "m", input: ["a", "b"], user: "u" },
  "an unknown body": { anything: { nested: [{ deep: "x", list: ["y"] }] }, template: "z" },
};
const RESPONSES: Readonly<Record<string, object>> = {
  chatResponse,
  messagesResponse,
  geminiResponse,
  converseResponse,
  completions: { choices: [{ index: 0, text: "t", logprobs: { tokens: ["t"], top_logprobs: [{ a: 0 }] } }] },
  reasoning: {
    choices: [
      {
        message: {
          reasoning: "r",
          reasoning_content: "c",
          reasoning_details: [{ type: "reasoning.text", text: "t", summary: "s", data: "d" }],
        },
      },
    ],
  },
  "an unknown body": { anything: { nested: [{ deep: "x" }] }, note: "z" },
};
const EVENTS: Readonly<Record<string, object>> = {
  chatEvent,
  geminiResponse,
  "a block starts": { type: "content_block_start", index: 0, content_block: { type: "text", text: "t" } },
  "a citation": {
    type: "content_block_delta",
    index: 0,
    delta: { type: "citations_delta", citation: { cited_text: "c", title: "t" } },
  },
  "a message ends": { type: "message_delta", delta: { stop_reason: "x", stop_sequence: "s" } },
  "an output text": {
    type: "response.output_text.delta",
    item_id: "i",
    output_index: 0,
    content_index: 0,
    delta: "d",
    logprobs: [{ token: "t" }],
  },
  "an annotation": { type: "response.output_text.annotation.added", annotation: { title: "t", url: "u" } },
  "a search": {
    type: "response.output_item.added",
    item: { id: "i", type: "web_search_call", action: { type: "search", query: "q", url: "u" } },
  },
  "an error": { type: "error", error: { type: "x", message: "m" } },
  "an interaction": { event_type: "content.delta", index: 0, delta: { type: "text", text: "t" } },
  "another dialect": {
    type: "content-delta",
    index: 0,
    delta: { message: { content: { text: "t" }, tool_plan: "p" } },
  },
  "an unknown event": { anything: { nested: ["x"] }, note: "z" },
};

test("no string position of the SDKs' types is omitted from requests, responses and events [M25]", () => {
  count = 0;
  for (const [name, body] of Object.entries(REQUESTS))
    check(body as Members, name, (changed) => guardedBody(changed, "request"));
  for (const [name, body] of Object.entries(RESPONSES))
    check(body as Members, name, (changed) => guardedBody(changed, "response"));
  for (const [name, body] of Object.entries(EVENTS)) check(body as Members, name, guardedEvent);
  assert.ok(count > 500, String(count));
});

test("log probabilities and token ids are withheld from responses, and stay in requests", () => {
  for (const name of WITHHELD) {
    const shown = JSON.parse(guardedBody({ choices: [{ [name]: { tokens: ["a"] } }] }, "response")) as Members;
    assert.ok(["null", undefined].includes(JSON.stringify((shown.choices as Members[])[0]?.[name])), name);
    assert.match(guardedBody({ [name]: [7] }, "request"), /7/);
    assert.doesNotMatch(guardedBody({ choices: [{ [name]: [7] }] }, "response"), /7/);
  }
});

test("images and audio pass unchanged, and text in base64 is masked inside", () => {
  const png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
  const image = {
    messages: [{ content: [{ type: "image", source: { type: "base64", media_type: "image/png", data: png } }] }],
  };
  assert.equal(guardedBody(image, "request"), JSON.stringify(image));
  const file = { messages: [{ content: [{ source: { data: Buffer.from(`a ${SECRET} b`).toString("base64") } }] }] };
  const [, data = ""] = /"data":"([^"]*)"/.exec(guardedBody(file, "request")) ?? [];
  assert.equal(Buffer.from(data, "base64").toString(), "a <masked> b");
});

test("names of members are guarded where a body holds arbitrary JSON, and none is lost", () => {
  const tool = { content: [{ type: "tool_use", input: { [SECRET]: 1, "secret-456": 2 } }] };
  assert.match(guardedBody(tool, "response"), /"<masked>":1,"<masked>_2":2/);
});

test("parts of one message are one text, and messages are not", () => {
  const part = (text: string): object => ({ type: "text", text });
  const body = {
    messages: [
      {
        role: "user",
        content: [part("a sec"), { type: "image_url", image_url: { url: "https://x.example/y" } }, part("ret-123 b")],
      },
      { role: "user", content: "c secret" },
      { role: "user", content: "-123 d" },
    ],
  };
  const texts = [...guardedBody(body, "request").matchAll(/"(?:text|content)":"([^"]*)"/g)].map(([, text]) => text);
  assert.deepEqual(texts, ["a <masked>", " b", "c secret", "-123 d"]);
  const emptied = { messages: [{ content: ["secret", "-", "123"].map(part) }] };
  assert.equal(guardedBody(emptied, "request").match(/"text":"<masked>"/g)?.length, 3);
});

test("numbers in the arguments and results of tools are texts", () => {
  const cards = [compileTextGuard("mask", [{ builtin: "creditCard" }], { status: 403, message: "no" })];
  const parts = [{ functionCall: { name: "pay", args: { card: 4111111111111111, amount: 1234567 } } }];
  const body = { contents: [{ role: "model", parts }], generationConfig: { maxOutputTokens: 4111111111111111 } };
  const guarded = finish(new BodyTexts(body, { direction: "request" }).guarded(cards)) as typeof body;
  assert.deepEqual(guarded.contents[0]?.parts[0]?.functionCall.args, { card: "<CREDIT_CARD>", amount: 1234567 });
  assert.deepEqual(guarded.generationConfig, body.generationConfig);
});
