import assert from "node:assert/strict";
import { test } from "node:test";
import { finish } from "../../base/sliced-work.ts";
import { detectLlmRequest, mayNameModel } from "./detect-llm-request.ts";
import { LlmRequestAttributes } from "./llm-call.ts";
import { scanRequest, scanSteps } from "./read-request.ts";

function detect(path: string, bytes: Buffer): LlmRequestAttributes | undefined {
  return finish(detectLlmRequest({ method: "POST", path, query: "", pairs: [] }, bytes)).attributes;
}

test("reads model and stream and their offsets", () => {
  const bytes = Buffer.from('{ "messages": [{"model":"inner"}], "model" : "gpt-x", "stream":true }');
  const result = scanRequest(bytes);
  assert.ok(result.ok);
  assert.equal(result.scan.model, "gpt-x");
  assert.equal(result.scan.stream, true);
  assert.equal(bytes.toString("utf8", result.scan.modelSpan?.start, result.scan.modelSpan?.end), '"gpt-x"');
  assert.equal(result.scan.bodyStart, 1);
});

const refused: [name: string, body: string | Buffer, reason: RegExp][] = [
  ["an empty body", "", /one JSON object/],
  ["a list", "[1]", /one JSON object/],
  ["a broken body", '{"model":"a"', /one JSON object/],
  ["two bodies", '{"model":"a"}{"model":"b"}', /one JSON object/],
  ["two models", '{"model":"a","model":"b"}', /more than one 'model'/],
  ["two models, one written with escapes", '{"model":"a","\\u006dodel":"b"}', /more than one 'model'/],
  ["a model that is no string", '{"model":{"a":1}}', /'model' must be/],
  ["an empty model", '{"model":""}', /'model' must be/],
  ["a model beyond all bounds", `{"model":"${"x".repeat(257)}"}`, /'model' must be/],
  ["a stream that is no boolean", '{"model":"a","stream":"yes"}', /'stream' must be/],
  ["3 MiB of numbers", `{"model":"a","x":[${"1,".repeat(3 << 19)}1]}`, /more than 2 MiB outside of strings/],
  ["3 MiB of blanks", `{"model":"a",${" ".repeat(3 << 20)}"x":1}`, /more than 2 MiB outside of strings/],
  ["a depth of 1,000", `{"model":"a","x":${"[".repeat(1000)}${"]".repeat(1000)}}`, /nested too deeply/],
  [
    "bytes that are no UTF-8",
    Buffer.concat([Buffer.from('{"model":"'), Buffer.from([0xff, 0xfe]), Buffer.from('"}')]),
    /UTF-8/,
  ],
];
for (const [name, body, reason] of refused) {
  test(`rejects ${name} [M1]`, () => {
    const result = scanRequest(Buffer.from(body));
    assert.ok(!result.ok);
    assert.match(result.reason, reason);
  });
}

test("a null stream means no stream", () => {
  const result = scanRequest(Buffer.from('{"model":"a","stream":null}'));
  assert.ok(result.ok && result.scan.stream === undefined);
});

test("a JSON request with a model is an LLM request, whatever its path", () => {
  const attributes = detect(
    "/api/x",
    Buffer.from('{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true}'),
  );
  assert.equal(attributes?.requestModel, "m");
  assert.equal(attributes?.streaming, true);
  assert.equal(attributes?.estimatedTokens, 8);
});

test("a request whose path names the model is an LLM request", () => {
  assert.equal(detect("/v1beta/models/g:streamGenerateContent", Buffer.from('{"contents":[]}'))?.requestModel, "g");
});

for (const [path, body] of [
  ["/api", '{"name":"x"}'],
  ["/api", "not json"],
  ["/api", '{"model":5}'],
  ["/api", '{"car":{"model":"m"}}'],
] as const) {
  test(`${body} at ${path} is not an LLM request`, () => assert.equal(detect(path, Buffer.from(body)), undefined));
}

test("a count of tokens names its model and is free", () => {
  const attributes = detect("/v1/messages/count_tokens", Buffer.from('{"model":"m"}'));
  assert.deepEqual([attributes?.requestModel, LlmRequestAttributes.costOf(attributes)], ["m", "free"]);
});

test("the scan of a large body pauses after each piece", () => {
  for (const fill of ["x".repeat(1 << 20), '","'.repeat(300_000), "\\n".repeat(1 << 19)]) {
    const bytes = Buffer.from(JSON.stringify({ model: "a", messages: [{ content: fill }] }));
    const steps = scanSteps(bytes);
    let pauses = 0;
    while (steps.next().done !== true) pauses += 1;
    assert.ok(pauses >= bytes.length / 65_536 - 1, `${pauses} pauses for ${bytes.length} bytes`);
  }
});

test("text has no such limit, wherever the chunks of the scan end", () => {
  for (const pad of [0, 1, 2, 3]) {
    const text = `${"x".repeat(pad)}\\"${"y".repeat(3 << 20)}`;
    const result = scanRequest(Buffer.from(`{"x":"${text}","model":"a","y":["${text}"]}`));
    assert.equal(result.ok && result.scan.model, "a");
  }
});

test("the counts of a request are the same in steps", () => {
  const messages = Array.from({ length: 4_000 }, (_, i) => ({ role: "user", content: `number ${i} \\ "quoted" é` }));
  const bytes = Buffer.from(JSON.stringify({ messages, model: "m", max_tokens: 77 }));
  const atOnce = detect("/x", bytes);
  const inSteps = detect("/x", bytes);
  assert.ok(atOnce && inSteps && bytes.length > 200_000);
  const steps = inSteps.count();
  let count = 0;
  while (steps.next().done !== true) count += 1;
  assert.ok(count >= 4, String(count));
  assert.equal(inSteps.estimatedTokens, atOnce.estimatedTokens);
  assert.deepEqual([inSteps.maxOutputTokens, atOnce.maxOutputTokens], [77, 77]);
});

test("a model is found wherever its name is", () => {
  for (const at of [0, 65_530, 65_533, 65_535, 65_536, 131_070])
    assert.equal(finish(mayNameModel(Buffer.from(`${" ".repeat(at)}MODEL${" ".repeat(70_000)}`))), true, String(at));
  assert.equal(finish(mayNameModel(Buffer.alloc(200_000, "x"))), false);
});
