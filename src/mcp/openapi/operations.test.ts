import assert from "node:assert/strict";
import { test } from "node:test";
import { assertCpuBelow } from "../../../test/support/cpu-time.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { finish } from "../../base/sliced-work.ts";
import { reservedNames } from "./api.ts";
import { parseJsonOpenApi, parseOpenApi } from "./document.ts";
import { convertOperations, type Operations } from "./operations.ts";

const YAML = peerInput("openapi-server/yaml-description");
const GET = { responses: {} };

function convert(paths: object, more: object = {}): Operations {
  const document = parseOpenApi(JSON.stringify({ openapi: "3.0.3", info: {}, paths, ...more }), YAML);
  return finish(convertOperations(document, { reserved: [{ in: "header", name: "x-key" }] }));
}

/** The arguments of an operation with one header parameter of this name; the gateway sends its credential in `x-key`. */
function argumentsFor(name: string): string[] {
  const parameters = [{ name, in: "header", schema: { type: "string" } }];
  const operation = convert({ "/a": { get: { operationId: "a", parameters, ...GET } } }).byName.get("a");
  assert.ok(operation);
  return operation.parameters.map(({ argument }) => argument);
}

for (const [name, isOffered] of [
  ["x-trace", true],
  ["x_trace", true],
  ["x-key", false],
  ["X-Key", false],
  ["x_key", false],
  ["x.key", false],
  ["content_length", false],
  ["Transfer_Encoding", false],
  ["proxy-connection", false],
  ["authorization", false],
] as const) {
  test(`a tool ${isOffered ? "offers" : "does not offer"} the header ${name} as an argument [L18]`, () => {
    assert.deepEqual(argumentsFor(name), isOffered ? [name] : []);
  });
}

const CONFIG = { auth: undefined, headers: {}, forwardHeaders: [] };

for (const [what, config, place, name] of [
  ["a forwarded header", { forwardHeaders: ["x-user"] }, "header", "X-User"],
  ["a forwarded header in another spelling", { forwardHeaders: ["x-user"] }, "header", "x_user"],
  ["a configured header", { headers: { "x-tenant": "a" } }, "header", "X-Tenant"],
  ["a key in a header", { auth: { header: { name: "x-key", value: "k" } } }, "header", "x-key"],
  ["a key in the query", { auth: { query: { name: "api_key", value: "k" } } }, "query", "API_KEY"],
  ["an AWS signature", { auth: { aws: { region: "r", service: "s" } } }, "header", "x-amz-date"],
  ["forwarded cookies", { forwardHeaders: ["cookie"] }, "cookie", "session"],
  ["the client's address", {}, "header", "X-Forwarded-For"],
  ["another method", {}, "header", "X-HTTP-Method-Override"],
  ["the encoding of responses", {}, "header", "Accept-Encoding"],
] as const)
  test(`an argument cannot set ${what}: ${name}`, () => {
    const document = parseOpenApi(
      JSON.stringify({
        openapi: "3.0.3",
        paths: { "/a": { get: { operationId: "a", parameters: [{ name, in: place }], ...GET } } },
      }),
      YAML,
    );
    const reserved = reservedNames({ ...CONFIG, ...config } as Parameters<typeof reservedNames>[0]);
    const operation = finish(convertOperations(document, { reserved })).byName.get("a");
    assert.deepEqual(operation?.parameters, []);
  });

function postWith(schema: unknown): object {
  return { post: { requestBody: { content: { "application/json": { schema } } }, ...GET } };
}

const numbers = Array.from({ length: 3_000 }, (_, i) => i);
const manyNumbers = Array.from({ length: 12_000 }, (_, i) => i);
const referenced = {
  components: { schemas: Object.fromEntries(manyNumbers.map((i) => [`s${i}`, { properties: { x: {} } }])) },
};

/** Small descriptions whose parts are repeated, nested, or named alike. The time must not grow faster than the size. */
const HOSTILE: Record<string, () => Operations> = {
  "references with equal names": () =>
    convert({ "/a": postWith({ anyOf: manyNumbers.map((i) => ({ $ref: `#/components/schemas/s${i}/properties/x` })) }) }, referenced),
  "the same reference many times": () =>
    convert({ "/a": postWith({ anyOf: manyNumbers.map(() => ({ $ref: "#/components/schemas/s1" })) }) }, referenced),
  "empty schemas": () => convert({ "/a": postWith({ anyOf: numbers.flatMap(() => Array(20).fill({})) }) }),
  "operations with equal names": () =>
    convert(Object.fromEntries(numbers.map((i) => [`/${i}`, { get: { operationId: "x", ...GET } }]))),
  "a name of underscores": () =>
    convert({ "/a": { get: { operationId: `${"_".repeat(200_000)}a`, ...GET } } }),
  "a long shared list of parameters": () =>
    convert(
      Object.fromEntries(numbers.map((i) => [`/${i}`, { $ref: "#/components/pathItems/p" }])),
      { components: { pathItems: { p: { parameters: numbers.map((i) => ({ name: `n${i}`, in: "query" })), get: GET } } } },
    ),
  "a large shared schema": () =>
    convert(
      Object.fromEntries(numbers.map((i) => [`/${i}`, postWith({ $ref: "#/components/schemas/large" })])),
      { components: { schemas: { large: Object.fromEntries(numbers.map((i) => [`x-${i}`, 1])) } } },
    ),
}; // biome-ignore format: a table

for (const [what, run] of Object.entries(HOSTILE))
  test(`a description with ${what} is converted in linear time`, () => {
    assertCpuBelow(1_000, () => {
      const { byName, left } = run();
      assert.ok(byName.size + left.length > 0);
    });
  });

test("tools with equal names are numbered in the order of the description", () => {
  const same = { operationId: "x", ...GET };
  const { byName } = convert({ "/a": { get: same, put: same }, "/b": { get: same } });
  assert.deepEqual([...byName.keys()], ["x", "x_2", "x_3"]);
});

test("a description in JSON is read as JSON, also if YAML has another value for it", () => {
  const texts = [
    '{"openapi":\r"3.0.0",\r"paths":{}}',
    '\r{"openapi": "3.0.0", "paths": {"/a":\r{"get": {}}}}',
    '{\r"openapi": "3.0.0", "paths": {}\r}\r',
    '{"openapi": "3.0.0", "paths": {"/a": {}}, "paths": {}}',
  ];
  for (const text of texts) {
    assert.deepEqual(parseOpenApi(text, YAML).root, JSON.parse(text), text);
    assert.deepEqual(parseJsonOpenApi(text)?.root, JSON.parse(text), text);
  }
});
