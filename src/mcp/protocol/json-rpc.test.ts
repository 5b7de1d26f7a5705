import assert from "node:assert/strict";
import { test } from "node:test";
import {
  asServerMessage,
  type ClientRequest,
  errorText,
  JsonRpcProblem,
  parseClientMessage,
  parseClientMessages,
  parseWireId,
  withId,
} from "./json-rpc.ts";

const ids = [
  "1",
  "0",
  "-1",
  "1.0",
  "1e3",
  "1.5",
  "9007199254740993",
  "1e999",
  '"a"',
  '""',
  '"é\\u00e9\\n"',
  '"1"',
  "123456789012345678901234567890",
];
for (const id of ids) {
  test(`the id ${id} comes back as it was written [A14]`, () => {
    const message = parseClientMessage(`{"jsonrpc":"2.0", "id" : ${id} ,"method":"ping"}`) as ClientRequest;
    assert.equal(message.kind, "request");
    assert.equal(message.id, id);
    const answer = asServerMessage(`{"result":{"id":7},"jsonrpc":"2.0","id":42}`);
    assert.equal(withId(answer, message.id), `{"result":{"id":7},"jsonrpc":"2.0","id":${id}}`);
  });
}

const refused = [
  { name: "no JSON", text: "{", code: -32700 },
  { name: "an empty body", text: "", code: -32700 },
  { name: "JSON and more", text: '{"jsonrpc":"2.0","method":"a"} x', code: -32700 },
  { name: "a repeated key", text: '{"jsonrpc":"2.0","id":1,"method":"a","method":"b"}', code: -32700 },
  { name: "a number", text: "1", code: -32600 },
  { name: "null", text: "null", code: -32600 },
  { name: "no version", text: '{"id":1,"method":"a"}', code: -32600, id: "1" },
  { name: "another version", text: '{"jsonrpc":"1.0","id":1,"method":"a"}', code: -32600, id: "1" },
  { name: "an id that is null", text: '{"jsonrpc":"2.0","id":null,"method":"a"}', code: -32600 },
  { name: "an id that is an object", text: '{"jsonrpc":"2.0","id":{},"method":"a"}', code: -32600 },
  { name: "an id that is a truth value", text: '{"jsonrpc":"2.0","id":true,"method":"a"}', code: -32600 },
  { name: "an id of a megabyte", text: `{"jsonrpc":"2.0","id":"${"x".repeat(1e6)}","method":"a"}`, code: -32600 },
  { name: "a method that is no string", text: '{"jsonrpc":"2.0","id":1,"method":1}', code: -32600, id: "1" },
  {
    name: "parameters that are a string",
    text: '{"jsonrpc":"2.0","id":1,"method":"a","params":"b"}',
    code: -32600,
    id: "1",
  },
  {
    name: "parameters that are a list",
    text: '{"jsonrpc":"2.0","id":1,"method":"a","params":[1]}',
    code: -32600,
    id: "1",
  },
  { name: "neither method nor result", text: '{"jsonrpc":"2.0","id":1}', code: -32600, id: "1" },
  { name: "a result without an id", text: '{"jsonrpc":"2.0","result":{}}', code: -32600 },
];
for (const { name, text, code, id } of refused) {
  test(`refuses ${name} [A14]`, () => {
    assert.throws(
      () => parseClientMessages(text),
      (error) => error instanceof JsonRpcProblem && error.code === code && error.id === id,
    );
  });
}

test("a notification has no id, a response no method", () => {
  assert.equal(parseClientMessage('{"jsonrpc":"2.0","method":"notifications/initialized"}').kind, "notification");
  assert.equal(parseClientMessage('{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x"}}').kind, "response");
});

test("a batch is its messages, and one bad message spoils it", () => {
  const batch = parseClientMessages('[{"jsonrpc":"2.0","id":1,"method":"a"}, {"jsonrpc":"2.0","method":"b"}]');
  assert.ok(Array.isArray(batch));
  assert.deepEqual(
    batch.map((one) => one.kind),
    ["request", "notification"],
  );
  assert.throws(() => parseClientMessages('[{"jsonrpc":"2.0","id":1,"method":"a"}, 1]'), { code: -32600 });
});

for (const id of ['"5"', "5.0", "-5", "null", "12345678901234567890", "[5]"]) {
  test(`the id ${id} is none of ours`, () => {
    assert.equal(parseWireId(asServerMessage(`{"jsonrpc":"2.0","id":${id},"result":{}}`)), 0);
  });
}

test("an error without an id has the id null", () => {
  assert.deepEqual(JSON.parse(errorText(undefined, -32700, "x")), {
    jsonrpc: "2.0",
    id: null,
    error: { code: -32700, message: "x" },
  });
});

const longTexts: [method: string, params: (text: string) => object, accepted: number][] = [
  ["tools/list", (cursor) => ({ cursor }), 65_536],
  ["logging/setLevel", (level) => ({ level }), 65_536],
  ["tasks/get", (taskId) => ({ taskId }), 65_536],
  ["notifications/cancelled", (requestId) => ({ requestId }), 65_536],
  ["notifications/progress", (progressToken) => ({ progressToken, progress: 1 }), 65_536],
  ["tools/call", (name) => ({ name }), 8_192],
  ["tools/call", (progressToken) => ({ name: "a", _meta: { progressToken } }), 8_192],
  ["resources/read", (uri) => ({ uri }), 8_192],
  ["prompts/get", (name) => ({ name }), 8_192],
  ["completion/complete", (name) => ({ ref: { type: "ref/prompt", name }, argument: {} }), 8_192],
];
for (const [method, params, accepted] of longTexts)
  test(`${method} accepts ${accepted} characters in ${JSON.stringify(params("…"))} and no more [R71]`, () => {
    const message = (chars: number): string => {
      const id = method.startsWith("notifications/") ? {} : { id: 1 };
      return JSON.stringify({ jsonrpc: "2.0", ...id, method, params: params("x".repeat(chars)) });
    };
    parseClientMessages(message(accepted));
    assert.throws(() => parseClientMessages(message(accepted + 1)), {
      code: -32602,
      message: new RegExp(`is longer than ${accepted} characters`),
    });
  });

test("the end of a string is found with any number of escapes", () => {
  for (let escapes = 0; escapes < 24; escapes++)
    for (const sequence of ['\\"', "\\\\", '\\\\\\"', 'a\\"b', "\\n"]) {
      const text = sequence.repeat(escapes);
      const parsed = parseClientMessages(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"${text}"}}`);
      assert.equal("params" in parsed && parsed.params.name, JSON.parse(`"${text}"`));
    }
});
