import assert from "node:assert/strict";
import { test } from "node:test";
import { HeaderList } from "../../http/headers.ts";
import { asClientRequest, asServerMessage } from "../protocol/json-rpc.ts";
import { mirrorHeader, readMirrorHeader } from "../protocol/mirror-headers.ts";
import { ParamHeaders } from "./param-headers.ts";

const values = [
  "plain",
  "with space inside",
  " padded ",
  "Hello, 世界",
  "line\nbreak",
  "=?base64?literal?=",
  "",
  "a\tb",
];
for (const value of values) {
  test(`the value ${JSON.stringify(value)} survives a header [V8]`, () => {
    const header = mirrorHeader(value);
    assert.match(header, /^[\x20-\x7e\t]*$/);
    assert.equal(readMirrorHeader(header), value);
  });
}

for (const header of ["=?base64?SGVsbG8?=", "=?base64?SGVs!!!bG8=?=", "caf\u00e9"]) {
  test(`the header ${header} is not well formed`, () => {
    assert.equal(readMirrorHeader(header), undefined);
  });
}

for (const header of ["SGVsbG8=", "=?base64?SGVsbG8=", "SGVsbG8=?="]) {
  test(`the header ${header} is taken literally`, () => {
    assert.equal(readMirrorHeader(header), header);
  });
}

const params = new ParamHeaders();
params.learn(
  asServerMessage(
    `{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"sql","inputSchema":{"type":"object","properties":{
      "region":{"type":"string","x-mcp-header":"Region"},"limit":{"type":"integer","x-mcp-header":"Limit"},
      "deep":{"type":"object","properties":{"flag":{"type":"boolean","x-mcp-header":"Flag"}}},"query":{"type":"string"}}}}]}}`.replace(
      /\n\s*/g,
      "",
    ),
  ),
);

const calls = [
  {
    name: "matching headers",
    args: { region: "eu", limit: 42 },
    headers: { "mcp-param-region": "eu", "mcp-param-limit": "42.0" },
    ok: true,
  },
  {
    name: "an encoded header",
    args: { region: "zürich" },
    headers: { "mcp-param-region": mirrorHeader("zürich") },
    ok: true,
  },
  { name: "a nested parameter", args: { deep: { flag: true } }, headers: { "mcp-param-flag": "true" }, ok: true },
  { name: "neither value nor header", args: { query: "x" }, headers: {}, ok: true },
  { name: "a null value and no header", args: { region: null }, headers: {}, ok: true },
  { name: "a missing header", args: { region: "eu" }, headers: {}, ok: false },
  { name: "another value", args: { region: "eu" }, headers: { "mcp-param-region": "us" }, ok: false },
  { name: "a header without a value", args: {}, headers: { "mcp-param-region": "us" }, ok: false },
  {
    name: "a header that is not well formed",
    args: { region: "Hello" },
    headers: { "mcp-param-region": "=?base64?SGVsbG8?=" },
    ok: false,
  },
];
for (const { name, args, headers, ok } of calls) {
  test(`a call with ${name} is ${ok ? "served" : "refused"}`, () => {
    const request = asClientRequest("tools/call", JSON.stringify({ name: "sql", arguments: args }));
    const problem = params.problem(request, HeaderList.of(headers as Record<string, string>));
    assert.equal(problem?.code, ok ? undefined : -32020);
  });
}

test("the gateway writes the headers where it is the client", () => {
  const request = asClientRequest(
    "tools/call",
    JSON.stringify({ name: "sql", arguments: { region: "zürich", limit: 3 } }),
  );
  const added = params.added(request, undefined);
  assert.equal(readMirrorHeader(added?.get("mcp-param-region") ?? ""), "zürich");
  assert.equal(added?.get("mcp-param-limit"), "3");
  assert.equal(params.added(asClientRequest("tools/call", '{"name":"other"}'), undefined), undefined);
});
