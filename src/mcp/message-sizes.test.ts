/** Messages that are large, and too large, in both directions. */
import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { type TestContext, test } from "node:test";
import { eventually } from "../../test/support/eventually.ts";
import { fakeClock } from "../../test/support/fake-clock.ts";
import { LEGACY_HEADERS, rawClient } from "../../test/support/mcp/client.ts";
import { stdioFixture } from "../../test/support/mcp/fixture.ts";
import { modernRequest } from "../../test/support/mcp/modern-client.ts";
import { startScripted } from "../../test/support/mcp/scripted-server.ts";
import { serveMcp } from "../../test/support/mcp/serve-backend.ts";

const MIB = 1024 * 1024;
const odd = { name: "odd", stdio: stdioFixture("odd-server") };

/** A server that answers every call with a text of as many bytes as it is asked for. */
async function remote(t: TestContext, isEvents: boolean): Promise<object> {
  const server = createServer(async (req, res) => {
    let text = "";
    for await (const chunk of req) text += String(chunk);
    if (req.method !== "POST") return void res.writeHead(405).end();
    const { id, method, params } = JSON.parse(text);
    if (id === undefined) return void res.writeHead(202).end();
    const result =
      method === "initialize"
        ? {
            protocolVersion: params.protocolVersion,
            capabilities: { tools: {} },
            serverInfo: { name: "r", version: "1" },
          }
        : { content: [{ type: "text", text: "x".repeat(params.arguments.bytes) }] };
    const answer = JSON.stringify({ jsonrpc: "2.0", id, result });
    res.writeHead(200, { "content-type": isEvents ? "text/event-stream" : "application/json" });
    res.end(isEvents ? `data: ${answer}\n\n` : answer);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return { name: "odd", mcp: { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp` } };
}

const DESCRIPTION = {
  openapi: "3.1.0",
  info: {},
  paths: {
    "/big": {
      get: {
        operationId: "big",
        parameters: [{ name: "bytes", in: "query", schema: { type: "integer" } }],
        responses: {},
      },
    },
  },
};

/** An HTTP API that sends a text of as many bytes as it is asked for. Negative numbers are sent but never completed. */
async function api(t: TestContext, type: string, send = (text: string): unknown => text): Promise<object> {
  const server = createServer(async (req, res) => {
    const bytes = Number(/bytes=(.*)/.exec(req.url ?? "")?.[1] ?? 0);
    if (bytes < 0) res.writeHead(200, { "content-type": type }).write("x".repeat(-bytes));
    else res.writeHead(200, { "content-type": type }).end(await send("x".repeat(bytes)));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return { name: "odd", openapi: { file: "api.json", server: url } };
}

const files = { "api.json": JSON.stringify(DESCRIPTION) };

const KINDS: Record<string, (t: TestContext) => Promise<object>> = {
  stdio: () => Promise.resolve(odd),
  "HTTP with JSON": (t) => remote(t, false),
  "HTTP with events": (t) => remote(t, true),
  OpenAPI: (t) => api(t, "text/plain"),
};

for (const [kind, target] of Object.entries(KINDS)) {
  test(`a result of 20 MiB over ${kind} passes`, async (t) => {
    const served = await serveMcp({ targets: [await target(t)] }, { files });
    t.after(() => served.close());
    const client = rawClient(served.url);
    await client.initialize();
    const { result } = await client.call("big", { bytes: 20 * MIB });
    assert.equal(result.content[0].text.length, 20 * MIB);
  });

  test(`beyond maxMessageBytes a result over ${kind} fails, and says why`, async (t) => {
    const served = await serveMcp({ targets: [await target(t)], maxMessageBytes: MIB }, { files });
    t.after(() => served.close());
    const client = rawClient(served.url);
    await client.initialize();
    const { error } = await client.call("big", { bytes: 2 * MIB });
    assert.match(error.message, /^target "odd" .*(?:larger|longer) than 1048576 bytes/);
    assert.equal((await client.call("big", { bytes: 1000 })).result.content[0].text.length, 1000);
  });
}

for (const status of [200, 404, 500])
  for (const type of ["application/json", "text/event-stream"])
    test(`a response with status ${status} and ${type} of 64 MiB is read up to maxMessageBytes`, async (t) => {
      let sentBytes = 0;
      let isClosed = false;
      const server = createServer((_req, res) => {
        res.writeHead(status, { "content-type": type });
        const chunk = "x".repeat(64 * 1024);
        const send = (): void => {
          while (!res.destroyed && sentBytes < 64 * MIB) {
            sentBytes += chunk.length;
            if (!res.write(chunk)) return;
          }
          res.end();
        };
        res.on("drain", send);
        res.on("close", () => {
          isClosed = true;
        });
        send();
      });
      await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
      t.after(() => {
        server.closeAllConnections();
        server.close();
      });
      const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
      const served = await serveMcp(
        { targets: [{ name: "odd", openapi: { file: "api.json", server: url } }], maxMessageBytes: MIB },
        { files },
      );
      t.after(() => served.close());
      const client = rawClient(served.url);
      await client.initialize();
      const { error } = await client.call("big", { bytes: 1 });
      assert.match(error.message, /larger than 1048576 bytes/);
      await eventually("the gateway closes the connection", () => isClosed);
      assert.ok(sentBytes < 64 * MIB);
    });

/** The longest string or buffer that a method reads or makes while `action` runs. */
async function longestRead(action: () => Promise<unknown>): Promise<number> {
  let longest = 0;
  const originals: [object, string, unknown][] = [];
  const watch = (owner: object, name: string, size: (self: unknown, result: unknown) => number): void => {
    const original = (owner as Record<string, (...args: unknown[]) => unknown>)[name];
    if (typeof original !== "function") return;
    originals.push([owner, name, original]);
    (owner as Record<string, unknown>)[name] = function (this: unknown, ...args: unknown[]): unknown {
      const result = original.apply(this, args);
      longest = Math.max(longest, size(this, result));
      return result;
    };
  };
  const ofString = (self: unknown): number => (typeof self === "string" ? self.length : 0);
  for (const name of ["charCodeAt", "slice", "indexOf", "includes", "startsWith", "search", "replace"])
    watch(String.prototype, name, ofString);
  watch(Buffer, "concat", (_, result) => (result as Buffer).length);
  watch(Buffer, "from", (_, result) => (result as Buffer).length);
  try {
    await action();
  } finally {
    for (const [owner, name, original] of originals) (owner as Record<string, unknown>)[name] = original;
  }
  return longest;
}

for (const kind of ["legacy", "modern", "slow legacy"] as const)
  test(`a large JSON response of an API is not joined with its text for a ${kind} client`, async (t) => {
    const bytes = 6 * MIB;
    const item = '{"a":1,"isError":true},';
    let release = (): void => undefined;
    const held = new Promise<void>((resolve) => {
      release = resolve;
    });
    let isCalled = false;
    const target = await api(t, "application/json", async (text) => {
      isCalled = true;
      await held;
      return `[${item.repeat(text.length / item.length)}0]`;
    });
    const clock = fakeClock();
    const served = await serveMcp({ targets: [target] }, { files, clock });
    t.after(() => served.close());
    const session = (await rawClient(served.url).initialize()).headers.get("mcp-session-id") ?? "";
    const params = { name: "big", arguments: { bytes } };
    const request =
      kind === "modern"
        ? modernRequest("tools/call", params)
        : {
            headers: { ...LEGACY_HEADERS, "mcp-session-id": session },
            body: JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/call", params }),
          };
    const longest = await longestRead(async () => {
      const pending = fetch(served.url, { method: "POST", ...request });
      await eventually("the API is called", () => isCalled);
      // The head of the event stream is sent before the result.
      if (kind === "slow legacy") {
        await clock.advance(1_000);
        await pending;
      }
      release();
      const response = await pending;
      assert.equal(response.status, 200);
      let received = 0;
      for await (const chunk of response.body ?? []) received += (chunk as Uint8Array).length;
      assert.ok(received > 2 * bytes);
    });
    assert.ok(longest > 0.9 * bytes && longest < 1.1 * bytes, `${longest} characters of one string were read`);
  });

const padding = "x".repeat(5 * MIB);
for (const [where, body, id] of [
  ["first", `{"jsonrpc":"2.0","id":"a\\"b","method":"tools/call","params":{"x":"${padding}"}}`, 'a"b'],
  [
    "last, as the official SDK writes it",
    `{"method":"tools/call","params":{"x":"${padding}"},"jsonrpc":"2.0","id":7}`,
    7,
  ],
  ["before the version", `{"method":"tools/call","params":{"x":"${padding}"},"id":7,"jsonrpc":"2.0"}`, 7],
  ["only deeper", `{"jsonrpc":"2.0","method":"tools/call","params":{"x":"${padding}","id":7}}`, null],
  ["inside a string", `{"jsonrpc":"2.0","method":"tools/call","params":"${padding},\\"id\\":7}"}`, null],
  ["nowhere", padding, null],
  ["in a batch", `[{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"${padding}"}}]`, null],
] as const) {
  test(`a request that is too large is refused in JSON-RPC; its id stands ${where}`, async (t) => {
    const served = await serveMcp({ targets: [odd] });
    t.after(() => served.close());
    const client = rawClient(served.url);
    await client.initialize();
    const answer = await client.post(body);
    assert.equal(answer.status, 413);
    assert.equal(answer.headers.get("x-gateway-error"), "body_too_large");
    assert.equal(answer.message.error.code, -32600);
    assert.match(answer.message.error.message, /larger than 4194304 bytes/);
    assert.equal(answer.message.id, id);
  });
}

test("maxRequestBytes widens the limit", async (t) => {
  const served = await serveMcp({ targets: [odd], maxRequestBytes: 8 * MIB });
  t.after(() => served.close());
  const client = rawClient(served.url);
  await client.initialize();
  const { result } = await client.call("echo", { message: padding });
  assert.equal(result.content[0].text.length, padding.length);
});

for (const transport of ["stdio", "http"] as const) {
  test(`a server that stalls in a large message over ${transport} loses its room to one that waits`, async (t) => {
    const unfinished = `{"jsonrpc":"2.0","id":$ID,"result":{"content":[{"type":"text","text":"`;
    const isHttp = transport === "http";
    const scripted = await startScripted(transport, {
      name: "stalled",
      steps: {
        "tools/call": [
          [
            { status: 200, headers: { "content-type": "text/event-stream" } },
            { raw: isHttp ? `data: ${unfinished}` : unfinished },
            { raw: "x".repeat(1_000), repeat: 400 },
            { stay: true },
          ],
        ],
      },
    });
    t.after(() => scripted.close());
    const clock = fakeClock();
    const served = await serveMcp(
      { targets: [scripted.target, { ...(await remote(t, false)), name: "fair" }] },
      { clock, messageBytes: MIB },
    );
    t.after(() => served.close());
    const { messages } = served.memory;
    const client = rawClient(served.url);
    await client.initialize();
    const stalled = client.call("stalled_echo", {});
    await eventually("the first message holds memory", () => messages.usedBytes > MIB);
    const fair = client.call("fair_big", { bytes: 5 * MIB });
    await eventually("the second message waits for memory", () => messages.isAnyWaiting);
    const heldBytes = messages.usedBytes;
    await clock.advance(9_000);
    assert.equal(messages.usedBytes, heldBytes);
    await clock.advance(2_000);
    const { error } = await stalled;
    assert.match(error.message, /^target "stalled" .*took too long .*while other servers waited for memory/);
    assert.equal((await fair).result.content[0].text.length, 5 * MIB);
    await eventually("all memory is released", () => messages.usedBytes === 0);
  });
}

for (const type of ["text/plain", "application/json", "text/event-stream", "image/png", "application/pdf"]) {
  test(`an unfinished ${type} response of an API is charged and rejected like a message`, async (t) => {
    const clock = fakeClock();
    const served = await serveMcp(
      { targets: [await api(t, type), { ...(await remote(t, false)), name: "fair" }] },
      { clock, messageBytes: MIB, files },
    );
    t.after(() => served.close());
    const { messages } = served.memory;
    const client = rawClient(served.url);
    await client.initialize();
    const stalled = [1, 2, 3].map(() => client.call("odd_big", { bytes: -MIB }));
    await eventually("the responses hold memory", () => messages.usedBytes > 3 * MIB);
    const fair = client.call("fair_big", { bytes: 5 * MIB });
    await eventually("the message waits for memory", () => messages.isAnyWaiting);
    await clock.advance(30_000);
    for (const one of stalled)
      assert.match((await one).error.message, /^target "odd" .*while (?:other servers|too many)/);
    assert.equal((await fair).result.content[0].text.length, 5 * MIB);
    await eventually("all memory is released", () => messages.usedBytes === 0);
  });
}
