import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { fakeClock } from "../../test/support/fake-clock.ts";
import { rawClient } from "../../test/support/mcp/client.ts";
import { serveMcp } from "../../test/support/mcp/serve-backend.ts";

/**
 * A server that closes a kept connection instead of reading the next message of a method, once, as an idle limit does.
 */
async function startClosing() {
  const seen: string[] = [];
  const closing = new Set<string>();
  const used = new WeakSet<object>();
  const server = createServer((request, response) => {
    let body = "";
    request.on("data", (chunk) => {
      body += String(chunk);
    });
    request.on("end", () => {
      const { id, method = "" } = body === "" ? {} : (JSON.parse(body) as { id?: unknown; method?: string });
      seen.push(method);
      if (used.has(request.socket) && closing.delete(method)) {
        request.socket.destroy();
        return;
      }
      used.add(request.socket);
      if (id === undefined) {
        response.writeHead(request.method === "POST" ? 202 : 405).end();
        return;
      }
      const info = {
        protocolVersion: "2025-11-25",
        capabilities: { tools: {} },
        serverInfo: { name: "s", version: "1" },
      };
      const result = method === "initialize" ? info : { content: [], tools: [] };
      response.writeHead(200, { "content-type": "application/json" });
      response.end(JSON.stringify({ jsonrpc: "2.0", id, result }));
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const close = (): void => {
    server.closeAllConnections();
    server.close();
  };
  const times = (method: string): number => seen.filter((one) => one === method).length;
  return { url: `http://127.0.0.1:${port}/mcp`, closing, times, close };
}

test("a closed pooled connection fails no session and no list; a tool call is not sent twice", async () => {
  const remote = await startClosing();
  const served = await serveMcp({ targets: [{ name: "remote", mcp: { url: remote.url } }] });
  try {
    await rawClient(served.url).initialize();
    remote.closing.add("initialize");
    const client = rawClient(served.url);
    await client.initialize();
    assert.notEqual(client.sessionId, undefined);
    assert.equal(remote.times("initialize"), 3);
    remote.closing.add("tools/list");
    assert.deepEqual((await client.request("tools/list")).result.tools, []);
    assert.equal(remote.times("tools/list"), 2);
    remote.closing.add("tools/call");
    assert.match((await client.call("any")).error.message, /could not be reached/);
    assert.equal(remote.times("tools/call"), 1);
  } finally {
    await served.close();
    remote.close();
  }
});

test("a server that does not answer the end of a session does not keep the connection", async () => {
  const clock = fakeClock();
  let closed = (): void => undefined;
  const connectionClosed = new Promise<void>((resolve) => {
    closed = resolve;
  });
  let asked = (): void => undefined;
  const endAsked = new Promise<void>((resolve) => {
    asked = resolve;
  });
  const server = createServer((request, response) => {
    if (request.method === "DELETE") {
      request.socket.once("close", closed);
      asked();
      return;
    }
    const isInitialize = request.headers["mcp-session-id"] === undefined;
    if (!isInitialize) {
      response.writeHead(request.method === "POST" ? 202 : 405).end();
      return;
    }
    const info = { protocolVersion: "2025-11-25", capabilities: {}, serverInfo: { name: "s", version: "1" } };
    response.writeHead(200, { "content-type": "application/json", "mcp-session-id": "one" });
    let body = "";
    request.on("data", (chunk) => {
      body += String(chunk);
    });
    request.on("end", () => {
      const { id } = JSON.parse(body) as { id: unknown };
      response.end(JSON.stringify({ jsonrpc: "2.0", id, result: info }));
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const served = await serveMcp(
    { targets: [{ name: "remote", mcp: { url: `http://127.0.0.1:${port}/mcp` } }] },
    { clock },
  );
  try {
    const client = rawClient(served.url);
    await client.initialize();
    const ended = client.delete();
    await endAsked;
    await clock.advance(1_000);
    await connectionClosed;
    await ended;
  } finally {
    await served.close();
    server.closeAllConnections();
    server.close();
  }
});
