/**
 * Requests, answers and streams between the dialects of providers: only the named refusals are thrown, what comes out is
 * JSON, every text of a request arrives, and usage comes out as it went in.
 */

import type { Members } from "../../../src/json/json.ts";
import { TranslationError, UpstreamResponseError } from "../../../src/llm/dialects/conversation.ts";
import { translationBetween } from "../../../src/llm/dialects/translate.ts";
import type { OutEvent, Translation } from "../../../src/llm/dialects/translation.ts";
import type { Format } from "../../../src/llm/request/dialect.ts";
import { readUsage } from "../../../src/llm/usage/usage.ts";
import { context } from "../../support/llm/translate.ts";
import type { Random } from "../../support/random.ts";
import { isRecord, parsed, randomJson } from "../json.ts";
import { defineTarget, expect, expectSame, refusalOf } from "../target.ts";

type Input = {
  readonly pair: number;
  readonly request: string;
  readonly answer: string;
  readonly events: readonly string[];
};

const PAIRS = [
  ["chat", "messages"], ["chat", "generateContent"], ["chat", "converse"], ["messages", "chat"], ["messages", "generateContent"], ["messages", "converse"], ["messages", "invoke"],
  ["responses", "chat"], ["responses", "messages"], ["responses", "generateContent"], ["responses", "converse"], ["generateContent", "chat"], ["generateContent", "messages"], ["generateContent", "converse"],
] as const satisfies readonly (readonly [Format, Format])[]; // biome-ignore format: a table

/** Numbers that no double holds are no numbers to anybody; they would come out as null. */
const OVERFLOW = /\de\+?\d{3}|\d{300}/i;

/** What `JSON.stringify` would drop or spoil. */
function checkJson(value: unknown, at = ""): void {
  if (typeof value === "number") expect(Number.isFinite(value), `${at} is ${value}`);
  else if (typeof value === "object" && value !== null)
    for (const [name, inner] of Object.entries(value)) checkJson(inner, `${at}.${name}`);
  else expect(value !== undefined && typeof value !== "function", `${at} is ${typeof value}`);
}

/** Marked texts stand for what a person or a model wrote; none may be lost. */
function marksIn(text: string): Set<string> {
  return new Set(text.match(/«\d+»/g) ?? []);
}

/** The texts at the places that both dialects have for them. */
function saidIn(body: Record<string, unknown>): string {
  let said = typeof body.system === "string" ? body.system : "";
  for (const message of Array.isArray(body.messages) ? body.messages.filter(isRecord) : []) {
    if (typeof message.content === "string") said += message.content;
    for (const block of Array.isArray(message.content) ? message.content.filter(isRecord) : [])
      if (block.type === "text" && typeof block.text === "string") said += block.text;
      else if (block.type === "tool_result" && typeof block.content === "string") said += block.content;
  }
  return said;
}

function requestOutcome(translation: Translation, text: string): string {
  const body = parsed(text)?.value;
  if (!isRecord(body) || OVERFLOW.test(text)) return "no request";
  let out: Members | undefined;
  const refusal = refusalOf(() => {
    out = translation.request(body, context("m", "refuse"));
  }, TranslationError);
  if (refusal !== undefined) return `refused ${(refusal as TranslationError).param.replace(/\d+/g, "n").slice(0, 30)}`;
  checkJson(out);
  const written = marksIn(JSON.stringify(out));
  for (const mark of marksIn(saidIn(body)))
    expect(written.has(mark), `a text was lost: ${mark} of ${text.slice(0, 200)}`);
  return `asked ${Object.keys(out ?? {}).length}`;
}

function answerOutcome(translation: Translation, text: string, provider: Format): string {
  const body = parsed(text)?.value;
  if (!isRecord(body) || OVERFLOW.test(text)) return "no answer";
  let out: Members | undefined;
  const refusal = refusalOf(() => {
    out = translation.response(body, context("m", "refuse"));
  }, UpstreamResponseError);
  if (refusal !== undefined || out === undefined) return `broken: ${refusal?.message.slice(0, 30)}`;
  if (provider === "invoke") return "passed";
  checkJson(out);
  const said = provider === "generateContent" ? body.usageMetadata : body.usage;
  const before = readUsage(said);
  const after = readUsage(out.usage);
  if (before !== undefined && after !== undefined)
    expectSame(after.outputTokens, before.outputTokens, "the tokens of the answer");
  return `answered ${before !== undefined}`;
}

function streamOutcome(translation: Translation, events: readonly string[]): string {
  const stream = translation.stream(context("m", "refuse"));
  const out: OutEvent[] = [];
  const refusal = refusalOf(() => {
    for (const text of events) {
      const data = parsed(text)?.value;
      if (isRecord(data))
        out.push(
          ...stream.event(typeof data.type === "string" ? data.type : typeof data.$ === "string" ? data.$ : "", data),
        );
    }
    out.push(...stream.end());
  }, UpstreamResponseError);
  for (const { data } of out) if (data !== "[DONE]") checkJson(JSON.parse(JSON.stringify(data)));
  const kinds = out.map(({ event, data }) => event ?? (data === "[DONE]" ? "done" : "chunk"));
  const starts = kinds.filter((kind) => kind === "content_block_start").length;
  const stops = kinds.filter((kind) => kind === "content_block_stop").length;
  if (refusal === undefined && !events.some((text) => text.includes("bytes")))
    expectSame(stops, starts, "blocks that were closed");
  return `${refusal?.message.slice(0, 20)} ${Math.min(out.length, 6)} ${new Set(kinds).size}`;
}

const markOf = (random: Random): string => `«${1_000 + random.int(9_000)}»`;

const junk = (random: Random): string =>
  randomJson(random, {
    names: ["type", "text", "role", "content", "name", "id", "input"],
    maxDepth: 2,
    brokenOneIn: 10_000,
  });

function content(random: Random): string {
  const parts = [
    () => `{"type":"text","text":"${markOf(random)}"}`, () => '{"type":"image_url","image_url":{"url":"data:image/png;base64,QUJD"}}', () => '{"type":"image","source":{"type":"base64","media_type":"image/png","data":"QUJD"}}',
    () => `{"type":"tool_use","id":"t1","name":"f","input":{"a":"${markOf(random)}"}}`, () => `{"type":"tool_result","tool_use_id":"t1","content":"${markOf(random)}"}`, () => `{"type":"thinking","thinking":"x","signature":"s"}`, () => junk(random),
  ]; // biome-ignore format: a table
  return random.oneIn(2) ? `"${markOf(random)}"` : `[${random.list(3, () => random.pick(parts)()).join(",")}]`;
}

function requestText(random: Random): string {
  const messages = random.list(4, () => {
    const role = random.pick(["user", "assistant", "system", "tool", "user", "assistant"]);
    const calls =
      role === "assistant" && random.oneIn(3)
        ? `,"tool_calls":[{"id":"t1","type":"function","function":{"name":"f","arguments":"{\\"a\\":\\"${markOf(random)}\\"}"}}]`
        : "";
    return `{"role":"${role}","content":${random.oneIn(15) ? junk(random) : content(random)}${calls}${role === "tool" ? ',"tool_call_id":"t1"' : ""}}`;
  });
  const more = random.list(3, () =>
    random.pick([
      '"max_tokens":5',
      '"temperature":0.5',
      '"stop":["a"]',
      '"stream":true',
      '"n":2',
      `"system":"${markOf(random)}"`,
      '"tool_choice":"auto"',
      '"thinking":{"type":"enabled","budget_tokens":1024}',
      `"tools":[{"type":"function","function":{"name":"f","description":"${markOf(random)}","parameters":{}}}]`,
      `"tools":[{"name":"f","description":"${markOf(random)}","input_schema":{"type":"object"}}]`,
      '"x":1',
      '"response_format":{"type":"json_object"}',
    ]),
  );
  return `{${['"model":"m"', `"messages":[${messages.join(",")}]`, ...more].join(",")}}`;
}

const USAGES = [
  '{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}',
  '{"input_tokens":3,"output_tokens":4,"cache_read_input_tokens":2}',
  '{"inputTokens":1,"outputTokens":2,"totalTokens":3}',
  '{"promptTokenCount":1,"candidatesTokenCount":2,"thoughtsTokenCount":3,"totalTokenCount":6}',
  "{}",
  "null",
  '{"prompt_tokens":-1}',
  '{"prompt_tokens":5,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":4}}',
];
const ANSWERS = [
  '"choices":[{"message":{"role":"assistant","content":"a"},"finish_reason":"stop"}]', '"choices":[{"message":{"content":null,"tool_calls":[{"id":"1","function":{"name":"f","arguments":"{"}}]},"finish_reason":"tool_calls"}]',
  '"content":[{"type":"text","text":"a"},{"type":"tool_use","id":"1","name":"f","input":{}}]', '"candidates":[{"content":{"parts":[{"text":"a"},{"functionCall":{"name":"f"}}]},"finishReason":"STOP"}]', '"output":{"message":{"content":[{"text":"a"},{"toolUse":{"toolUseId":"1","name":"f","input":{}}}]}}', '"stop_reason":"end_turn"', '"stopReason":"tool_use"',
]; // biome-ignore format: a table
const EVENTS = [
  '{"choices":[{"delta":{"role":"assistant","content":"a"}}]}', '{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"1","function":{"name":"f","arguments":"{"}}]}}]}', '{"choices":[{"delta":{},"finish_reason":"stop"}]}', '{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}', '{"choices":[{"delta":{"reasoning_content":"r"}}]}',
  '{"type":"message_start","message":{"id":"1","model":"m","usage":{"input_tokens":1}}}', '{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"1","name":"f"}}', '{"type":"content_block_delta","delta":{"type":"text_delta","text":"a"}}', '{"type":"content_block_delta","delta":{"type":"input_json_delta","partial_json":"{}"}}', '{"type":"content_block_stop"}', '{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":2}}', '{"type":"message_stop"}', '{"type":"error","error":{"message":"x"}}',
  '{"candidates":[{"content":{"parts":[{"text":"a"}]}}]}', '{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":{}}}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":1}}', '{"promptFeedback":{"blockReason":"x"}}',
  '{"$":"messageStart","role":"assistant"}', '{"$":"contentBlockStart","start":{"toolUse":{"toolUseId":"1","name":"f"}}}', '{"$":"contentBlockDelta","delta":{"text":"a"}}', '{"$":"contentBlockDelta","delta":{"toolUse":{"input":"{}"}}}', '{"$":"contentBlockStop"}', '{"$":"messageStop","stopReason":"end_turn"}', '{"$":"metadata","usage":{"inputTokens":1}}', '{"bytes":"eyJ0eXBlIjoibWVzc2FnZV9zdG9wIn0="}',
]; // biome-ignore format: a table

export const translations = defineTarget<Input>({
  name: "translations",
  seeds: PAIRS.map((_, pair) => ({
    pair,
    request: '{"model":"m","messages":[{"role":"user","content":"«1»"}],"max_tokens":5}',
    answer: `{${ANSWERS[pair % 5]},"usage":${USAGES[0]}}`,
    events: EVENTS.slice(0, 4),
  })),
  smokeCases: 1_200,
  generate: (random) => ({
    pair: random.int(PAIRS.length),
    request: requestText(random),
    answer: random.oneIn(12)
      ? junk(random)
      : `{${[...random.list(2, () => random.pick(ANSWERS)), `"usage":${random.pick(USAGES)}`, `"usageMetadata":${random.pick(USAGES)}`].join(",")}}`,
    events: random.list(8, () => (random.oneIn(20) ? junk(random) : random.pick(EVENTS))),
  }),
  run({ pair, request, answer, events }) {
    const [client, provider] = PAIRS[Math.abs(Math.trunc(pair)) % PAIRS.length] as (typeof PAIRS)[number];
    const translation = translationBetween(client, provider);
    expect(translation !== undefined, "no translation");
    return `${client} ${provider} ${requestOutcome(translation, request)} ${answerOutcome(translation, answer, provider)} ${streamOutcome(translation, events)}`;
  },
});
