import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { assertCpuBelow } from "../../../test/support/cpu-time.ts";
import { finish } from "../../base/sliced-work.ts";
import type { OpenApiDocument } from "./document.ts";
import { convertOperations, type Operation } from "./operations.ts";
import { type ApiRequest, apiRequest } from "./request.ts";
import { ArgumentProblem } from "./value-shape.ts";

const TEMPLATES = ["/items/{id}", "/items/{id}/public", "/v.{id}/x", "/.{id}/x", "/a;{id}/x", "/files/{id}.json"];

function operationAt(path: string): Operation {
  const parameter = {
    name: "id",
    argument: "id",
    in: "path",
    isRequired: true,
    style: "simple",
    explode: false,
    allowReserved: false,
    shape: { kind: "scalar", types: ["string"] },
  };
  return { method: "GET", path, parameters: [parameter], body: undefined } as unknown as Operation;
}

/** As servers read it that decode any number of times, and that cut path parameters off. */
function readingsOf(path: string): string[] {
  const readings = [path];
  for (let round = 0; round < 6; round++)
    readings.push(
      (readings.at(-1) as string).replace(/%([0-7][0-9a-f])/gi, (_, hex: string) =>
        String.fromCharCode(Number.parseInt(hex, 16)),
      ),
    );
  return [...readings, ...readings.map((reading) => reading.replace(/;[^/\\]*/g, ""))];
}

test("no argument changes the number of segments of a tool's path or steps out of them [L17]", () => {
  const pieces = fc.constantFrom(
    "..", ".", "/", "\\", "%2e", "%2F", "%5c", "%252e", "%25", "2f", "e", ";", "%3b", " ", "a", "id-1", "é", "\n", "%00", "%c0%af",
  ); // biome-ignore format: a table
  const values = fc.oneof(
    fc.string(),
    fc.array(pieces, { maxLength: 5 }).map((all) => all.join("")),
  );
  let sent = 0;
  fc.assert(
    fc.property(fc.constantFrom(...TEMPLATES), values, (template, id) => {
      let path: string;
      try {
        ({ path } = apiRequest(operationAt(template), { values: { id }, bodyText: undefined }));
      } catch (error) {
        assert.ok(error instanceof ArgumentProblem, String(error));
        return;
      }
      sent += 1;
      const count = template.split("/").length;
      for (const reading of readingsOf(path)) {
        const segments = reading.split(/[/\\]/);
        assert.equal(segments.length, count, `${template} with ${JSON.stringify(id)} is read as ${reading}`);
        assert.ok(
          segments.every((segment) => !/^\.{1,2} *$/.test(segment)),
          `${template} with ${JSON.stringify(id)} is read as ${reading}`,
        );
      }
    }),
    { numRuns: 4_000 },
  );
  assert.ok(sent > 500, `only ${sent} requests would be sent`);
});

test("an argument that cannot be part of a path is rejected with the reason", () => {
  assert.throws(
    () => apiRequest(operationAt("/items/{id}"), { values: { id: "a/b" }, bodyText: undefined }),
    /one segment without \/ and \\/,
  );
});

test("an operation with an invalid path is skipped", () => {
  const id = { name: "id", in: "path", required: true, schema: { type: "string" } };
  const get = { operationId: "get", parameters: [id], responses: {} };
  for (const path of ["/%2{id}/x", "/a/../{id}", "/a\\{id}"]) {
    const document = { root: { paths: { [path]: { get } } } } as unknown as OpenApiDocument;
    const steps = convertOperations(document, { reserved: [] } as never);
    let step = steps.next();
    while (step.done !== true) step = steps.next();
    assert.equal(step.value.byName.size, 0, path);
    assert.match(step.value.left[0]?.reason ?? "", /no server would accept/, path);
  }
});

test("no value of a multipart form can make the boundary longer or contain it", () => {
  const form = { kind: "multipart", type: "multipart/form-data", isRequired: true, fields: {}, isOpen: true } as const;
  const operation: Operation = { ...operationAt("/items/x"), method: "POST", parameters: [], body: form };
  const body = { text: `form-${"-x".repeat(100_000)}` };
  const request = () => apiRequest(operation, { values: { body }, bodyText: JSON.stringify(body) });
  assertCpuBelow(200, request);
  const { headers, body: bytes } = request();
  const boundary = /boundary=([\w-]{20,70})$/.exec(headers.get("content-type") ?? "")?.[1];
  assert.equal(
    bytes?.toString(),
    `--${boundary}\r\ncontent-disposition: form-data; name="text"\r\n\r\n${body.text}\r\n--${boundary}--\r\n`,
  );
});

function operationOf(declared: object): Operation {
  const root = { openapi: "3.1.0", paths: { "/a/{p}": { post: { operationId: "a", responses: {}, ...declared } } } };
  const { byName, left } = finish(
    convertOperations({ root } as unknown as OpenApiDocument, { reserved: [{ in: "query", name: "api_key" }] }),
  );
  const operation = byName.get("a");
  assert.ok(operation, JSON.stringify(left));
  return operation;
}

const PATH = { name: "p", in: "path", required: true, schema: { type: "string" } };

function sent(declared: object[], values: object, more: object = {}): ApiRequest {
  const args = { p: "x", ...values } as Record<string, unknown>;
  const bodyText = args.body === undefined ? undefined : JSON.stringify(args.body);
  const gateway = { headers: [], query: ["api_key", "own-key"] };
  return apiRequest(operationOf({ parameters: [PATH, ...declared], ...more }), { values: args, bodyText }, gateway);
}

const query = (name: string, schema: object, more: object = {}): object => ({ name, in: "query", schema, ...more });
const USER = query("user", { type: "string" });
const LIMIT = query("limit", { type: "integer" });
const SPREAD = query("q", { type: "object", properties: { a: { type: "string" } }, additionalProperties: true });

/** Arguments that some server would read as another parameter, or as another value than rules read. */
const REJECTED: readonly [string, object[], object][] = [
  ["an object for a string", [query("q", { type: "string" }), USER], { q: { user: "bob" } }],
  ["an object without a type", [query("q", {}), USER], { q: { user: "bob" } }],
  ["a member with the name of another parameter", [SPREAD, USER], { q: { user: "bob" } }],
  ["its name in another case", [SPREAD, USER], { q: { User: "bob" } }],
  ["its name with a bracket", [SPREAD, USER], { q: { "user[]": "bob" } }],
  ["its name with a dot", [SPREAD, query("user_id", {})], { q: { "user.id": "bob" } }],
  ["a member with the name of the gateway's key", [SPREAD], { q: { API_KEY: "x" } }],
  ["a member that is not declared", [query("q", { type: "object", properties: {} })], { q: { debug: "1" } }],
  ["a bracket in a deep object", [query("f", { type: "object" }, { style: "deepObject" })], { f: { "a][b": "1" } }],
  ["a list for a string", [query("q", { type: "string" })], { q: ["secret"] }],
  ["a list in a path", [], { p: ["secret"] }],
  ["a list in a header", [{ name: "x-a", in: "header", schema: { type: "string" } }], { "x-a": ["secret"] }],
  ["a string for an integer", [LIMIT], { limit: "5" }],
  ["a fraction for an integer", [LIMIT], { limit: 5.5 }],
  ["an integer beyond 2^53", [LIMIT], { limit: 2 ** 53 }],
  ["a number for a string", [USER], { user: 5 }],
  ["a boolean for a string", [USER], { user: true }],
  ["null", [USER], { user: null }],
  ["null for a nullable string", [query("q", { type: ["string", "null"] })], { q: null }],
  ["a number for a number or string", [query("q", { type: ["integer", "string"] })], { q: 5 }],
  ["an empty list", [query("q", { type: "array", items: { type: "string" } })], { q: [] }],
  ["a list in a list", [query("q", { type: "array" })], { q: [["a"]] }],
  ["a separator in a part", [query("q", { type: "array" }, { explode: false })], { q: ["a,b"] }],
  ["a separator in a part", [query("q", { type: "array" }, { explode: false, style: "pipeDelimited" })], { q: ["a|b"] }],
  ["an empty part", [query("q", { type: "array" }, { explode: false })], { q: ["a", ""] }],
  ["white space around a header", [{ name: "x-a", in: "header", schema: {} }], { "x-a": " admin" }],
  ["a line break in a header", [{ name: "x-a", in: "header", schema: {} }], { "x-a": "a\r\nx-b: 1" }],
  ["other characters than ASCII in a header", [{ name: "x-a", in: "header", schema: {} }], { "x-a": "é" }],
  ["a second cookie", [{ name: "c", in: "cookie", schema: {} }], { c: "a; user=bob" }],
  ["a percent sign in a cookie", [{ name: "c", in: "cookie", schema: {} }], { c: "%61" }],
  ["infinity", [query("n", { type: "number" })], { n: Number.POSITIVE_INFINITY }],
  ["infinity in JSON", [{ name: "j", in: "query", content: { "application/json": { schema: {} } } }], { j: { a: [-Infinity] } }],
  ["another type in JSON", [{ name: "j", in: "query", content: { "application/json": { schema: { type: "array", items: { type: "string" } } } } }], { j: ["a", 5] }],
  ["its name in compatible characters", [SPREAD, USER], { q: { ｕſer: "bob" } }],
  ["an argument of no parameter", [], { user: "bob" }],
]; // biome-ignore format: a table

for (const [what, declared, values] of REJECTED)
  test(`${what} is rejected: ${JSON.stringify(values)}`, () => {
    assert.throws(() => sent(declared, values), ArgumentProblem);
  });

/** The path and query are sent after `/a/x`, with the gateway's own key. */
const SENT: readonly [object[], object, string][] = [
  [[USER], { user: "a&b=c d+é" }, "?user=a%26b%3Dc%20d%2B%C3%A9"],
  [[LIMIT], { limit: 5 }, "?limit=5"],
  [[query("n", { type: "number" })], { n: 0.5 }, "?n=0.5"],
  [[query("b", { type: "boolean" })], { b: false }, "?b=false"],
  [[query("q", { anyOf: [{ type: "string" }, { type: "null" }] })], { q: "a" }, "?q=a"],
  [[query("q", { type: "array", items: { type: "integer" } })], { q: [1, 2] }, "?q=1&q=2"],
  [[query("q", { type: "array" }, { explode: false })], { q: ["a", "b c"] }, "?q=a,b%20c"],
  [[query("q", { type: "array" }, { explode: false, style: "spaceDelimited" })], { q: ["a", "b"] }, "?q=a%20b"],
  [[query("q", { type: "array" }, { explode: false, style: "pipeDelimited" })], { q: ["a", "b"] }, "?q=a%7Cb"],
  [[query("f", { type: "object" }, { style: "deepObject" })], { f: { a: "1", b: "x y" } }, "?f%5Ba%5D=1&f%5Bb%5D=x%20y"],
  [[query("f", { type: "object" }, { explode: false })], { f: { a: "1", b: "2" } }, "?f=a,1,b,2"],
  [[SPREAD, USER], { q: { a: "1", other: "2" }, user: "alice" }, "?a=1&other=2&user=alice"],
  [[query("q", {}, { allowReserved: true })], { q: "a/b?c&d#e;f" }, "?q=a/b?c%26d%23e%3Bf"],
  [[{ name: "j", in: "query", content: { "application/json": { schema: {} } } }], { j: { a: [1] } }, "?j=%7B%22a%22%3A%5B1%5D%7D"],
]; // biome-ignore format: a table

for (const [declared, values, expected] of SENT)
  test(`${JSON.stringify(values)} is sent as ${expected}`, () => {
    assert.equal(sent(declared, values).path, `/a/x${expected}&api_key=own-key`);
  });

for (const [style, explode, schema, value, expected] of [
  ["simple", false, { type: "array" }, ["a", "b"], "/a/a,b"],
  ["simple", true, { type: "object" }, { a: "1", b: "2" }, "/a/a=1,b=2"],
  ["label", false, { type: "string" }, "a", "/a/.a"],
  ["label", true, { type: "array" }, ["a", "b"], "/a/.a.b"],
  ["matrix", false, { type: "string" }, "a", "/a/;p=a"],
  ["matrix", true, { type: "array" }, ["a", "b"], "/a/;p=a;p=b"],
] as const)
  test(`a path parameter in the style ${style} is sent as ${expected}`, () => {
    const operation = operationOf({ parameters: [{ ...PATH, style, explode, schema }] });
    assert.equal(apiRequest(operation, { values: { p: value }, bodyText: undefined }).path, expected);
  });

function formOf(type: string, schema: object, encoding: object = {}): object {
  return { requestBody: { content: { [type]: { schema, encoding } } } };
}

const PROPERTIES = {
  user: { type: "string" },
  tags: { type: "array", items: { type: "string" } },
  extra: { type: "object" },
};

test("the fields of a form have their declared types", () => {
  const form = formOf("application/x-www-form-urlencoded", { type: "object", properties: PROPERTIES });
  const body = { user: "a b", tags: ["x", "y"], extra: { n: 1 }, other: "z" };
  assert.equal(sent([], { body }, form).body?.toString(), "user=a%20b&tags=x&tags=y&extra=%7B%22n%22%3A1%7D&other=z");
  for (const wrong of [
    { user: ["a"] }, { user: { a: 1 } }, { tags: "x" }, { tags: [] }, { extra: "{}" }, { extra: null }, { other: 1 }, { "user[a]": "b" }, { USER: "b" }, { "tags.": "x", "tags_": "y" },
  ]) // biome-ignore format: a table
    assert.throws(() => sent([], { body: wrong }, form), ArgumentProblem, JSON.stringify(wrong));
});

/** Printable or not, each character of the first 256, and some that look like them or that end a line. */
const CHARACTERS = [
  ...[...Array(256).keys()].map((code) => String.fromCharCode(code)),
  ..."\u2028\u2029\ufeff＂；＝😀Жé٣",
];
const FORM_TYPES = ["application/x-www-form-urlencoded", "multipart/form-data"];

for (const type of FORM_TYPES)
  test(`the name of a free field has letters, digits, and few other characters: ${type}`, () => {
    const form = formOf(type, { type: "object", properties: PROPERTIES, additionalProperties: true });
    for (const character of CHARACTERS)
      for (const name of [character, `a${character}`, `${character}a`, `a${character}b`]) {
        const send = (): ApiRequest => sent([], { body: { [name]: "x" } }, form);
        if (/[\p{L}\p{N}_.-]/u.test(character)) assert.doesNotThrow(send, JSON.stringify(name));
        else assert.throws(send, ArgumentProblem, JSON.stringify(name));
      }
    assert.doesNotThrow(() => sent([], { body: { ["n".repeat(200)]: "x" } }, form));
    for (const name of ["", "n".repeat(201)])
      assert.throws(() => sent([], { body: { [name]: "x" } }, form), ArgumentProblem);
  });

test("no free field adds a part to a multipart form", () => {
  const form = formOf("multipart/form-data", { type: "object", properties: PROPERTIES, additionalProperties: true });
  for (const name of [
    'a"', 'a"; filename="b', 'a"\r\n\r\nx\r\n--b\r\ncontent-disposition: form-data; name="user', "a\r\nx-b: 1", "a\n", "a%22", "a[b]", "a;b", "a=b", "a&user", "user ", "user\0",
  ]) // biome-ignore format: a table
    assert.throws(() => sent([], { body: { [name]: "x" } }, form), ArgumentProblem, JSON.stringify(name));
});

test("a JSON body has the declared types and is sent as it was written", () => {
  const schema = { type: "object", properties: { id: { type: "string" }, n: { type: "integer" } } };
  const json = { requestBody: { content: { "application/json": { schema } } } };
  const body = { id: "1", n: 2, other: ["x"] };
  assert.equal(sent([], { body }, json).body?.toString(), JSON.stringify(body));
  for (const wrong of ["id", null, [body], { id: ["1"] }, { id: 1 }, { n: "2" }, { n: 0.5 }])
    assert.throws(() => sent([], { body: wrong }, json), ArgumentProblem, JSON.stringify(wrong));
});

test("a multipart form keeps line breaks, and JSON has its content type", () => {
  const form = formOf("multipart/form-data", { type: "object", properties: PROPERTIES, additionalProperties: false });
  const { body } = sent([], { body: { user: "a\nb\r\nc", extra: { n: 1 } } }, form);
  const text = body?.toString() ?? "";
  assert.match(text, /name="user"\r\n\r\na\nb\r\nc\r\n--/);
  assert.match(text, /name="extra"\r\ncontent-type: application\/json\r\n\r\n\{"n":1\}\r\n--/);
  assert.throws(() => sent([], { body: { other: "x" } }, form), /is not known/);
});

test("a tool offers the values that its parameters can carry", () => {
  const { text } = operationOf({
    parameters: [
      PATH,
      query("none", {}),
      query("optional", { anyOf: [{ type: "string", format: "date" }, { type: "null" }], title: "T" }),
      query("either", { type: ["integer", "string"] }),
      query("many", { oneOf: [{ type: "string" }, { type: "array", items: { type: "string" } }] }),
    ],
  });
  const { none, optional, either, many } = JSON.parse(text).inputSchema.properties;
  assert.deepEqual(none, { type: "string" });
  assert.deepEqual(optional, { title: "T", type: "string", format: "date" });
  assert.deepEqual(either, { type: "string" });
  assert.deepEqual(many, { type: "array", items: { type: "string" } });
});

test("an operation whose parameters a server could confuse is left out", () => {
  const header = (name: string): object => ({ name, in: "header", schema: { type: "string" } });
  for (const parameters of [
    [USER, query("USER", {})],
    [header("X-User"), header("x_user")],
    [{ ...PATH, style: "form" }],
  ]) {
    const root = {
      paths: { "/a/{p}": { get: { operationId: "a", parameters: [PATH, ...parameters], responses: {} } } },
    };
    const { byName, left } = finish(convertOperations({ root } as unknown as OpenApiDocument, { reserved: [] }));
    assert.deepEqual([byName.size, left.length], [0, 1]);
  }
});
