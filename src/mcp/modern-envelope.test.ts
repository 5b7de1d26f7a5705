/** What a request of the modern era must carry: the envelope in its body, the mirror of it in its headers. */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { readAnswer } from "../../test/support/mcp/client.ts";
import { stdioFixture } from "../../test/support/mcp/fixture.ts";
import { modernPost, modernRequest } from "../../test/support/mcp/modern-client.ts";
import { type ServedBackend, serveMcp } from "../../test/support/mcp/serve-backend.ts";

let served: ServedBackend;
before(async () => {
  served = await serveMcp({ targets: [{ name: "odd", stdio: stdioFixture("odd-server") }] });
});
after(() => served.close());

const refused = [
  {
    name: "no envelope",
    method: "tools/list",
    meta: {
      "io.modelcontextprotocol/protocolVersion": undefined,
      "io.modelcontextprotocol/clientCapabilities": undefined,
    },
    status: 400,
    code: -32602,
  },
  {
    name: "no capabilities",
    method: "tools/list",
    meta: { "io.modelcontextprotocol/clientCapabilities": undefined },
    status: 400,
    code: -32602,
  },
  {
    name: "a header that names another version",
    method: "tools/list",
    headers: { "mcp-protocol-version": "2025-11-25" },
    status: 400,
    code: -32020,
  },
  {
    name: "an unknown version",
    method: "tools/list",
    meta: { "io.modelcontextprotocol/protocolVersion": "2099-01-01" },
    headers: { "mcp-protocol-version": "2099-01-01" },
    status: 400,
    code: -32022,
  },
  {
    name: "a header that names another method",
    method: "tools/list",
    headers: { "mcp-method": "tools/call" },
    status: 400,
    code: -32020,
  },
  {
    name: "a header in another case",
    method: "tools/list",
    headers: { "mcp-method": "Tools/List" },
    status: 400,
    code: -32020,
  },
  {
    name: "a header that names another tool",
    method: "tools/call",
    params: { name: "crash" },
    headers: { "mcp-name": "echo" },
    status: 400,
    code: -32020,
  },
  {
    name: "a name that is not well formed",
    method: "tools/call",
    params: { name: "echo" },
    headers: { "mcp-name": "=?base64?!!?=" },
    status: 400,
    code: -32020,
  },
  { name: "a method that the era has no more", method: "ping", status: 404, code: -32601 },
  { name: "a method that nobody knows", method: "no/such", status: 404, code: -32601 },
  {
    name: "a resource that does not exist",
    method: "tools/call",
    params: { name: "no-such-tool" },
    status: 200,
    code: -32602,
  },
];
for (const { name, method, params, meta, headers, status, code } of refused) {
  test(`a request with ${name} is answered with ${status} and ${code}`, async () => {
    const answer = await modernPost(served.url, method, params ?? {}, {
      id: 77,
      ...(meta ? { meta } : {}),
      ...(headers ? { headers } : {}),
    });
    assert.equal(answer.status, status);
    assert.equal(answer.message.error.code, code);
    assert.equal(answer.message.id, 77);
  });
}

for (const header of ["mcp-method", "mcp-protocol-version"]) {
  test(`a request without the header ${header} is refused`, async () => {
    const { body, headers } = modernRequest("tools/list");
    delete headers[header];
    const answer = await readAnswer(await fetch(served.url, { method: "POST", headers, body }));
    assert.equal(answer.status, 400);
    assert.equal(answer.message.error.code, -32020);
  });
}

test("a name that a header cannot carry is compared by its decoded value", async () => {
  const { message } = await modernPost(
    served.url,
    "tools/call",
    { name: "ümlaut" },
    { headers: { "mcp-name": "=?base64?w7xtbGF1dA==?=" } },
  );
  assert.equal(message.error.message, "Unknown tool: ümlaut");
});

test("a batch, a response, and a notification of a modern client", async () => {
  const { body, headers } = modernRequest("tools/list");
  const post = async (text: string) => readAnswer(await fetch(served.url, { method: "POST", headers, body: text }));
  assert.equal((await post(`[${body}]`)).message.error.code, -32600);
  assert.equal((await post('{"jsonrpc":"2.0","id":1,"result":{}}')).status, 400);
  assert.equal((await post('{"jsonrpc":"2.0","method":"notifications/x"}')).status, 202);
});
