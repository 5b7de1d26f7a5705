/**
 * Streams under response guards, as a client reads them: every channel (a choice's content, a block's thinking, the
 * arguments of a tool call) is put together from its pieces, whatever stands between them, and compared with the text that
 * a reference masks as a whole. Texts without a match arrive complete; a guard that rejects lets no match through.
 */

import { finish } from "../../../src/base/sliced-work.ts";
import type { SseEvent } from "../../../src/http/sse.ts";
import { GuardRejection } from "../../../src/llm/guards/guarded-text.ts";
import { createStreamGuard, streamTexts } from "../../../src/llm/guards/stream-guard.ts";
import { compileTextGuard } from "../../../src/llm/guards/text-guard.ts";
import type { Random } from "../../support/random.ts";
import { type Case, defineTarget, expect, refusalOf } from "../target.ts";

type Json = Readonly<Record<string, unknown>>;
/** A piece of a channel's text, or an event without text. */
type Step = { readonly channel: number; readonly text: string } | { readonly noise: number };
type Input = { readonly dialect: string; readonly action: string; readonly steps: readonly Step[] };

interface Dialect {
  readonly channels: number;
  piece(channel: number, text: string): Json;
  /** Events without text that stand between others. */
  readonly noise: readonly (Json | string)[];
  /** At the end of a channel. `text` is all of it. */
  ended(channel: number, text: string): readonly Json[];
  /** After all channels. */
  readonly over: readonly (Json | string)[];
  /** What a client adds to which channel. */
  read(event: Json, add: (channel: number, text: string) => void): void;
}

const PATTERNS = [/secret-\d+/gi, /\b\d{3}-\d{2}-\d{4}\b/g];
const RULES = [{ pattern: "(?i)secret-\\d+" }, { pattern: "\\b\\d{3}-\\d{2}-\\d{4}\\b" }];
const REJECTION = { status: 403, message: "no" };
const GUARDS = {
  mask: [compileTextGuard("mask", RULES, REJECTION)],
  reject: [compileTextGuard("reject", RULES, REJECTION)],
};

const CHAT_MEMBERS = ["content", "reasoning_content", "reasoning", "refusal", "words"];
const CHAT_TOOLS = 2;
const CHAT_TEXTS = CHAT_MEMBERS.length + CHAT_TOOLS;
const CHAT_CHOICES = 2;

/** As SDKs read it: lists by `index`, strings appended. */
const chat: Dialect = {
  channels: CHAT_CHOICES * CHAT_TEXTS,
  piece(channel, text) {
    const kind = channel % CHAT_TEXTS;
    const member = CHAT_MEMBERS[kind];
    const index = kind - CHAT_MEMBERS.length;
    const delta = member ? { [member]: text } : { tool_calls: [{ index, function: { arguments: text } }] };
    return chunk(Math.floor(channel / CHAT_TEXTS), delta);
  },
  noise: [
    { id: "c", choices: [], usage: { prompt_tokens: 1 } },
    chunk(0, {}),
    chunk(1, { content: "" }),
    chunk(0, { role: "assistant", content: null }),
    chunk(0, { reasoning: "", tool_calls: [] }),
    { id: "c", object: "chat.completion.chunk", choices: [] },
  ],
  ended: () => [],
  over: [chunk(0, {}, "stop"), chunk(1, {}, "stop"), "[DONE]"],
  read(event, add) {
    for (const { index, delta } of event.choices as { index: number; delta: Record<string, unknown> }[]) {
      const first = index * CHAT_TEXTS;
      for (const [i, member] of CHAT_MEMBERS.entries())
        if (typeof delta[member] === "string") add(first + i, delta[member]);
      for (const call of (delta.tool_calls ?? []) as { index: number; function: { arguments: string } }[])
        add(first + CHAT_MEMBERS.length + call.index, call.function.arguments);
    }
  },
};

const completions: Dialect = {
  channels: 3,
  piece: (index, text) => ({ id: "c", choices: [{ index, text, finish_reason: null, logprobs: null }] }),
  noise: [
    { id: "c", choices: [] },
    { id: "c", choices: [{ index: 1, text: "" }] },
  ],
  ended: (index) => [{ id: "c", choices: [{ index, text: "", finish_reason: "stop" }] }],
  over: ["[DONE]"],
  read(event, add) {
    for (const { index, text } of event.choices as { index: number; text: string }[]) add(index, text);
  },
};

const BLOCKS = ["text", "thinking", "partial_json"];
const messages: Dialect = {
  channels: 6,
  piece(index, text) {
    const member = BLOCKS[index % BLOCKS.length] ?? "";
    return { type: "content_block_delta", index, delta: { type: `${member}_delta`, [member]: text } };
  },
  noise: [
    { type: "ping" },
    { type: "content_block_delta", index: 0, delta: { type: "signature_delta", signature: "c2ln" } },
    { type: "content_block_delta", index: 0, delta: { type: "text_delta", text: "" } },
  ],
  ended: (index) => [{ type: "content_block_stop", index }],
  over: [{ type: "message_delta", delta: { stop_reason: "end_turn", stop_sequence: "END" } }, { type: "message_stop" }],
  read({ type, index, delta }, add) {
    if (type !== "content_block_delta") return;
    for (const [name, text] of Object.entries(delta as Record<string, string>))
      if (BLOCKS.includes(name)) add(index as number, text);
  },
};

const OUTPUTS = [
  "output_text",
  "reasoning_summary_text",
  "function_call_arguments",
  "refusal",
  "audio.transcript",
  "custom_tool_call_input",
];
const responses: Dialect = {
  channels: OUTPUTS.length * 2,
  piece: (channel, delta) => ({ ...outputOf(channel, "delta"), delta, logprobs: [] }),
  noise: [
    { type: "response.in_progress", response: { id: "r", output: [] } },
    { type: "response.output_text.delta", item_id: "x", output_index: 0, content_index: 0, delta: "" },
    { type: "keepalive", sequence_number: 3 },
  ],
  ended: (channel, text) => [
    { ...outputOf(channel, "done"), text },
    {
      type: "response.output_item.done",
      output_index: 90 + channel,
      item: { id: "i", content: [{ type: "output_text", text }] },
    },
  ],
  over: [{ type: "response.completed", response: { id: "r", output: [], usage: { input_tokens: 1 } } }],
  read({ type, output_index: output, delta }, add) {
    const kind = OUTPUTS.findIndex((one) => type === `response.${one}.delta`);
    if (kind >= 0) add((output as number) * OUTPUTS.length + kind, String(delta));
  },
};

const gemini: Dialect = {
  channels: 4,
  piece: (channel, text) => candidate(channel >> 1, [{ text, ...(channel % 2 === 0 ? {} : { thought: true }) }]),
  noise: [
    { usageMetadata: { promptTokenCount: 1 } },
    candidate(0, []),
    candidate(1, [{ text: "" }]),
    candidate(0, [{ functionCall: { name: "f", args: { a: 1 } } }]),
  ],
  ended: () => [],
  over: [
    { candidates: [{ index: 0, content: { parts: [{ text: "" }] }, finishReason: "STOP" }] },
    { candidates: [{ index: 1, content: { parts: [] }, finishReason: "STOP" }] },
  ],
  read(event, add) {
    type Part = { text?: string; thought?: boolean };
    for (const one of (event.candidates ?? []) as { index: number; content: { parts: Part[] } }[])
      for (const { text, thought } of one.content.parts)
        if (text !== undefined) add(one.index * 2 + (thought === true ? 1 : 0), text);
  },
};

const DIALECTS: Readonly<Record<string, Dialect>> = { chat, completions, messages, responses, gemini };

const PIECES = [
  ...[
    "s",
    "sec",
    "ret",
    "secret",
    "-",
    "1",
    "23",
    "SECRET-9",
    "secret-1",
    " ",
    "x",
    "word ",
    "\n",
    "😀",
    "\ud83d",
    "\ude00",
  ],
  ...["123", "-45-", "6789", "123-45-6789", "<masked>", "y".repeat(60), "z ".repeat(70), "4".repeat(50)],
];

export const guardStream = defineTarget<Input>({
  name: "guard-stream",
  seeds: Object.keys(DIALECTS).flatMap((dialect) =>
    ["mask", "reject"].map((action) => ({
      dialect,
      action,
      steps: [
        { channel: 0, text: "a secret" },
        { channel: 1, text: "secret-" },
        { noise: 0 },
        { channel: 0, text: "-12" },
        { channel: 1, text: "3 b" },
      ],
    })),
  ),
  smokeCases: 1_500,
  generate(random: Random) {
    const dialect = random.pick(Object.keys(DIALECTS));
    const used = 1 + random.int(3);
    const channels = Array.from({ length: used }, () => random.int(DIALECTS[dialect]?.channels ?? 1));
    const makeStep = (): Step =>
      random.oneIn(3) ? { noise: random.int(8) } : { channel: random.pick(channels), text: random.text(PIECES, 3) };
    return { dialect, action: random.pick(["mask", "mask", "reject"]), steps: random.list(16, makeStep) };
  },
  run(input) {
    const dialect = Object.hasOwn(DIALECTS, input.dialect) ? DIALECTS[input.dialect] : undefined;
    if (dialect === undefined || !Array.isArray(input.steps) || !input.steps.every((one) => isStep(one, dialect)))
      return "no stream";
    const action = input.action === "reject" ? "reject" : "mask";
    const texts = new Map<number, string>();
    const events: (Json | string)[] = [];
    for (const step of input.steps) {
      if ("noise" in step) events.push(dialect.noise[step.noise % dialect.noise.length] ?? "");
      else {
        texts.set(step.channel, (texts.get(step.channel) ?? "") + step.text);
        events.push(dialect.piece(step.channel, step.text));
      }
    }
    for (const [channel, text] of texts) events.push(...dialect.ended(channel, text));
    events.push(...dialect.over);
    const { shown, rejection } = guarded(events, action);
    const read = readChannels(dialect, shown);
    const hasMatch = [...texts.values()].some((text) => masked(text) !== text);
    if (action === "reject") {
      expect((rejection !== undefined) === hasMatch, `rejected: ${rejection !== undefined}, has a match: ${hasMatch}`);
      for (const [channel, text] of texts) {
        const got = read.get(channel) ?? "";
        const isShown = matchesOf(text).some(({ end }) => end <= got.length);
        expect(
          text.startsWith(got) && !isShown,
          `channel ${channel} shows ${got.slice(-200)} of ${text.slice(0, 200)}`,
        );
      }
      if (hasMatch) return `${input.dialect} rejected`;
    }
    for (const [channel, text] of texts) {
      const got = read.get(channel) ?? "";
      expect(got === masked(text), `channel ${channel}: ${got.slice(-200)} instead of ${masked(text).slice(-200)}`);
    }
    expectOrder(events, shown);
    // A guard that judges the whole stream sees the same texts.
    const whole = finish(streamTexts(events.map(eventOf))).texts;
    for (const text of texts.values()) expect(whole.includes(text), `a webhook does not see: ${text.slice(0, 200)}`);
    return `${input.dialect} ${action} ${hasMatch} ${texts.size}`;
  },
});

function isStep(step: Step, dialect: Dialect): boolean {
  const isNumber = (value: Case | undefined, below: number): boolean =>
    typeof value === "number" && Number.isInteger(value) && value >= 0 && value < below;
  if (typeof step !== "object" || step === null) return false;
  if ("noise" in step) return isNumber(step.noise, 1_000);
  return isNumber(step.channel, dialect.channels) && typeof step.text === "string" && step.text.length <= 400;
}

function guarded(
  events: readonly (Json | string)[],
  action: "mask" | "reject",
): { readonly shown: readonly SseEvent[]; readonly rejection: Error | undefined } {
  const guard = createStreamGuard(GUARDS[action]);
  const shown: SseEvent[] = [];
  const rejection = refusalOf(() => {
    for (const event of events) shown.push(...finish(guard.event(eventOf(event))));
    shown.push(...finish(guard.end()));
  }, GuardRejection);
  return { shown, rejection };
}

function readChannels(dialect: Dialect, shown: readonly SseEvent[]): Map<number, string> {
  const read = new Map<number, string>();
  for (const { data } of shown)
    if (data !== "[DONE]")
      dialect.read(JSON.parse(data) as Json, (channel, text) => read.set(channel, (read.get(channel) ?? "") + text));
  return read;
}

/** No event is lost or changes its place, and text of a channel comes before the event that ends it. */
function expectOrder(events: readonly (Json | string)[], shown: readonly SseEvent[]): void {
  const isEnd = (text: string): boolean => /content_block_stop|\.done"|"finish_?[rR]eason":"|completed|DONE/.test(text);
  const ends = (list: readonly string[]): string[] => list.filter(isEnd).map((text) => masked(text));
  const before = ends(events.map((event) => eventOf(event).data));
  const after = ends(shown.map(({ data }) => data));
  expect(before.length === after.length, `${after.length} events that end something instead of ${before.length}`);
  expect(shown.length >= events.length, "an event is lost");
  const last = shown.at(-1)?.data ?? "";
  expect(last === eventOf(events.at(-1) ?? "").data, `the stream ends with ${last.slice(0, 100)}`);
}

function matchesOf(text: string): { readonly start: number; readonly end: number }[] {
  return PATTERNS.flatMap((pattern) =>
    [...text.matchAll(pattern)].map((match) => ({ start: match.index, end: match.index + match[0].length })),
  ).sort((a, b) => a.start - b.start);
}

/** All matches of both patterns, where they overlap as one. */
function masked(text: string): string {
  let result = "";
  let at = 0;
  for (const { start, end } of matchesOf(text)) {
    if (result === "" || start >= at) result += `${text.slice(at, start)}<masked>`;
    at = Math.max(at, end);
  }
  return result + text.slice(at);
}

function eventOf(event: Json | string): SseEvent {
  const data = typeof event === "string" ? event : JSON.stringify(event);
  return { event: "message", data, id: undefined, retry: undefined };
}

function chunk(index: number, delta: Json, finishReason: string | null = null): Json {
  return {
    id: "c",
    object: "chat.completion.chunk",
    model: "m",
    choices: [{ index, delta, finish_reason: finishReason }],
  };
}

function outputOf(channel: number, moment: string): Json {
  const type = `response.${OUTPUTS[channel % OUTPUTS.length]}.${moment}`;
  const at = Math.floor(channel / OUTPUTS.length);
  return { type, item_id: `i${at}`, output_index: at, content_index: 0 };
}

function candidate(index: number, parts: readonly Json[]): Json {
  return { candidates: [{ index, content: { role: "model", parts } }], modelVersion: "m" };
}
