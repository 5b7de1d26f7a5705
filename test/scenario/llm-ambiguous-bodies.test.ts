/** What routing, limits, prices and the log see of an LLM request is what the provider gets, or the answer is 400. */
import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, beforeEach, test } from "node:test";
import fc from "fast-check";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { parseLeniently, stringsOf, valuesUnder } from "../support/lenient-json.ts";

interface Received {
  readonly url: string;
  readonly text: string;
}

const received: Received[] = [];
const provider = createServer((req, res) => {
  const chunks: Buffer[] = [];
  req.on("data", (chunk: Buffer) => chunks.push(chunk));
  req.on("end", () => {
    received.push({ url: req.url ?? "", text: Buffer.concat(chunks).toString() });
    res.writeHead(200, { "content-type": "application/json" }).end('{"usage":{"total_tokens":1}}');
  });
});
let gateway: TestGateway;

before(async () => {
  await new Promise<void>((resolve) => provider.listen(0, "127.0.0.1", resolve));
  const host = `127.0.0.1:${(provider.address() as AddressInfo).port}`;
  gateway = await startGateway(`
llm:
  port: 0
  models:
    - { name: cheap, provider: openAI, params: { model: gpt-cheap, apiKey: k, hostOverride: "${host}" } }
    - { name: gemini-cheap, provider: gemini, params: { model: gemini-1, apiKey: k, hostOverride: "${host}" } }
    - { name: claude-cheap, provider: anthropic, params: { model: claude-1, apiKey: k, hostOverride: "${host}" } }
    - { name: "any-*", provider: gemini, params: { model: "*", apiKey: k, hostOverride: "${host}" } }
`);
});
after(async () => {
  await gateway.close();
  provider.closeAllConnections();
  await new Promise((resolve) => provider.close(resolve));
});
beforeEach(() => {
  received.length = 0;
});

async function send(path: string, body: string, type = "application/json"): Promise<{ status: number; text: string }> {
  const response = await fetch(`${gateway.url()}${path}`, { method: "POST", headers: { "content-type": type }, body });
  return { status: response.status, text: await response.text() };
}

/** All models that any provider could read in what it received. */
function modelsReceived(): string[] {
  return received.flatMap(({ text, url }) => {
    const node = parseLeniently(text);
    const inBody = node === undefined ? [] : valuesUnder(node, "model").flatMap(stringsOf);
    const inPath = /\/models\/([^:/?]+)/.exec(url)?.[1];
    return inPath === undefined ? inBody : [...inBody, inPath];
  });
}

const CHAT = "/v1/chat/completions";
const GEMINI = "/v1beta/models/gemini-cheap:generateContent";
const SPELLINGS = ["model", "mod\\u0065l", "Model", "MODEL", "mode\\u006C", "\\u006dodel"];
const VALUES = [
  '"cheap"',
  '"gpt-expensive"',
  '["gpt-expensive"]',
  '{"a":"gpt-expensive"}',
  "null",
  "7",
  '"cheap\\ud800"',
];

test("no reading of what a provider gets names a model that the gateway did not choose", async () => {
  const member = fc
    .tuple(fc.constantFrom(...SPELLINGS, "model"), fc.constantFrom(...VALUES, '"cheap"'))
    .map(([key, value]) => `"${key}" : ${value}`);
  const other = fc.constantFrom('"messages":[]', '"stream":false', '"x":{"model":"inner"}', '"stream":"true"', '"n":1');
  const body = fc
    .tuple(
      fc.array(member, { minLength: 1, maxLength: 2 }),
      fc.array(other, { maxLength: 3 }),
      fc.infiniteStream(fc.nat(99)),
    )
    .map(([members, others, order]) => {
      const all = [...members, ...others].map((text) => ({ text, at: order.next().value as number }));
      return `{${all.sort((a, b) => a.at - b.at).map(({ text }) => text)}}`;
    });
  const types = fc.constantFrom(
    "application/json",
    "Application/JSON",
    "text/plain",
    "application/x-www-form-urlencoded",
  );
  const paths = fc.constantFrom(CHAT, "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/moderations");
  let passed = 0;
  await fc.assert(
    fc.asyncProperty(paths, body, types, async (path, text, type) => {
      received.length = 0;
      const { status } = await send(path, text, type);
      assert.ok(status === 200 || (status >= 400 && status < 500), `${status} for ${text}`);
      if (status === 200) passed += 1;
      for (const model of modelsReceived()) assert.equal(model, "gpt-cheap", `${path} ${type} ${text}`);
    }),
    { numRuns: 300, seed: 20_260_728 },
  );
  assert.ok(passed > 10, `only ${passed} requests passed`);
});

const refused: readonly { name: string; path?: string; body: string }[] = [
  { name: "a model given twice", body: '{"model":"cheap","model":"gpt-expensive"}' },
  { name: "a model given twice, once escaped", body: '{"model":"cheap","mod\\u0065l":"gpt-expensive"}' },
  { name: "a model given twice, once in another case", body: '{"model":"cheap","Model":"gpt-expensive"}' },
  { name: "a model in another case only", body: '{"MODEL":"cheap"}' },
  ...["[]", '["cheap"]', "7", "null", "{}", '""', '"\\ud800"', '".."', '"../x"', '"a/../b"', "true"].map((value) => ({
    name: `the model ${value}`,
    body: `{"model":${value}}`,
  })),
  { name: "a stream that is a string", body: '{"model":"cheap","stream":"true"}' },
  { name: "a stream given twice", body: '{"model":"cheap","stream":true,"stream":false}' },
  { name: "a stream as \u017ftream", body: '{"model":"cheap","stream":false,"\u017ftream":true}' },
  { name: "messages given twice", body: '{"model":"cheap","messages":[],"messages":[{"role":"user","content":"x"}]}' },
  { name: "messages given twice, once escaped", body: '{"model":"cheap","messages":[],"mess\\u0061ges":[]}' },
  { name: "another model in the body than in the path", path: GEMINI, body: '{"model":"models/gemini-expensive"}' },
  { name: "dots in a name that becomes part of a path", body: '{"model":"any-/../../x"}' },
  {
    name: "a stream in the body that the path does not ask for",
    path: "/v1/projects/p/locations/l/publishers/anthropic/models/claude-cheap:rawPredict",
    body: '{"stream":true,"messages":[]}',
  },
];
for (const { name, path = CHAT, body } of refused) {
  test(`refuses ${name} in the client's error shape`, async () => {
    const { status, text } = await send(path, body);
    assert.equal(status, 400, text);
    assert.equal(typeof JSON.parse(text).error.message, "string");
    assert.deepEqual(received, []);
  });
}

for (const charset of ["utf-7", "utf-16", '"UTF-7"', "utf-8; charset=utf-7"]) {
  test(`refuses the charset ${charset}`, async () => {
    const { status } = await send(CHAT, '{"model":"cheap"}', `application/json; charset=${charset}`);
    assert.equal(status, 415);
    assert.deepEqual(received, []);
  });
}

test("a model that the body repeats after the path goes out under the provider's name in both", async () => {
  const body = '{"model":"models/gemini-cheap","contents":[]}';
  assert.equal((await send(GEMINI, body, "application/json; charset=UTF-8")).status, 200);
  assert.deepEqual(modelsReceived(), ["models/gemini-1", "gemini-1"]);
});

test("a path that names the model serves a provider that wants it in the body", async () => {
  const path = "/v1/projects/p/locations/l/publishers/anthropic/models/claude-cheap:rawPredict";
  assert.equal((await send(path, '{"messages":[],"max_tokens":1}')).status, 200);
  assert.deepEqual(modelsReceived(), ["claude-1"]);
});
