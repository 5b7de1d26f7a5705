/**
 * A 101 of a server that does not accept the requested upgrade, or that nothing requested, is an error of the call, and
 * the connection is closed: for every kind of backend, and for the requests of the gateway itself.
 */
import assert from "node:assert/strict";
import type { Socket } from "node:net";
import { createServer } from "node:net";
import { type TestContext, test } from "node:test";
import { eventually } from "../support/eventually.ts";
import { rawBackend } from "../support/http1/raw-backend.ts";
import { END_HEADERS, FRAME, field, frame } from "../support/http2/raw-frames.ts";
import { openRawClient } from "../support/raw-client.ts";
import { backendFor, gatewayFor } from "../support/scenario.ts";

/** The example of RFC 6455 section 1.3. */
const HANDSHAKE = "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
const ACCEPT = "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n";
const SWITCHED = `Connection: Upgrade\r\nUpgrade: websocket\r\n${ACCEPT}`;

const WRONG: Readonly<Record<string, string>> = {
  "no header": "",
  "another protocol": `Connection: Upgrade\r\nUpgrade: h2c\r\n${ACCEPT}`,
  "no protocol": `Connection: Upgrade\r\n${ACCEPT}`,
  "two protocols": `Connection: Upgrade\r\nUpgrade: websocket, h2c\r\n${ACCEPT}`,
  "the protocol twice": `Connection: Upgrade\r\nUpgrade: websocket\r\nUpgrade: websocket\r\n${ACCEPT}`,
  "no connection header": `Upgrade: websocket\r\n${ACCEPT}`,
  "connection: keep-alive": `Connection: keep-alive\r\nUpgrade: websocket\r\n${ACCEPT}`,
  "connection: close": `Connection: close\r\nUpgrade: websocket\r\n${ACCEPT}`,
  "a wrong accept value":
    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: AAAAAAAAAAAAAAAAAAAAAAAAAAA=\r\n",
  "no accept value": "Connection: Upgrade\r\nUpgrade: websocket\r\n",
  "two accept values": `Connection: Upgrade\r\nUpgrade: websocket\r\n${ACCEPT}${ACCEPT}`,
  "a body": `${SWITCHED}Content-Length: 5\r\n`,
};

interface Kind {
  readonly backend: (host: string) => object;
  readonly path: string;
  readonly gateway?: object;
}

const BACKENDS: Readonly<Record<string, Kind>> = {
  host: { backend: (host) => ({ host }), path: "/chat" },
  service: { backend: (host) => ({ service: { name: "web", endpoints: [host] } }), path: "/chat" },
  dynamic: {
    backend: (host) => ({ dynamic: { ports: [Number(host.split(":")[1])], allow: ["127.0.0.1"] } }),
    path: "/chat",
    gateway: { forwardProxy: true },
  },
  ai: {
    backend: (host) => ({ ai: { provider: { openAI: {} }, auth: { key: "k" }, hostOverride: host } }),
    path: "/v1/realtime?model=gpt-realtime",
  },
};

async function switching(t: TestContext, lines: string) {
  let later = "";
  const backend = await rawBackend(t, (socket) => {
    socket.on("data", (chunk) => {
      later += chunk;
    });
    socket.write(`HTTP/1.1 101 Switching Protocols\r\n${lines}\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nsmug!`);
  });
  const closed = (): Promise<unknown> =>
    eventually(
      "the connections to the backend are closed",
      () => backend.connections.length > 0 && backend.connections.every((socket) => socket.destroyed),
    );
  return { host: backend.host, closed, received: () => later };
}

for (const [name, { backend, path, gateway: listener }] of Object.entries(BACKENDS)) {
  const start = (t: TestContext, host: string) =>
    gatewayFor(
      t,
      JSON.stringify({
        gateways: { default: { port: 0, address: "127.0.0.1", ...listener } },
        routes: [{ backends: [backend(host)] }],
      }),
    );
  const open = (port: number, host: string) => {
    const client = openRawClient(port);
    const target = listener === undefined ? path : `http://${host}${path}`;
    client.write(`GET ${target} HTTP/1.1\r\nHost: ${host}\r\nConnection: Upgrade\r\n${HANDSHAKE}\r\n`);
    return client;
  };

  test(`${name}: a 101 for the requested upgrade opens a tunnel`, async (t) => {
    const backend = await switching(t, SWITCHED);
    const client = open((await start(t, backend.host)).port(), backend.host);
    assert.match(await client.until("smug!"), /^HTTP\/1\.1 101 /);
    client.close();
    await backend.closed();
  });

  for (const [fault, lines] of Object.entries(WRONG))
    test(`${name}: a 101 with ${fault} is 502, and the server gets nothing more`, async (t) => {
      const backend = await switching(t, lines);
      const client = open((await start(t, backend.host)).port(), backend.host);
      const answer = await client.ended();
      assert.deepEqual([answer.statuses, answer.errors], [[502], ["backend_response_invalid"]]);
      assert.doesNotMatch(answer.text, /smug!/);
      await backend.closed();
      assert.equal(backend.received(), "");
    });
}

const json = (body: object): RequestInit => ({
  method: "POST",
  headers: { "content-type": "application/json", accept: "application/json, text/event-stream" },
  body: JSON.stringify(body),
});
const INITIALIZE = {
  jsonrpc: "2.0",
  id: 1,
  method: "initialize",
  params: { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "a", version: "1" } },
};
const CALL = { jsonrpc: "2.0", id: 1, method: "message/send", params: { message: { messageId: "m", parts: [] } } };
const TOKEN = `${["{}", "{}"].map((part) => Buffer.from(part).toString("base64url")).join(".")}.AA`;

/** The route for a server that switches protocols without a request to do so, a request, and the response. */
const CALLS: Readonly<
  Record<string, readonly [route: (host: string, good: string) => object, path: string, init: RequestInit, RegExp]>
> = {
  "a GET": [(host) => ({ backends: [{ host }] }), "/", {}, /^502 /],
  "a POST": [(host) => ({ backends: [{ host }] }), "/", { method: "POST", body: "x".repeat(50_000) }, /^502 /],
  "a GET to an endpoint": [
    (host) => ({ backends: [{ service: { name: "web", endpoints: [host] } }] }),
    "/",
    {},
    /^502 /,
  ],
  "a model call": [
    (host) => ({ backends: [{ ai: { provider: { openAI: {} }, auth: { key: "k" }, hostOverride: host } }] }),
    "/v1/chat/completions",
    json({ model: "m", messages: [{ role: "user", content: "hi" }] }),
    /^502 /,
  ],
  "an A2A call": [
    (host) => ({ backends: [{ a2a: { url: `http://${host}/a2a` } }] }),
    "/",
    json(CALL),
    /^(?:200|502) .*error/,
  ],
  "an MCP server": [
    (host) => ({ backends: [{ mcp: { targets: [{ name: "s", mcp: { url: `http://${host}/mcp` } }] } }] }),
    "/mcp",
    json(INITIALIZE),
    /^(?:200|502) .*error/,
  ],
  "an MCP server over SSE": [
    (host) => ({ backends: [{ mcp: { targets: [{ name: "s", sse: { url: `http://${host}/sse` } }] } }] }),
    "/mcp",
    json(INITIALIZE),
    /^(?:200|502) .*error/,
  ],
  "external authorization": [
    (host, good) => ({ policies: { extAuthz: { url: `http://${host}/auth` } }, backends: [{ host: good }] }),
    "/",
    {},
    /^(?:403|500|503) /,
  ],
  "a key set": [
    (host, good) => ({
      policies: { jwtAuth: { issuer: "https://issuer.test", audiences: ["a"], jwks: `http://${host}/jwks` } },
      backends: [{ host: good }],
    }),
    "/",
    { headers: { authorization: `Bearer ${TOKEN}` } },
    /^(?:401|503) /,
  ],
};

for (const [name, [route, path, init, expected]] of Object.entries(CALLS))
  test(`${name}: a 101 that nothing requested is an error of the call`, async (t) => {
    const good = await backendFor(t);
    const server = await switching(t, SWITCHED);
    const config = {
      gateways: { default: { port: 0, address: "127.0.0.1" } },
      routes: [{ matches: [{ path: { pathPrefix: "/" } }], ...route(server.host, good.host) }],
    };
    const gateway = await gatewayFor(t, JSON.stringify(config));
    const response = await fetch(`${gateway.url()}${path}`, init);
    const text = `${response.status} ${await response.text()}`;
    assert.match(text, expected);
    assert.doesNotMatch(text, /smug!/);
    await server.closed();
    assert.equal(good.received.length, 0);
  });

test("over HTTP/2, a server cannot switch protocols", async (t) => {
  const sockets: Socket[] = [];
  const server = createServer((socket) => {
    sockets.push(socket);
    socket.on("error", () => undefined);
    const head = Buffer.concat([field(":status", "101"), field("upgrade", "websocket")]);
    socket.write(frame(FRAME.settings, 0, 0));
    socket.once("data", () => setImmediate(() => socket.write(frame(FRAME.headers, END_HEADERS, 1, head))));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  const { port } = server.address() as { port: number };
  const gateway = await gatewayFor(
    t,
    `gateways: { default: { port: 0 } }\nroutes: [{ backends: [{ host: "127.0.0.1:${port}", protocol: h2c }] }]\n`,
  );
  const client = openRawClient(gateway.port());
  client.write(`GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\n${HANDSHAKE}\r\n`);
  const answer = await client.ended();
  assert.deepEqual([answer.statuses, answer.errors], [[502], ["backend_response_invalid"]]);
});
