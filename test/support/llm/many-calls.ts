/**
 * Streams, responses and requests with `n` tool calls, as a hostile provider or client would send them. `run` translates
 * one of them for `countSteps`.
 */
import type { Members } from "../../../src/json/json.ts";
import { translationBetween } from "../../../src/llm/dialects/translate.ts";
import type { Format } from "../../../src/llm/request/dialect.ts";
import { context, response, stream } from "./translate.ts";

const CLIENTS: readonly Format[] = ["chat", "messages", "responses", "generateContent"];
const numbers = (count: number): number[] => [...new Array(count).keys()];
const chatCall = (call: Members): Members => ({ choices: [{ index: 0, delta: { tool_calls: [call] } }] });
const chatFinish: Members = { choices: [{ index: 0, delta: {}, finish_reason: "tool_calls" }] };

/** Overlapping calls: each gets its arguments in two fragments, the second after all calls have started, or never. */
const OVERLAPPING: readonly [name: string, provider: Format, events: (n: number) => Members[]][] = [
  [
    "by index",
    "chat",
    (n) => [
      ...numbers(n).map((index) => chatCall({ index, id: `c${index}`, function: { name: "f", arguments: '{"a":' } })),
      ...numbers(n).map((index) => chatCall({ index: n - 1 - index, function: { arguments: "1}" } })),
      chatFinish,
    ],
  ],
  [
    "one for each choice",
    "chat",
    (n) => [
      ...['{"a":', "1}"].flatMap((part) =>
        numbers(n).map((index) => {
          const call = { index: 0, id: `c${index}`, function: { name: "f", arguments: part } };
          return { choices: [{ index, delta: { tool_calls: [call] } }] };
        }),
      ),
      { choices: numbers(n).map((index) => ({ index, delta: {}, finish_reason: "tool_calls" })) },
    ],
  ],
  [
    "by ID",
    "chat",
    (n) => [
      ...numbers(n).map((id) => chatCall({ id: `c${id}`, function: { name: "f", arguments: '{"a":' } })),
      ...numbers(n).map((id) => chatCall({ id: `c${n - 1 - id}`, function: { arguments: "1}" } })),
      chatFinish,
    ],
  ],
  [
    "never complete",
    "messages",
    (n) => [
      ...numbers(n).flatMap((index) => [
        { type: "content_block_start", index, content_block: { type: "tool_use", id: `c${index}`, name: "f" } },
        { type: "content_block_delta", index, delta: { type: "input_json_delta", partial_json: '{"a":' } },
      ]),
      { type: "message_delta", delta: { stop_reason: "tool_use" } },
    ],
  ],
  [
    "never complete",
    "converse",
    (n) => [
      ...numbers(n).flatMap((id) => [
        { type: "contentBlockStart", start: { toolUse: { toolUseId: `c${id}`, name: "f" } } },
        { type: "contentBlockDelta", delta: { toolUse: { input: '{"a":' } } },
      ]),
      { type: "messageStop", stopReason: "tool_use" },
    ],
  ],
];

const geminiCalls = (n: number): Members => ({
  candidates: [
    {
      content: { parts: numbers(n).map(() => ({ functionCall: { name: "f", args: { a: 1 } } })) },
      finishReason: "STOP",
    },
  ],
});

/** Responses with complete calls. Their number is not limited. */
const COMPLETE: readonly [provider: Format, body: (n: number) => Members][] = [
  [
    "chat",
    (n) => ({
      choices: [
        {
          message: {
            tool_calls: numbers(n).map((id) => ({ id: `c${id}`, function: { name: "f", arguments: '{"a":1}' } })),
          },
        },
      ],
    }),
  ],
  [
    "messages",
    (n) => ({ content: numbers(n).map((id) => ({ type: "tool_use", id: `c${id}`, name: "f", input: { a: 1 } })) }),
  ],
  [
    "converse",
    (n) => ({
      output: {
        message: {
          content: numbers(n).map((id) => ({ toolUse: { toolUseId: `c${id}`, name: "f", input: { a: 1 } } })),
        },
      },
    }),
  ],
  ["generateContent", geminiCalls],
];

/** A conversation of a Gemini client whose results come in the reverse order of the calls, or without IDs. */
function geminiResults(n: number, resultId: (call: number) => Members): void {
  const contents = [
    { role: "model", parts: numbers(n).map((call) => ({ functionCall: { id: `c${call}`, name: "f", args: {} } })) },
    {
      role: "user",
      parts: numbers(n).map((call) => ({ functionResponse: { name: "f", response: {}, ...resultId(call) } })),
    },
  ];
  translationBetween("generateContent", "messages")?.request({ contents }, context());
}

/** By name. The calls overlap in the first table only. */
export const overlappingCalls = new Map<string, (n: number) => void>();
export const completeCalls = new Map<string, (n: number) => void>([
  ["results by ID", (n) => geminiResults(n, (call) => ({ id: `c${n - 1 - call}` }))],
  ["results by name", (n) => geminiResults(n, () => ({}))],
]);
for (const client of CLIENTS) {
  for (const [name, provider, events] of OVERLAPPING)
    if (translationBetween(client, provider))
      overlappingCalls.set(`${client} from ${provider}, ${name}`, (n) => stream(client, provider, events(n)));
  for (const [provider, body] of COMPLETE)
    if (translationBetween(client, provider))
      completeCalls.set(`${client} from ${provider}, response`, (n) => response(client, provider, body(n)));
  completeCalls.set(`${client} from generateContent, one event`, (n) =>
    stream(client, "generateContent", [geminiCalls(n)]),
  );
  completeCalls.set(`${client} from generateContent, one event per call`, (n) =>
    stream(
      client,
      "generateContent",
      numbers(n).map(() => geminiCalls(1)),
    ),
  );
}

export function run(name: string, n: number): void {
  const translate = overlappingCalls.get(name) ?? completeCalls.get(name);
  if (translate === undefined) throw new Error(`no workload has the name ${name}`);
  translate(n);
}
