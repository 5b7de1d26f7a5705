import assert from "node:assert/strict";
import { test } from "node:test";
import { createUsageHider } from "./hide-usage.ts";
import { usageEventAt } from "./stream-events.ts";

const word = (content: string) => `data: ${JSON.stringify({ choices: [{ delta: { content } }], usage: null })}\n\n`;
const usage = `data: ${JSON.stringify({ choices: [], usage: { total_tokens: 3 } })}\n\n`;
const done = "data: [DONE]\n\n";
const event = (choice: object, more: object = {}) => `data: ${JSON.stringify({ choices: [choice], ...more })}\n\n`;
const end = event({ delta: {}, finish_reason: "stop" });
const textAndUsage = event({ delta: { content: "b" }, finish_reason: null }, { usage: { total_tokens: 1 } });
const emptyAndUsage = event(
  { delta: { role: "assistant", content: "" }, finish_reason: null },
  { usage: { total_tokens: 1 } },
);

const pass = (hider: ReturnType<typeof createUsageHider>, chunk: Buffer) => hider.pass(chunk, usageEventAt(chunk));

function hide(text: string, cut: number): string {
  const hider = createUsageHider();
  const bytes = Buffer.from(text);
  const out: Buffer[] = [];
  for (let i = 0; i < bytes.length; i += cut) out.push(pass(hider, bytes.subarray(i, i + cut)) ?? Buffer.alloc(0));
  out.push(hider.flush() ?? Buffer.alloc(0));
  return Buffer.concat(out).toString();
}

const cases: [name: string, sent: string, received: string][] = [
  ["only the usage chunk is taken out", word("a") + word("b") + usage + done, word("a") + word("b") + done],
  [
    "usage in a chunk with an end passes, because the server sends it anyway",
    `${word("a")}data: {"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"total_tokens":1},"n":1.0}\n\n${done}`,
    `${word("a")}data: {"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"total_tokens":1},"n":1.0}\n\n${done}`,
  ],
  ["usage in a chunk with text passes", word("a") + textAndUsage + done, word("a") + textAndUsage + done],
  ["usage in the first chunk passes", emptyAndUsage + word("a") + done, emptyAndUsage + word("a") + done],
  [
    "a later chunk with an empty choice and usage is taken out",
    word("a") + end + emptyAndUsage + done,
    word("a") + end + done,
  ],
  [
    "a last chunk with an empty choice and without a blank line is taken out",
    `${word("a")}${end}${emptyAndUsage.trimEnd()}`,
    `${word("a")}${end}`,
  ],
  [
    "text that looks like usage stays",
    word('"usage":{"total_tokens":1},"choices":[]') + done,
    word('"usage":{"total_tokens":1},"choices":[]') + done,
  ],
  [
    "comments and CRLF pass",
    `: ping\r\n\r\n${word("ü 人").replaceAll("\n", "\r\n")}${usage.replaceAll("\n", "\r\n")}${done}`,
    `: ping\r\n\r\n${word("ü 人").replaceAll("\n", "\r\n")}${done}`,
  ],
  ["an event beyond all bounds passes", word("x".repeat(100_000)) + usage + done, word("x".repeat(100_000)) + done],
  ["an unfinished end passes", `${word("a")}data: {"cho`, `${word("a")}data: {"cho`],
];
for (const [name, sent, received] of cases) {
  test(name, () => {
    for (const cut of [1, 7, 64, 1_000_000]) assert.equal(hide(sent, cut), received, `cut by ${cut}`);
  });
}

test("a chunk of complete events is forwarded immediately and unchanged", () => {
  const bytes = Buffer.from(word("a") + word("b"));
  const passed = pass(createUsageHider(), bytes);
  assert.equal(passed?.equals(bytes), true);
  assert.equal(passed?.buffer, bytes.buffer);
});

test("events that end with a single CR are not delayed, and their usage is hidden [M4]", () => {
  const cr = (text: string): string => text.replaceAll("\n", "\r");
  const hider = createUsageHider();
  assert.equal(pass(hider, Buffer.from(cr(word("a"))))?.toString(), cr(word("a")));
  assert.equal(pass(hider, Buffer.from(cr(usage))), undefined);
  assert.equal(pass(hider, Buffer.from(cr(done)))?.toString(), cr(done));
});

test("in a chunk with many events only the one with usage is parsed", () => {
  const words = Array.from({ length: 40 }, (_, i) => word(`${i}`)).join("");
  for (const text of [words + usage + done, usage + words + done, words + usage + words + usage + done])
    assert.equal(pass(createUsageHider(), Buffer.from(text))?.toString(), text.replaceAll(usage, ""));
  assert.equal(usageEventAt(Buffer.from(words + usage + done)), Buffer.byteLength(words));
});
