import assert from "node:assert/strict";
import { test } from "node:test";
import { assertCpuBelow } from "../../../test/support/cpu-time.ts";
import { GUARDED_PARTS } from "../../../test/support/llm/guarded-parts.ts";
import { countSteps } from "../../../test/support/step-count.ts";
import { finish } from "../../base/sliced-work.ts";
import type { SseEvent } from "../../http/sse.ts";
import type { Members } from "../../json/json.ts";
import type { TextGuard } from "../request/llm-call.ts";
import { GuardRejection, guardParts } from "./guarded-text.ts";
import { applyRules, mergeRules } from "./prompt-rules.ts";
import { createStreamGuard } from "./stream-guard.ts";
import { type BuiltinPattern, compileTextGuard } from "./text-guard.ts";

const apply = (...given: Parameters<typeof applyRules>): Members => finish(applyRules(...given));
const REJECTION = { status: 403, message: "no" };
const mask = (...rules: { builtin?: BuiltinPattern; pattern?: string }[]): TextGuard =>
  compileTextGuard("mask", rules, REJECTION);
const reject = (...rules: { builtin?: BuiltinPattern; pattern?: string }[]): TextGuard =>
  compileTextGuard("reject", rules, REJECTION);

const masked = (guard: TextGuard, text: string): string => finish(guardParts([text], [guard]))[0] ?? "";
function isRejected(guard: TextGuard, text: string): boolean {
  try {
    masked(guard, text);
    return false;
  } catch (error) {
    assert.ok(error instanceof GuardRejection);
    return true;
  }
}

const builtins: [BuiltinPattern, text: string, masked: string][] = [
  ["email", "write to a.b+c@example.co.uk, please", "write to <EMAIL_ADDRESS>, please"],
  ["email", "no address @ all", "no address @ all"],
  ["ssn", "my number is 123-45-6789.", "my number is <SSN>."],
  ["ssn", "part 1123-45-67890", "part 1123-45-67890"],
  ["creditCard", "card 4111 1111 1111 1111 ok", "card <CREDIT_CARD> ok"],
  ["creditCard", "amex 3714-496353-98431", "amex <CREDIT_CARD>"],
  ["creditCard", "order 41111111111111112", "order 41111111111111112"],
  ["phoneNumber", "call +1 415-555-2671 now", "call <PHONE_NUMBER> now"],
  ["phoneNumber", "in 2024 and 2025", "in 2024 and 2025"],
  ["caSin", "sin 046 454 286", "sin <CA_SIN>"],
];
for (const [builtin, text, expected] of builtins) {
  test(`${builtin}: ${text}`, () => {
    assert.equal(masked(mask({ builtin }), text), expected);
    assert.equal(isRejected(reject({ builtin }), text), text !== expected);
  });
}

test("a custom pattern is masked wherever it occurs", () => {
  assert.equal(masked(mask({ pattern: "(?i)project-[a-z]+" }), "Project-X and project-zeta"), "<masked> and <masked>");
});

test("look-around and broken patterns fail at load", () => {
  for (const pattern of ["(?=x)", "(a", "\\1"]) assert.throws(() => mask({ pattern }));
});

test("hostile texts and patterns stay linear", () => {
  assertCpuBelow(1_500, () => {
    isRejected(reject({ pattern: "(a+)+$" }), `${"a".repeat(30_000)}!`);
    masked(mask({ builtin: "email" }), `${"a".repeat(100_000)}@`);
  });
});

test("the work for matches, masks, and borders of parts grows in proportion to their number", async () => {
  const sizes = [400, 800, 1_600];
  const steps = await countSteps(
    new URL("../../../test/support/llm/guarded-parts.js", import.meta.url).href,
    GUARDED_PARTS.flatMap((name) => sizes.map((n) => [name, n] as const)),
  );
  const growth = GUARDED_PARTS.map((name, i) => {
    const [first = 0, second = 0, third = 0] = steps.slice(i * sizes.length, (i + 1) * sizes.length);
    return { name, worst: Math.max(second / first, third / second) };
  });
  assert.deepEqual(
    growth.filter(({ worst }) => !(worst <= 2.3)),
    [],
  );
});

test("a text that cannot be searched within its budget counts as a match", () => {
  let seed = 1;
  const noise = Array.from({ length: 16_000 }, () => {
    seed = (Math.imul(seed, 1_103_515_245) + 12_345) >>> 0;
    return (seed & 0x10000) === 0 ? "a" : "b";
  });
  assert.equal(isRejected(reject({ pattern: "(?:a|b)*a(?:a|b){400}c" }), noise.join("")), true);
});

test("long texts are searched in pieces, split between words", () => {
  const text = `${"word ".repeat(5000)}me@example.com ${"word ".repeat(5000)}`;
  const shown = masked(mask({ builtin: "email" }), text);
  assert.ok(shown.includes("<EMAIL_ADDRESS>") && !shown.includes("example.com"));
  assert.equal(shown.length, text.length - "me@example.com".length + "<EMAIL_ADDRESS>".length);
});

test("request guards read every string except identifiers and image URLs", () => {
  const guards = [mask({ builtin: "email" })];
  const body = {
    model: "a@b.com",
    messages: [
      {
        role: "user",
        name: "a@b.com",
        content: [
          { type: "text", text: "I am a@b.com" },
          { type: "image_url", image_url: { url: "https://a@b.com/x" } },
        ],
      },
      { role: "tool", tool_call_id: "a@b.com", content: "found a@b.com" },
    ],
    tools: [{ function: { description: "mail a@b.com", parameters: { properties: { "a@b.com": {} } } } }],
  };
  const text = JSON.stringify(apply(body, "chat", { requestGuards: guards }));
  assert.equal(text.split("<EMAIL_ADDRESS>").length, 6);
  assert.equal(text.split("a@b.com").length, 4);
});

test("a guard that rejects gives the reason", () => {
  const rules = { requestGuards: [reject({ pattern: "secret" })] };
  assert.throws(() => apply({ messages: [{ role: "user", content: "a secret" }] }, "chat", rules), GuardRejection);
  assert.ok(apply({ messages: [{ role: "user", content: "nothing" }] }, "chat", rules));
});

test("defaults fill gaps, overrides win, an inner scope replaces field by field", () => {
  const rules = mergeRules([
    { defaults: { temperature: 1, top_p: 0.5 }, overrides: { user: "outer" } },
    { overrides: { user: "inner" } },
  ]);
  assert.deepEqual(apply({ model: "m", temperature: 0.2, top_p: null, user: "me" }, "chat", rules), {
    model: "m",
    temperature: 0.2,
    top_p: 0.5,
    user: "inner",
  });
});

const prompts: [
  format: "chat" | "responses" | "messages" | "generateContent" | "converse",
  body: object,
  expected: object,
][] = [
  [
    "chat",
    { messages: [{ role: "user", content: "Q" }] },
    {
      messages: [
        { role: "system", content: "S" },
        { role: "user", content: "Q" },
        { role: "user", content: "U" },
      ],
    },
  ],
  [
    "responses",
    { input: "Q" },
    {
      input: [
        { role: "system", content: "S" },
        { role: "user", content: "Q" },
        { role: "user", content: "U" },
      ],
    },
  ],
  [
    "messages",
    { system: "T", messages: [{ role: "user", content: "Q" }] },
    {
      system: [
        { type: "text", text: "S" },
        { type: "text", text: "T" },
      ],
      messages: [
        { role: "user", content: "Q" },
        { role: "user", content: "U" },
      ],
    },
  ],
  [
    "generateContent",
    { contents: [{ role: "user", parts: [{ text: "Q" }] }] },
    {
      systemInstruction: { parts: [{ text: "S" }] },
      contents: [
        { role: "user", parts: [{ text: "Q" }] },
        { role: "user", parts: [{ text: "U" }] },
      ],
    },
  ],
  ["converse", { messages: [] }, { system: [{ text: "S" }], messages: [{ role: "user", content: [{ text: "U" }] }] }],
];
for (const [format, body, expected] of prompts) {
  test(`messages are put around a ${format} prompt where they belong`, () => {
    const rules = { prepend: [{ role: "system", content: "S" }], append: [{ role: "user", content: "U" }] };
    assert.deepEqual(apply(body as Record<string, unknown>, format, rules), expected);
  });
}

function guardStream(events: readonly object[], guards: readonly TextGuard[]): string {
  const guard = createStreamGuard(guards);
  const all: SseEvent[] = [];
  for (const event of events)
    all.push(
      ...finish(guard.event({ event: "message", data: JSON.stringify(event), id: undefined, retry: undefined })),
    );
  all.push(...finish(guard.end()));
  return all.map(({ data }) => data).join("\n");
}
const chunk = (content: string) => ({ choices: [{ index: 0, delta: { content }, finish_reason: null }] });
const textOf = (out: string): string =>
  out
    .split("\n")
    .map((line) => (JSON.parse(line) as ReturnType<typeof chunk>).choices[0]?.delta.content ?? "")
    .join("");

test("a match that is spread over events is masked, and no text is lost", () => {
  const events = ["Mail ", "me@", "exam", "ple.com", " or call. ", "x".repeat(300), " bye"].map(chunk);
  const finish = { choices: [{ index: 0, delta: {}, finish_reason: "stop" }] };
  assert.equal(
    textOf(guardStream([...events, finish], [mask({ builtin: "email" })])),
    `Mail <EMAIL_ADDRESS> or call. ${"x".repeat(300)} bye`,
  );
});

test("a stream that a guard rejects stops at the match", () => {
  assert.throws(
    () => guardStream([chunk("all "), chunk("sec"), chunk("rets")], [reject({ pattern: "secret" })]),
    GuardRejection,
  );
});

test("texts of other dialects are guarded too, including complete repetitions", () => {
  const guards = [mask({ builtin: "email" })];
  const anthropic = [
    { type: "content_block_delta", index: 0, delta: { type: "text_delta", text: "a@" } },
    { type: "content_block_delta", index: 0, delta: { type: "text_delta", text: "b.com" } },
    { type: "content_block_stop", index: 0 },
  ];
  const responses = [
    { type: "response.output_text.delta", item_id: "1", content_index: 0, delta: "a@b.com" },
    { type: "response.output_text.done", text: "a@b.com" },
    { type: "response.completed", response: { output: [{ content: [{ text: "a@b.com" }] }] } },
  ];
  const gemini = [
    { candidates: [{ content: { parts: [{ text: "a@" }] } }] },
    { candidates: [{ content: { parts: [{ text: "b.com" }] }, finishReason: "STOP" }] },
  ];
  for (const events of [anthropic, responses, gemini]) assert.ok(!guardStream(events, guards).includes("b.com"));
});
