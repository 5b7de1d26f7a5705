import assert from "node:assert/strict";
import { test } from "node:test";
import { compileExpression } from "../cel/expression.ts";
import { promptMessages, readsContent } from "./llm-content.ts";

const cases: [name: string, body: Record<string, unknown>, expected: [role: string, content: string][]][] = [
  [
    "Chat Completions",
    {
      messages: [
        { role: "system", content: "a" },
        {
          role: "user",
          content: [
            { type: "text", text: "b" },
            { type: "image_url", image_url: { url: "x" } },
          ],
        },
        { role: "tool", tool_call_id: "1", content: "c" },
      ],
    },
    [
      ["system", "a"],
      ["user", "b"],
      ["tool", "c"],
    ],
  ],
  [
    "Messages",
    {
      system: [{ type: "text", text: "a" }],
      messages: [{ role: "user", content: [{ type: "tool_result", content: [{ type: "text", text: "b" }] }] }],
    },
    [
      ["system", "a"],
      ["user", "b"],
    ],
  ],
  [
    "Responses",
    {
      instructions: "a",
      input: [
        { role: "user", content: [{ type: "input_text", text: "b" }] },
        { type: "function_call", name: "f", arguments: "{}" },
        { type: "function_call_output", output: "c" },
      ],
    },
    [
      ["system", "a"],
      ["user", "b"],
      ["assistant", "{}"],
      ["tool", "c"],
    ],
  ],
  ["Responses with a string", { input: "a" }, [["user", "a"]]],
  [
    "Gemini",
    {
      systemInstruction: { parts: [{ text: "a" }] },
      contents: [
        { role: "user", parts: [{ text: "b" }] },
        { role: "model", parts: [{ text: "c" }] },
      ],
    },
    [
      ["system", "a"],
      ["user", "b"],
      ["model", "c"],
    ],
  ],
  [
    "Converse",
    { system: [{ text: "a" }], messages: [{ role: "user", content: [{ text: "b" }] }] },
    [
      ["system", "a"],
      ["user", "b"],
    ],
  ],
  ["a request without messages", { model: "m" }, []],
];

for (const [name, body, expected] of cases)
  test(`the prompt of ${name}`, () => {
    assert.deepEqual(
      promptMessages(body).map(({ role, content }) => [role, content]),
      expected,
    );
  });

for (const [source, isRead] of [
  ["llm.prompt", true],
  ["llm.prompt[0].content", true],
  ['llm["prompt"].size()', true],
  ["llm", false],
  ["llm.provider", false],
  ["has(llm.promptTokens)", false],
] as const)
  test(`${source} ${isRead ? "reads" : "does not read"} the prompt`, () => {
    assert.equal(readsContent(compileExpression(source), "llm.prompt"), isRead);
  });
