/**
 * Bodies through the gateway: streamed both ways, never collected, never cut short in silence.
 */
import assert from "node:assert/strict";
import { request as httpRequest, type IncomingMessage } from "node:http";
import { test } from "node:test";
import { eventually } from "../support/eventually.ts";
import { openRawClient, rawRequest, requestText } from "../support/raw-client.ts";
import { backendFor, behindGateway, gatewayFor } from "../support/scenario.ts";
import { requestsUnderWay } from "../support/under-way.ts";

test("GET, HEAD, POST, PUT, PATCH, DELETE and OPTIONS go through with their bodies", async (t) => {
  const { gateway, backend } = await behindGateway(t);
  for (const method of ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]) {
    const body = method === "GET" || method === "OPTIONS" ? undefined : `body of ${method}`;
    const response = await fetch(`${gateway.url()}/x?a=1&b=%20`, { method, ...(body ? { body } : {}) });
    assert.equal(response.status, 200, method);
    await response.text();
    const seen = backend.received.at(-1);
    assert.deepEqual([seen?.method, seen?.url, seen?.body], [method, "/x?a=1&b=%20", body ?? ""]);
  }
  const head = await fetch(`${gateway.url()}/h`, { method: "HEAD" });
  assert.equal(head.status, 200);
  assert.equal(await head.text(), "");
  assert.equal(backend.received.at(-1)?.method, "HEAD");
});

test("a POST without a body, an empty body and a body on GET keep their framing", async (t) => {
  const { gateway, backend } = await behindGateway(t);
  const cases: [text: string, length: string | undefined, body: string][] = [
    [requestText("POST / HTTP/1.1"), "0", ""],
    [requestText("POST / HTTP/1.1", ["Content-Length: 0"]), "0", ""],
    [requestText("POST / HTTP/1.1", ["Transfer-Encoding: chunked"], "0\r\n\r\n"), undefined, ""],
    [requestText("GET / HTTP/1.1", ["Content-Length: 3"], "abc"), "3", "abc"],
    [requestText("GET / HTTP/1.1", ["Transfer-Encoding: chunked"], "3\r\nabc\r\n0\r\n\r\n"), undefined, "abc"],
    [requestText("DELETE / HTTP/1.1", ["Content-Length: 3"], "abc"), "3", "abc"],
    [requestText("GET / HTTP/1.1"), undefined, ""],
  ];
  for (const [text, length, body] of cases) {
    assert.equal((await rawRequest(gateway.port(), text)).status, 200, text);
    const seen = backend.received.at(-1);
    assert.equal(seen?.body, body);
    assert.equal(seen?.headers["content-length"], length, text);
  }
});

test("HEAD keeps the length that the body would have, 204 and 304 have none", async (t) => {
  const { gateway } = await behindGateway(t, (req, res) => {
    if (req.url === "/head") res.writeHead(200, { "content-length": "12345" });
    else if (req.url === "/304") res.writeHead(304, { etag: '"x"' });
    else res.writeHead(204);
    res.end();
  });
  const head = await fetch(`${gateway.url()}/head`, { method: "HEAD" });
  assert.equal(head.headers.get("content-length"), "12345");
  const nothing = await rawRequest(gateway.port(), requestText("GET /204 HTTP/1.1"));
  assert.doesNotMatch(nothing.text, /content-length|transfer-encoding/i);
  const unchanged = await rawRequest(gateway.port(), requestText("GET /304 HTTP/1.1"));
  assert.equal(unchanged.status, 304);
  assert.doesNotMatch(unchanged.text, /transfer-encoding/i);
});

test("each event of a stream arrives when it is sent, and the head before the first", async (t) => {
  let send: ((text: string) => void) | undefined;
  let end: (() => void) | undefined;
  const { gateway } = await behindGateway(t, (_req, res) => {
    res.writeHead(200, { "content-type": "text/event-stream" });
    res.flushHeaders();
    send = (text) => void res.write(text);
    end = () => void res.end();
  });
  const response = await fetch(`${gateway.url()}/events`);
  assert.equal(response.headers.get("content-type"), "text/event-stream");
  const reader = (response.body as ReadableStream<Uint8Array>).getReader();
  for (let i = 0; i < 5; i++) {
    send?.(`data: ${i}\n\n`);
    assert.equal(Buffer.from((await reader.read()).value ?? []).toString(), `data: ${i}\n\n`);
  }
  end?.();
  assert.equal((await reader.read()).done, true);
});

test("a client that leaves ends the backend's request, before and after the head", async (t) => {
  let closed = 0;
  const started: (() => void)[] = [];
  const { gateway } = await behindGateway(t, (req, res) => {
    res.on("close", () => {
      closed += 1;
    });
    if (req.url === "/late") res.write("some");
    started.shift()?.();
  });
  for (const path of ["/early", "/late"]) {
    const before = closed;
    const arrived = new Promise<void>((resolve) => started.push(resolve));
    const client = openRawClient(gateway.port());
    client.write(`GET ${path} HTTP/1.1\r\nHost: a\r\n\r\n`);
    await arrived;
    if (path === "/late") await client.until("some");
    client.close();
    await eventually(`the backend's request to ${path} is closed`, () => closed > before);
  }
});

test("a client that leaves in the middle of its body is no defect of ours", async (t) => {
  const { gateway, backend } = await behindGateway(t);
  for (const length of [1000, 1_000_000]) {
    const client = openRawClient(gateway.port());
    client.write(`POST /cut HTTP/1.1\r\nHost: a\r\nContent-Length: ${length}\r\n\r\nonly this`);
    await eventually("the request is under way", async () => (await requestsUnderWay(gateway)) === 1);
    client.reset();
    await gateway.logged("end=aborted");
    gateway.log().length = 0;
  }
  assert.equal(backend.received.length, 0);
  assert.equal((await fetch(gateway.url())).status, 200);
  assert.ok(!gateway.log().some((line) => line.includes("defect")), gateway.log().join("\n"));
});

for (const [name, head, body, cut] of [
  ["a chunked answer", "Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n", false],
  ["an answer of known length", "Content-Length: 100\r\n", "hello", false],
  ["an answer that is cut by a reset", "Content-Length: 100\r\n", "hello", true],
] as const) {
  test(`${name} that the backend breaks off is broken off to the client too [R4]`, async (t) => {
    const backend = await backendFor(t);
    backend.server.removeAllListeners("request");
    let reset: () => void = () => undefined;
    backend.server.on("request", (req) => {
      req.socket.write(`HTTP/1.1 200 OK\r\n${head}\r\n${body}`, () => {
        if (cut) reset = () => req.socket.resetAndDestroy();
        else req.socket.end();
      });
    });
    const gateway = await gatewayFor(
      t,
      `gateways: { default: { port: 0 } }\nroutes: [{ backends: [{ host: "${backend.host}" }] }]`,
    );
    const response = await fetch(gateway.url());
    assert.equal(response.status, 200);
    reset();
    await assert.rejects(response.text(), "the client must notice");
    const line = await gateway.logged("end=failed");
    assert.match(line, /error=backend_response_invalid source=upstream/);
    // An HTTP/1.0 client has no length to compare: only a reset tells it.
    const old = openRawClient(gateway.port());
    const failed = new Promise<NodeJS.ErrnoException>((resolve) => old.socket.once("error", resolve));
    old.write("GET / HTTP/1.0\r\nHost: a\r\n\r\n");
    if (!head.startsWith("Content-Length")) assert.equal((await failed).code, "ECONNRESET");
    else old.close();
  });
}

test("trailers of an answer reach the client; an answer whose trailers would frame it is none", async (t) => {
  const backend = await backendFor(t, (req, res) => {
    res.writeHead(200, { trailer: "x-checksum" });
    res.write("body");
    res.addTrailers({ "x-checksum": "abc", ...(req.url === "/framed" ? { "content-length": "3" } : {}) });
    res.end();
  });
  const gateway = await gatewayFor(
    t,
    `gateways: { default: { port: 0 } }\nroutes: [{ backends: [{ host: "${backend.host}" }] }]`,
  );
  const response = await send(gateway.port(), "GET", "/");
  assert.equal(await textOf(response), "body");
  assert.deepEqual({ ...response.trailers }, { "x-checksum": "abc" });
  await assert.rejects(async () => textOf(await send(gateway.port(), "GET", "/framed")));
});

test("trailers of a request do not reach the backend as headers", async (t) => {
  const { gateway, backend } = await behindGateway(t);
  const text = requestText(
    "POST / HTTP/1.1",
    ["Transfer-Encoding: chunked", "Trailer: x-role"],
    "2\r\nab\r\n0\r\nx-role: admin\r\n\r\n",
  );
  assert.equal((await rawRequest(gateway.port(), text)).status, 200);
  assert.equal(backend.received[0]?.headers["x-role"], undefined);
});

test("a big upload to a backend that refuses it early or cannot be reached gets a readable answer", async (t) => {
  const backend = await backendFor(t, (_req, res) => {
    res.writeHead(413);
    res.end("too much");
  });
  const gateway = await gatewayFor(
    t,
    `gateways: { default: { port: 0 } }
routes:
  - { matches: [{ path: { pathPrefix: /gone } }], backends: [{ host: "127.0.0.1:1" }] }
  - { backends: [{ host: "${backend.host}" }] }`,
  );
  for (const [path, status] of [
    ["/early", 413],
    ["/gone", 502],
  ] as const) {
    const client = openRawClient(gateway.port());
    // Otherwise the connection would be kept if the backend refuses the upload only after all of it was sent.
    client.write(`POST ${path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 3000000\r\n\r\n`);
    client.write(Buffer.alloc(3_000_000));
    const answer = await client.ended();
    assert.deepEqual(answer.statuses, [status], answer.text);
  }
});

test("a body that is longer than announced or badly framed never becomes a second request", async (t) => {
  const { gateway, backend } = await behindGateway(t);
  await rawRequest(
    gateway.port(),
    "POST /one HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhelloGET /two HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
  );
  assert.deepEqual(
    backend.received.map(({ url, body }) => [url, body]),
    [
      ["/one", "hello"],
      ["/two", ""],
    ],
  );
});

function send(port: number, method: string, path: string): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    httpRequest({ port, method, path }, resolve).once("error", reject).end();
  });
}

async function textOf(response: IncomingMessage): Promise<string> {
  let text = "";
  for await (const part of response) text += String(part);
  return text;
}
