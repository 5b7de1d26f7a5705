import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { peerInput } from "../../base/peer-inputs.ts";
import { withId } from "../protocol/json-rpc.ts";
import { type BrokenMessage, parseServerText, reportBroken } from "./server-messages.ts";

const MESSAGE = peerInput("mcp-server/http-response");

const lines = [
  { text: '{"jsonrpc":"2.0","id":5,"result":{}}', kind: "result" },
  { text: '{"result":{"content":[{"text":"\\"id\\":9"}]},"jsonrpc":"2.0","id":5}', kind: "result" },
  { text: '{"jsonrpc":"2.0","id":5,"error":{"code":1,"message":"x"}}', kind: "error" },
  { text: '{"jsonrpc":"2.0","id":"q","method":"roots/list"}', kind: "request" },
  { text: '{"jsonrpc":"2.0","method":"notifications/x","params":{"id":1}}', kind: "notification" },
  { text: '{"jsonrpc":"2.0","\\u0069d":5,"result":{}}', kind: "result" },
];
for (const { text, kind } of lines) {
  test(`a server's line ${text} is a ${kind}`, () => {
    assert.deepEqual(
      parseServerText(MESSAGE, text).map((one) => one.kind),
      [kind],
    );
  });
}

for (const text of ["", "hello", "null", "12", '"x"', "[]", "[INFO] started"]) {
  test(`a server's line ${JSON.stringify(text)} is no message`, () => {
    assert.deepEqual(parseServerText(MESSAGE, text), []);
  });
}

/** `wireId` is the call that fails, `questionId` the question that is refused. */
const brokenLines: readonly (Partial<BrokenMessage> & { text: string })[] = [
  { text: "{" },
  { text: "{}" },
  { text: '{"jsonrpc":"2.0"}' },
  { text: '{"a" 1}' },
  { text: '{"method":1}' },
  {
    text: '{"id":3,"result":{"tools":[{"name":bad}]}}',
    wireId: 3,
    reason: "answered with invalid JSON: unexpected text at character 36",
  },
  { text: '{"id":3,"result":{"tools":[', wireId: 3, reason: "answered with invalid JSON: it ends early" },
  { text: '{"id":3,"result":{}} trailing', wireId: 3 },
  { text: '{"id":3,"result":{}}}', wireId: 3 },
  { text: '{"id":3,"result":{"a":1,"a":2}}', wireId: 3, reason: 'answered with invalid JSON: the key "a" is repeated' },
  { text: '{"id":3,"id":4,"result":{}}', wireId: 4 },
  { text: `{"id":3,"result":${"[".repeat(1000)}${"]".repeat(1000)}}`, wireId: 3 },
  { text: '{"id":3,"result":"\ttab"}'.replace("\\t", "\t"), wireId: 3 },
  {
    text: '{"id":3,"result":{},"error":{"code":1,"message":"x"}}',
    wireId: 3,
    reason: "answered with both a result and an error",
  },
  { text: '{"id":3,"jsonrpc":"2.0"}', wireId: 3, reason: "answered with neither a result nor an error" },
  { text: '{"id":3,"result":null}', wireId: 3, reason: "answered with a result that is not an object" },
  { text: '{"id":3,"result":[]}', wireId: 3 },
  { text: '{"id":3,"error":"no"}', wireId: 3, reason: "answered with an error that has no code or no message" },
  { text: '{"id":3,"error":{"code":"1","message":"x"}}', wireId: 3 },
  { text: '{"id":3,"error":null}', wireId: 3 },
  { text: '{"id":3,"method":"x","result":{}}', wireId: 3 },
  { text: '{"id":"q","method":"x","params":[]}', questionId: '"q"' },
  { text: '{"id":"q","method":5}', questionId: '"q"' },
  { text: '{"id":7,"method":"x","params":{"a":bad}}', questionId: "7" },
  { text: '{"id":bad,"method":"x"}' },
  { text: '{"id":"\\x","method":"x"}' },
  { text: '{"id":null,"method":"x"}' },
  { text: '{"id":{},"method":"x"}' },
  { text: `{"id":"${"x".repeat(2000)}","method":"x"}` },
];
for (const { text, wireId = 0, questionId, reason } of brokenLines) {
  test(`a server's line ${text.slice(0, 60)} is broken`, () => {
    const [one] = parseServerText(MESSAGE, text);
    assert.ok(one?.kind === "broken");
    assert.equal(one.wireId, wireId);
    assert.equal(one.questionId, questionId);
    if (reason !== undefined) assert.equal(one.reason, reason);
    const failed: unknown[] = [];
    const sent: string[] = [];
    reportBroken(one, { failed: (...args) => failed.push(args) }, (message) => sent.push(message.text));
    assert.deepEqual(failed, wireId === 0 ? [] : [[wireId, one.reason]]);
    assert.deepEqual(
      sent.map((answer) => JSON.parse(answer).id),
      questionId === undefined ? [] : [JSON.parse(questionId)],
    );
  });
}

test("a batch is its messages, good and bad", () => {
  const batch = parseServerText(
    MESSAGE,
    '[{"jsonrpc":"2.0","id":1,"result":{}},{"jsonrpc":"2.0","method":"x"},1,{"id":2}]',
  );
  assert.deepEqual(
    batch.map((one) => one.kind),
    ["result", "notification", "broken", "broken"],
  );
  assert.deepEqual(
    parseServerText(MESSAGE, '[{"id":1,"result":{}},{"id":2,"result":bad}]').map(
      (one) => one.kind === "broken" && one.wireId,
    ),
    [1, 2],
  );
});

test("any message of any content is recognised, and its id can be replaced", () => {
  const content = fc.dictionary(fc.string(), fc.jsonValue());
  fc.assert(
    fc.property(content, fc.oneof(fc.integer(), fc.string()), fc.boolean(), (value, id, isIdFirst) => {
      const body = isIdFirst ? { jsonrpc: "2.0", id, result: value } : { result: value, jsonrpc: "2.0", id };
      const [message] = parseServerText(MESSAGE, JSON.stringify(body));
      assert.ok(message?.kind === "result");
      assert.deepEqual(JSON.parse(withId(message, "99")), JSON.parse(JSON.stringify({ ...body, id: 99 })));
    }),
  );
});

test("text of any kind is read without an exception, and what passes parses", () => {
  const anything = fc.oneof(
    fc.string(),
    fc.string().map((one) => `{"id":1,"result":{${one}`),
    fc.json(),
  );
  fc.assert(
    fc.property(anything, (text) => {
      for (const one of parseServerText(MESSAGE, text)) if (one.kind !== "broken") JSON.parse(one.text);
    }),
  );
});
