/**
 * Tool calls whose fragments arrive in another order or interleaved with those of other calls.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { stream } from "../../../test/support/llm/translate.ts";
import type { Members } from "../../json/json.ts";
import type { OutEvent } from "./translation.ts";

interface Call {
  readonly id: string;
  readonly name: string;
  json: string;
}

/** The tool calls of a Messages stream, block by block. */
function callsIn(events: readonly OutEvent[]): Call[] {
  const calls: Call[] = [];
  for (const { data } of events) {
    const { type, content_block: block, delta } = data as Record<string, Record<string, string>>;
    if (String(type) === "content_block_start" && block?.type === "tool_use")
      calls.push({ id: block.id ?? "", name: block.name ?? "", json: "" });
    const last = calls.at(-1);
    if (last && delta?.type === "input_json_delta") last.json += delta.partial_json;
  }
  return calls;
}

const piece = (call: Members): Members => ({ choices: [{ index: 0, delta: { tool_calls: [call] } }] });
const FINISH: Members = { choices: [{ index: 0, delta: {}, finish_reason: "tool_calls" }] };
const begin = (index: number | undefined, id: string, json = ""): Members =>
  piece({ ...(index === undefined ? {} : { index }), id, function: { name: `f${id}`, arguments: json } });
const more = (index: number | undefined, json: string): Members =>
  piece({ ...(index === undefined ? {} : { index }), function: { arguments: json } });

const mixed: [name: string, events: Members[]][] = [
  ["one after the other", [begin(0, "1"), more(0, '{"a":'), more(0, "1}"), begin(1, "2"), more(1, '{"a":2}')]],
  ["pieces in turns", [begin(0, "1"), begin(1, "2"), more(0, '{"a":'), more(1, '{"a":'), more(0, "1}"), more(1, "2}")]],
  ["two ids on one index", [begin(0, "1", '{"a":1}'), begin(0, "2", '{"a":2}')]],
  ["no index", [begin(undefined, "1", '{"a":'), more(undefined, "1}"), begin(undefined, "2", '{"a":2}')]],
  ["the second is whole first", [begin(0, "1"), begin(1, "2", '{"a":2}'), more(0, '{"a":1}')]],
];
for (const [name, events] of mixed) {
  test(`calls with reordered fragments are complete for Messages clients: ${name}`, () => {
    assert.deepEqual(callsIn(stream("messages", "chat", [...events, FINISH])), [
      { id: "1", name: "f1", json: '{"a":1}' },
      { id: "2", name: "f2", json: '{"a":2}' },
    ]);
  });
  test(`calls with reordered fragments are complete for Gemini and Responses clients: ${name}`, () => {
    const gemini = JSON.stringify(stream("generateContent", "chat", [...events, FINISH]));
    assert.match(gemini, /"name":"f1","args":\{"a":1\}.*"name":"f2","args":\{"a":2\}/);
    const done = stream("responses", "chat", [...events, FINISH]).at(-1)?.data as { response: { output: Members[] } };
    assert.deepEqual(
      done.response.output.map(({ name: called, arguments: json }) => [called, json]),
      [
        ["f1", '{"a":1}'],
        ["f2", '{"a":2}'],
      ],
    );
  });
}
