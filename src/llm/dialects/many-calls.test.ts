/**
 * Hostile providers and clients: the work for a message grows with its size only, and the number of open tool calls is
 * limited, for all pairs of dialects that translate.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { completeCalls, overlappingCalls } from "../../../test/support/llm/many-calls.ts";
import { context, request, response, stream } from "../../../test/support/llm/translate.ts";
import { countSteps } from "../../../test/support/step-count.ts";
import type { Members } from "../../json/json.ts";
import type { Format } from "../request/dialect.ts";
import { translationBetween } from "./translate.ts";

test("the work for tool calls grows in proportion to their number", async () => {
  const names = [...overlappingCalls.keys(), ...completeCalls.keys()];
  const sizes = [50, 100, 200];
  const steps = await countSteps(
    new URL("../../../test/support/llm/many-calls.js", import.meta.url).href,
    names.flatMap((name) => sizes.map((n) => [name, n] as const)),
  );
  const growth = names.map((name, i) => {
    const [first = 0, second = 0, third = 0] = steps.slice(i * sizes.length, (i + 1) * sizes.length);
    assert.ok(first > 50, `${name}: ${first} steps`);
    return { name, worst: Math.max(second / first, third / second) };
  });
  assert.deepEqual(
    growth.filter(({ worst }) => worst > 2.3),
    [],
  );
});

for (const [name, translate] of overlappingCalls)
  test(`more than 1,000 open tool calls end the stream: ${name}`, () => {
    assert.doesNotThrow(() => translate(1_000));
    assert.throws(() => translate(1_001), {
      name: "UpstreamResponseError",
      status: 502,
      message: "the provider's stream has more than 1000 open tool calls",
    });
  });

for (const client of ["chat", "messages", "responses", "generateContent"] as const)
  for (const [provider, body] of [
    ["chat", (n: number) => ({ choices: Array.from({ length: n }, () => ({ message: { content: "a" } })) })],
    [
      "generateContent",
      (n: number) => ({
        candidates: Array.from({ length: n }, (_, index) => ({ index, content: { parts: [{ text: "a" }] } })),
      }),
    ],
  ] as const) {
    const translation = translationBetween(client, provider);
    if (translation === undefined) continue;
    test(`more than 1,024 choices of a complete response are an error: ${provider} to ${client}`, () => {
      assert.doesNotThrow(() => translation.response(body(1_024), context()));
      assert.throws(() => translation.response(body(1_025), context()), { name: "UpstreamResponseError", status: 502 });
    });
  }

test("complete tool calls have no limit", () => {
  for (const translate of completeCalls.values()) translate(1_001);
});

const CLIENTS: readonly Format[] = ["chat", "messages", "responses", "generateContent"];
for (const client of CLIENTS)
  test(`an index of a choice beyond the limit ends the stream: ${client}`, () => {
    for (const index of [1_024, 4_294_967_294, -1, 0.5])
      for (const event of [
        { choices: [{ index, delta: { content: "x" }, finish_reason: "stop" }] },
        { candidates: [{ index, content: { parts: [{ text: "x" }] }, finishReason: "STOP" }] },
      ])
        assert.throws(() => stream(client, "choices" in event ? "chat" : "generateContent", [event]), {
          name: "UpstreamResponseError",
          message: "the provider's response has a choice with an index outside of 0 to 1023",
        });
  });

test("the writers report how many characters they keep", () => {
  const call = (part: Members): Members => ({ choices: [{ index: 0, delta: { tool_calls: [part] } }] });
  const held = (client: Format): number[] => {
    const translation = translationBetween(client, "chat")?.stream(context());
    assert.ok(translation);
    return [
      call({ index: 0, id: "a", function: { name: "f", arguments: "{" } }),
      call({ index: 1, id: "b", function: { name: "f", arguments: '{"b":' } }),
      call({ index: 0, function: { arguments: "}" } }),
      call({ index: 1, function: { arguments: "2}" } }),
    ].map((event) => {
      translation.event("", event);
      return translation.heldChars();
    });
  };
  assert.deepEqual(held("chat"), [0, 0, 0, 0]);
  assert.deepEqual(held("messages"), [0, 5, 0, 0]);
  assert.deepEqual(held("generateContent"), [1, 6, 5, 7]);
  assert.deepEqual(held("responses"), [1, 6, 7, 9]);
});

/** The arguments of as many tool calls as texts, in a request of each dialect that writes them as text. */
const withArguments: Readonly<Partial<Record<Format, (texts: readonly string[]) => Members>>> = {
  chat: (texts) => ({
    messages: [
      {
        role: "assistant",
        tool_calls: texts.map((text, i) => ({
          id: `c${i}`,
          type: "function",
          function: { name: "f", arguments: text },
        })),
      },
    ],
  }),
  responses: (texts) => ({
    input: texts.map((text, i) => ({ type: "function_call", call_id: `c${i}`, name: "f", arguments: text })),
  }),
};
const deep = (levels: number): string => `{"a":${"[".repeat(levels - 1)}${"]".repeat(levels - 1)}}`;
/** One value for the object, two for the name, one for the list, and one for each comma. */
const wide = (items: number): string => `{"a":[${"0,".repeat(items - 4)}0]}`;
const ITEMS = 60_000;

for (const [client, body] of Object.entries(withArguments) as [Format, (texts: readonly string[]) => Members][])
  for (const provider of ["messages", "generateContent", "converse"] as const) {
    const translated = (texts: readonly string[]): Members => request(client, provider, body(texts));

    test(`the depth and the items of tool arguments are limited: ${client} to ${provider}`, () => {
      for (const texts of [[deep(128)], [wide(ITEMS)], [wide(ITEMS / 2), wide(ITEMS / 2)], ["{}", deep(128)]])
        assert.doesNotThrow(() => translated(texts));
      for (const [texts, message] of [
        [[deep(129)], "is nested deeper than 128 levels"],
        [[deep(1_000_000)], /is nested deeper than 128 levels|has more than 60000 values and names/],
        [[wide(ITEMS + 1)], "has more than 60000 values and names"],
        [[wide(ITEMS / 2), wide(ITEMS / 2), "{}"], "has more than 60000 values and names"],
        [Array.from({ length: 601 }, () => wide(100)), "has more than 60000 values and names"],
      ] as const)
        assert.throws(() => translated(texts), { name: "TranslationError", message });
    });

    test(`the limit counts each request alone: ${client} to ${provider}`, () => {
      const using = context();
      for (let i = 0; i < 3; i++) assert.doesNotThrow(() => request(client, provider, body([wide(ITEMS)]), using));
    });
  }

for (const client of ["messages", "generateContent"] as const) {
  const answer = (texts: readonly string[]): Members =>
    response(client, "chat", {
      choices: [
        {
          index: 0,
          message: { tool_calls: texts.map((text, i) => ({ id: `c${i}`, function: { name: "f", arguments: text } })) },
        },
      ],
    });
  test(`the depth and the items of a response's tool calls are limited: ${client}`, () => {
    for (const texts of [[deep(128)], [wide(ITEMS / 2), wide(ITEMS / 2)], ["not JSON"]])
      assert.doesNotThrow(() => answer(texts));
    for (const [texts, message] of [
      [[deep(129)], "the input of a tool call is nested deeper than 128 levels"],
      [[wide(ITEMS + 1)], "the input of a tool call has more than 60000 values and names"],
      [[wide(ITEMS), "{}"], "the input of a tool call has more than 60000 values and names"],
    ] as const)
      assert.throws(() => answer(texts), { name: "UpstreamResponseError", status: 502, message });
  });
}

test("a tool result beyond the limits stays text for Gemini", () => {
  const shown = (text: string): unknown => {
    const body = request("chat", "generateContent", {
      messages: [
        {
          role: "assistant",
          tool_calls: [{ id: "c", type: "function", function: { name: "f", arguments: "{}" } }],
        },
        { role: "tool", tool_call_id: "c", content: text },
      ],
    }) as { contents: { parts: { functionResponse?: { response: unknown } }[] }[] };
    return body.contents[1]?.parts[0]?.functionResponse?.response;
  };
  assert.deepEqual(shown(deep(128)), JSON.parse(deep(128)));
  for (const text of [deep(129), wide(ITEMS), "{", "plain"]) assert.deepEqual(shown(text), { result: text });
});
