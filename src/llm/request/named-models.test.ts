import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { finish } from "../../base/sliced-work.ts";
import { classifyBodyStart } from "./detect-llm-request.ts";
import { LlmRequestAttributes } from "./llm-call.ts";
import { ModelNames, modelsInHeaders, modelsInJson, modelsInPath, modelsInQuery, namesModel } from "./read-request.ts";

function inJson(value: unknown, isCall = true): string[] {
  const found = new ModelNames();
  finish(modelsInJson(Buffer.from(typeof value === "string" ? value : JSON.stringify(value)), isCall, found));
  return found.names;
}

const named: [what: string, value: unknown, names: string[]][] = [
  ["a model", { model: "a" }, ["a"]],
  ["a model in another case", { MODEL: "a", Model: "b" }, ["a", "b"]],
  ["a model with escapes", '{"m\\u006fdel":"\\u0061"}', ["a"]],
  [
    "alternatives",
    { model: "a", models: ["b", "c"], fallbacks: [{ model: "d" }, { a: ["e"] }] },
    ["a", "b", "c", "d", "e"],
  ],
  ["models of tools", { tools: [{ type: "image_generation", model: "a" }, { x: { model_id: "b" } }] }, ["a", "b"]],
  ["models of batched requests", { requests: [{ params: { model: "a" } }, { params: { model: "b" } }] }, ["a", "b"]],
  ["an object under a key that names models", { models: { first: { id: "a" } } }, ["a"]],
  ["a request inside of a request", { input: { model: "a" } }, ["a"]],
  ["no text of a conversation", { messages: [{ model: "a" }], input: [{ model: "b" }], content: { model: "c" } }, []],
  ["a conversation under another spelling", { Messages: [{ model: "a" }] }, ["a"]],
  ["no schema", { tools: [{ function: { parameters: { properties: { model: { enum: ["a"] } } } } }] }, []],
  ["nothing in values", { a: "model", b: ["model", "x"], c: '"model":"x"' }, []],
  ["no number", { model: 7, models: [null, true] }, []],
  ["no search engine", { search_engine: "a", remodeled: "b" }, []],
];
for (const [what, value, names] of named) test(`finds ${what}`, () => assert.deepEqual(inJson(value), names));

test("in JSON that is not an LLM call only the outermost members count", () => {
  assert.deepEqual(inJson({ car: { model: "a" } }, false), []);
  assert.deepEqual(inJson({ car: { model: "a" }, models: { x: ["b"] } }, false), ["b"]);
  assert.deepEqual(inJson([{ model: "a" }, { x: { model: "b" } }], false), ["a"]);
});

test("finds the same as a traversal of the parsed tree, for any tree", () => {
  const key = fc.constantFrom("model", "Models", "fallbacks", "messages", "input", "a", "draft_model", "schema");
  const { tree } = fc.letrec((tie) => ({
    tree: fc.oneof(
      { maxDepth: 4 },
      fc.constantFrom("x", "y", "z", 1, null),
      fc.array(tie("tree"), { maxLength: 3 }),
      fc.dictionary(key, tie("tree"), { maxKeys: 4 }),
    ),
  }));
  const walk = (value: unknown, isNaming: boolean, names: Set<string>): Set<string> => {
    if (typeof value === "string" && isNaming) names.add(value);
    if (typeof value !== "object" || value === null) return names;
    for (const [name, one] of Object.entries(value)) {
      const isList = Array.isArray(value);
      if (!isList && (name === "messages" || name === "schema")) continue;
      if (!isList && name === "input" && Array.isArray(one)) continue;
      walk(one, isNaming || (!isList && namesModel(name)), names);
    }
    return names;
  };
  fc.assert(
    fc.property(fc.dictionary(key, tree), fc.constantFrom(undefined, 2), (value, indent) => {
      const text = JSON.stringify(value, undefined, indent);
      assert.deepEqual(new Set(inJson(text)), walk(JSON.parse(text), false, new Set()));
    }),
    { numRuns: 500, seed: 1 },
  );
});

test("more models than can be checked are rejected", () => {
  assert.throws(() => inJson({ models: Array.from({ length: 65 }, (_, i) => `m${i}`) }), /more than 64 models/);
  assert.equal(inJson({ requests: Array.from({ length: 500 }, () => ({ params: { model: "a" } })) }).length, 1);
});

test("an address names models in its path and query", () => {
  const path = (text: string): string[] => {
    const found = new ModelNames();
    modelsInPath(text, found);
    return found.names;
  };
  const query = (text: string): string[] => {
    const found = new ModelNames();
    modelsInQuery(text, found);
    return found.names;
  };
  assert.deepEqual(path("/openai/deployments/a%2Db/chat/completions"), ["a-b"]);
  assert.deepEqual(path("/v1beta/models/a:generateContent"), ["a"]);
  assert.deepEqual(path("/models/org/name/v1/chat/completions"), ["org/name"]);
  assert.deepEqual(path("/v1/engines/a/completions"), ["a"]);
  assert.deepEqual(path("/v1/chat/completions"), []);
  assert.deepEqual(query("x=1&Model=a&deployment=b%20c;models=d"), ["a", "b c", "d"]);
  assert.deepEqual(query("engine_name=a&key=b"), ["a"]);
});

test("headers name models, by their name or as JSON", () => {
  const found = new ModelNames();
  const pairs = [
    ...["x-amzn-sagemaker-target-model", "a", "azureml-model-deployment", "b", "x-portkey-config", '{"model":"c"}'],
    ...["helicone-fallbacks", '["d", {"model": "e"}]', "x-models", "f, g", "sec-ch-ua-model", "phone", "x-other", "h"],
  ];
  modelsInHeaders(pairs, found);
  assert.deepEqual(found.names, ["a", "b", "c", "d", "e", "f", "g"]);
});

test("a model that Google's body repeats with its collection is the same model", () => {
  const bytes = Buffer.from('{"requests":[{"model":"models/g"},{"model":"models/other"}]}');
  assert.deepEqual(LlmRequestAttributes.modelsOf(new LlmRequestAttributes("g", false, bytes)), ["g", "models/other"]);
});

test("the beginning of JSON is found in any encoding and any first chunk", () => {
  const utf16 = Buffer.from(' {"a":1}', "utf16le");
  const begins: [bytes: Buffer, as: string][] = [
    [Buffer.from(' \n{"a"'), "json"],
    [Buffer.from("\ufeff["), "json"],
    [Buffer.from([0xef]), "open"],
    [Buffer.from([0xef, 0xbb]), "open"],
    [Buffer.from("  "), "open"],
    [Buffer.alloc(0), "open"],
    [utf16, "foreign"],
    [Buffer.from(utf16).swap16(), "foreign"],
    [Buffer.from([0, 0, 0, 0x7b]), "foreign"],
    [Buffer.from([0xff, 0xfe, 0x7b, 0]), "foreign"],
    [Buffer.from([0, 0]), "open"],
    [Buffer.from("a"), "other"],
    [Buffer.from([0x89, 0x50]), "other"],
    [Buffer.from([0, 0, 0, 0x18, 0x66, 0x74, 0x79, 0x70]), "other"],
  ];
  for (const [bytes, as] of begins) assert.equal(classifyBodyStart(bytes), as, bytes.toString("hex"));
});
