import assert from "node:assert/strict";
import { test } from "node:test";
import { assertCpuBelow } from "../../../test/support/cpu-time.ts";
import { estimateJsonTextTokens, estimateRequestTokens, estimateTextTokens } from "./estimate-tokens.ts";

/** Counts of the o200k vocabulary, measured once with a tokenizer. */
const samples = [
  {
    name: "English",
    tokens: 79,
    text: "The quick brown fox jumps over the lazy dog. It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of foolishness. Please summarise the following meeting notes in three bullet points, and mention who is responsible for each action item. We agreed that the migration will start on Monday and that nobody should deploy during the weekend.",
  },
  {
    name: "Python",
    tokens: 109,
    text: 'import os\nimport sys\n\ndef fibonacci(n: int) -> int:\n    """Return the n-th Fibonacci number."""\n    a, b = 0, 1\n    for _ in range(n):\n        a, b = b, a + b\n    return a\n\nclass Stack:\n    def __init__(self):\n        self._items = []\n\n    def push(self, item):\n        self._items.append(item)\n\nif __name__ == "__main__":\n    print([fibonacci(i) for i in range(10)])\n',
  },
  {
    name: "SQL",
    tokens: 68,
    text: "SELECT c.customer_id, c.name, SUM(o.amount) AS total FROM customers c LEFT JOIN orders o ON o.customer_id = c.customer_id WHERE o.created_at >= '2024-01-01' GROUP BY c.customer_id, c.name HAVING SUM(o.amount) > 1000 ORDER BY total DESC LIMIT 50;",
  },
  {
    name: "Chinese",
    tokens: 85,
    text: "人工智能是计算机科学的一个分支，它企图了解智能的实质，并生产出一种新的能以人类智能相似的方式做出反应的智能机器。该领域的研究包括机器人、语言识别、图像识别、自然语言处理和专家系统等。请把下面的会议记录总结成三个要点，并说明每个行动项由谁负责。",
  },
  {
    name: "Japanese",
    tokens: 88,
    text: "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。何でも薄暗いじめじめした所でニャーニャー泣いていた事だけは記憶している。次の会議の議事録を三つの要点にまとめて、それぞれの担当者を書いてください。",
  },
  {
    name: "Korean",
    tokens: 60,
    text: "인공지능은 인간의 학습능력, 추론능력, 지각능력을 인공적으로 구현하려는 컴퓨터 과학의 세부 분야 중 하나이다. 다음 회의록을 세 가지 요점으로 요약하고 각 작업의 담당자를 적어 주세요.",
  },
  {
    name: "German",
    tokens: 50,
    text: "Die künstliche Intelligenz ist ein Teilgebiet der Informatik, das sich mit der Automatisierung intelligenten Verhaltens und dem maschinellen Lernen befasst. Bitte fasse das Protokoll der Besprechung in drei Punkten zusammen.",
  },
];

for (const { name, tokens, text } of samples) {
  test(`the estimate of ${name} is within 25 % of the real count`, () => {
    const estimate = estimateTextTokens(Buffer.from(text));
    assert.ok(Math.abs(estimate / tokens - 1) <= 0.25, `${estimate} for ${tokens}`);
  });
}

const requestOf = (contents: readonly string[]) =>
  Buffer.from(JSON.stringify({ model: "m", messages: contents.map((content) => ({ role: "user", content })) }));
for (const { name, tokens, text } of samples) {
  const copies = Math.ceil((20 * 1024) / Buffer.byteLength(text));
  for (const [kind, contents] of [
    ["one long message", [text.repeat(copies)]],
    ["many short messages", new Array<string>(copies).fill(text)],
  ] as const) {
    test(`the estimate of a 20 KB request in ${name}, as ${kind}, is within 25 % of the real count`, () => {
      const real = tokens * copies + 4 * contents.length + 3;
      const estimate = estimateRequestTokens(requestOf(contents));
      assert.ok(Math.abs(estimate / real - 1) <= 0.25, `${estimate} for ${real}`);
    });
  }
}

test("backslashes are escapes in a JSON string and punctuation in text", () => {
  const text = Buffer.from(String.raw`a\n`.repeat(10));
  assert.ok(estimateTextTokens(text) > estimateJsonTextTokens(text, 0, text.length));
});

test("an escape that is truncated at the end of the bytes is not read beyond the end", () => {
  for (const text of ["abc\\", "abc\\u", "abc\\u4e", "\\ud83d"])
    assert.ok(Number.isFinite(estimateJsonTextTokens(Buffer.from(text), 0, Buffer.byteLength(text))), text);
});

test("a long text is sampled, and the sample is extrapolated", () => {
  const text = samples[0]?.text ?? "";
  const one = estimateTextTokens(Buffer.from(text));
  const many = estimateTextTokens(Buffer.from(text.repeat(2000)));
  assert.ok(Math.abs(many / (one * 2000) - 1) < 0.05, `${many} for ${one * 2000}`);
});

for (const [name, text] of [
  ["a run of one letter", "a".repeat(4_000_000)],
  ["blanks", `${" ".repeat(4_000_000)}x`],
  ["quotes that are escaped", '\\"'.repeat(2_000_000)],
  ["characters that are not there", "\udc00".repeat(1_000_000)],
] as const) {
  test(`4 MB of ${name} are fast`, () => {
    const bytes = Buffer.from(`{"messages":[{"role":"user","content":"${text}"}]}`);
    assertCpuBelow(100, () => estimateRequestTokens(bytes));
  });
}

const request = (content: unknown, extra = {}) =>
  Buffer.from(JSON.stringify({ model: "m", messages: [{ role: "user", content }], ...extra }));

test("a short question costs its words and the message overhead", () => {
  assert.equal(estimateRequestTokens(request("Hello there")), 3 + 4 + 3);
});

test("an encoded image has a flat price, whatever its size", () => {
  const image = (bytes: number) =>
    request([{ type: "image_url", image_url: { url: `data:image/png;base64,${"A".repeat(bytes)}` } }]);
  assert.equal(estimateRequestTokens(image(100)), estimateRequestTokens(image(1_000_000)));
  assert.ok(estimateRequestTokens(image(100)) > 1000);
});

test("a tool's argument named url or data is text, not an image", () => {
  const call = (input: unknown) =>
    Buffer.from(JSON.stringify({ messages: [{ role: "assistant", content: [{ type: "tool_use", input }] }] }));
  assert.ok(estimateRequestTokens(call({ url: "https://example.com/a", data: "b" })) < 50);
  const picture = { type: "image", source: { type: "base64", data: "AAAA" } };
  assert.ok(estimateRequestTokens(request([picture])) > 1000);
});

test("escaped characters weigh as much as plain ones", () => {
  const plain = request("人工智能是计算机科学的一个分支");
  const escaped = Buffer.from(
    plain.toString().replace(/[^\x20-\x7e]/g, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`),
  );
  assert.equal(estimateRequestTokens(escaped), estimateRequestTokens(plain));
});

test("tools count, the model's name and other settings do not", () => {
  const plain = estimateRequestTokens(request("Hi"));
  assert.equal(
    estimateRequestTokens(request("Hi", { user: "somebody with a long name", metadata: { a: "some words in here" } })),
    plain,
  );
  assert.ok(
    estimateRequestTokens(
      request("Hi", {
        tools: [{ type: "function", function: { name: "get_weather", description: "The weather at a place" } }],
      }),
    ) >
      plain + 5,
  );
});

test("every dialect's prompt is found", () => {
  const text = "one two three four five six seven eight nine ten";
  const bodies = [
    { input: text },
    { contents: [{ role: "user", parts: [{ text }] }] },
    { system: [{ text }], messages: [] },
    { prompt: text },
    { instructions: text, input: [] },
    { inputText: text },
    { content: { parts: [{ text }] } },
    { query: "", documents: [text] },
  ];
  for (const body of bodies)
    assert.ok(estimateRequestTokens(Buffer.from(JSON.stringify(body))) >= 12, JSON.stringify(body));
});
