/**
 * HTTP/2 on both sides: listeners by ALPN and with prior knowledge, backends by `protocol`, through the same pipeline.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { type ClientHttp2Stream, constants, type OutgoingHttpHeaders } from "node:http2";
import { createServer as createHttpsServer } from "node:https";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { peerInput } from "../../src/base/peer-inputs.ts";
import { startGateway } from "../support/gateway.ts";
import { ask, files, http2Backend, session, TLS, yamlOf } from "../support/http2/peers.ts";
import { openRawClient } from "../support/raw-client.ts";
import { backendFor, gatewayFor } from "../support/scenario.ts";
import { certificates } from "../support/tls/certificates.ts";

for (const [name, listener, scheme] of [
  ["by ALPN", TLS, "https"],
  ["with prior knowledge", "", "http"],
] as const) {
  test(`a client speaks HTTP/2 ${name}, many requests at once`, async (t) => {
    const backend = await backendFor(t, (req, res) => {
      let bytes = 0;
      req.on("data", (chunk: Buffer) => {
        bytes += chunk.length;
      });
      req.on("end", () => res.end(JSON.stringify({ url: req.url, bytes, headers: req.headers })));
    });
    const gateway = await gatewayFor(t, yamlOf(listener, `host: "${backend.host}"`), { files });
    const client = session(t, gateway.port(), scheme);
    const body = Buffer.alloc(300_000, "x");
    const answers = await Promise.all(
      Array.from({ length: 50 }, (_, i) =>
        ask(client, { ":method": "POST", ":path": `/n?i=${i}`, "x-a": ["1", "2"], cookie: ["a=1", "b=2"] }, body),
      ),
    );
    for (const [i, { status, body: text, headers }] of answers.entries()) {
      assert.equal(status, 200, text);
      const seen = JSON.parse(text) as { url: string; bytes: number; headers: Record<string, string> };
      assert.deepEqual([seen.url, seen.bytes], [`/n?i=${i}`, body.length]);
      assert.equal(seen.headers.host, `localhost:${gateway.port()}`);
      assert.equal(seen.headers["x-a"], "1, 2");
      assert.equal(seen.headers.cookie, "a=1; b=2");
      assert.equal(seen.headers["x-forwarded-proto"], scheme);
      assert.match(String(headers["x-request-id"]), /^[0-9a-f]+$/);
    }
    assert.equal(gateway.app.ports().size, 1);
  });
}

test("a listener with `http2: false` speaks HTTP/1.1 alone", async (t) => {
  const backend = await backendFor(t);
  const gateway = await gatewayFor(t, yamlOf("http2: false", `host: "${backend.host}"`));
  const raw = openRawClient(gateway.port());
  raw.write("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
  assert.equal((await raw.ended()).status, 400);
});

const refused: [name: string, headers: OutgoingHttpHeaders, status: number, text: RegExp][] = [
  ["a dot segment", { ":path": "/a/../b" }, 400, /dot segment/],
  ["two sessions", { ":path": "/", "mcp-session-id": ["a", "b"] }, 400, /more than one mcp-session-id/],
  ["a header like one of ours", { ":path": "/", x_api_key: "k" }, 400, /could be mistaken for/],
  ["another Host", { ":path": "/", ":authority": "a.test", host: "b.test" }, 400, /more than one host/],
  ["TRACE", { ":path": "/", ":method": "TRACE" }, 405, /not allowed/],
  ["CONNECT", { ":method": "CONNECT", ":authority": "a:1" }, 405, /not allowed/],
  ["an unknown expectation", { ":path": "/", expect: "a-miracle" }, 417, /expect/],
  [
    "too many lines",
    { ":path": "/", ...Object.fromEntries(Array.from({ length: 120 }, (_, i) => [`x-${i}`, "1"])) },
    431,
    /header/,
  ],
  ["too large a head", { ":path": "/", "x-large": "x".repeat(17_000) }, 431, /header/],
];
for (const [name, headers, status, text] of refused) {
  test(`an HTTP/2 request is refused for ${name}, and the connection goes on`, async (t) => {
    const backend = await backendFor(t);
    const gateway = await gatewayFor(t, yamlOf("", `host: "${backend.host}"`));
    const client = session(t, gateway.port());
    const answer = await ask(client, headers);
    assert.equal(answer.status, status);
    assert.match(answer.body, text);
    assert.equal((await ask(client, { ":path": "/ok" })).status, 200);
  });
}

test("an answer that breaks off is reset, and one that a client gives up is abandoned", async (t) => {
  let closed: () => void = () => undefined;
  const left = new Promise<void>((resolve) => {
    closed = resolve;
  });
  const backend = await backendFor(t, (req, res) => {
    res.write("half");
    if (req.url === "/cut") setImmediate(() => res.destroy());
    else res.once("close", closed);
  });
  const gateway = await gatewayFor(t, yamlOf("", `host: "${backend.host}"`));
  const client = session(t, gateway.port());
  await assert.rejects(ask(client, { ":path": "/cut" }), /INTERNAL_ERROR/);
  const stream = client.request({ ":path": "/long" });
  await once(stream, "data");
  stream.close(constants.NGHTTP2_CANCEL);
  await left;
  assert.equal(client.destroyed, false);
});

test("a drain lets streams finish and takes no others", async (t) => {
  let release: () => void = () => undefined;
  let arrived: () => void = () => undefined;
  const atBackend = new Promise<void>((resolve) => {
    arrived = resolve;
  });
  const backend = await backendFor(t, (_req, res) => {
    release = () => void res.end("done");
    arrived();
  });
  const gateway = await gatewayFor(t, yamlOf("", `host: "${backend.host}"`));
  const client = session(t, gateway.port());
  const answer = ask(client, { ":path": "/" });
  await atBackend;
  const goaway = once(client, "goaway");
  const stopping = gateway.app.stop();
  await goaway;
  release();
  assert.equal((await answer).body, "done");
  await stopping;
});

for (const [name, isSecure, backendYaml] of [
  ["h2c", false, (port: number) => `host: "127.0.0.1:${port}", protocol: h2c`],
  ["h2", true, (port: number) => `host: "https://localhost:${port}", protocol: h2`],
  ["auto", true, (port: number) => `host: "https://localhost:${port}", protocol: auto`],
] as const) {
  test(`a backend is asked over HTTP/2 with protocol ${name}; clients of both versions get trailers`, async (t) => {
    const backend = await http2Backend(
      t,
      (stream, headers) => {
        let bytes = 0;
        stream.on("data", (chunk: Buffer) => {
          bytes += chunk.length;
        });
        stream.on("end", () => {
          stream.respond(
            { ":status": 200, "x-path": headers[":path"], "x-te": headers.te ?? "", "x-two": ["a", "b"] },
            { waitForTrailers: true },
          );
          stream.on("wantTrailers", () => stream.sendTrailers({ "x-sum": String(bytes) }));
          stream.end(`${headers[":authority"]} ${bytes}`);
        });
      },
      isSecure,
    );
    const policies = isSecure ? "backendTLS: { root: root.pem }" : "";
    const gateway = await gatewayFor(t, yamlOf("", backendYaml(backend.port), policies), { files });
    const client = session(t, gateway.port());
    const body = Buffer.alloc(200_000, "y");
    const answers = await Promise.all(
      Array.from({ length: 20 }, () =>
        ask(client, { ":path": "/a?b=c", ":method": "POST", ":authority": "a.test", te: "trailers" }, body),
      ),
    );
    for (const answer of answers) {
      assert.equal(answer.status, 200, answer.body);
      assert.equal(answer.body, `a.test ${body.length}`);
      assert.equal(answer.headers["x-path"], "/a?b=c");
      assert.equal(answer.headers["x-te"], "trailers");
      assert.equal(answer.trailers["x-sum"], String(body.length));
    }
    const raw = openRawClient(gateway.port());
    raw.write("GET /old HTTP/1.1\r\nhost: b.test\r\nconnection: close\r\n\r\n");
    const { text } = await raw.ended();
    assert.match(text, /b\.test 0[\s\S]*0\r\nx-sum: 0\r\n\r\n$/);
    assert.equal(backend.sessions(), 1, "one connection carries all");
  });
}

test("with protocol auto a server that chooses HTTP/1.1 gets HTTP/1.1", async (t) => {
  const server = createHttpsServer(certificates.server, (req, res) => res.end(req.httpVersion));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.close();
    server.closeAllConnections();
  });
  const { port } = server.address() as AddressInfo;
  const yaml = yamlOf("", `host: "https://localhost:${port}", protocol: auto`, "backendTLS: { root: root.pem }");
  const gateway = await gatewayFor(t, yaml, { files });
  const texts = await Promise.all(Array.from({ length: 5 }, async () => (await fetch(gateway.url())).text()));
  assert.deepEqual(new Set(texts), new Set(["1.1"]));
});

test("a server that does not speak HTTP/2 is 502 with protocol h2 and h2c", async (t) => {
  const server = createHttpsServer({ ...certificates.server, ALPNProtocols: ["http/1.1"] }, (_req, res) => res.end());
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.close());
  const { port } = server.address() as AddressInfo;
  const plain = await backendFor(t);
  for (const [backend, policies] of [
    [`host: "https://localhost:${port}", protocol: h2`, "backendTLS: { root: root.pem }"],
    [`host: "${plain.host}", protocol: h2c`, ""],
  ] as const) {
    const gateway = await gatewayFor(t, yamlOf("", backend, policies), { files });
    assert.equal((await fetch(gateway.url())).status, 502);
  }
});

test("a session takes new requests while large answers wait for its client", async (t) => {
  const body = "x".repeat(900_000);
  const policies = `directResponse: { status: 200, body: "${body}" }`;
  const gateway = await gatewayFor(t, yamlOf("", `host: "127.0.0.1:1"`, policies));
  const client = session(t, gateway.port());
  // Nothing is read of an answer before all have begun: the rest of each waits in the gateway.
  const streams: ClientHttp2Stream[] = [];
  for (let i = 0; i < 30; i++) {
    const stream = client.request({ ":path": "/" });
    streams.push(stream);
    await once(stream, "response");
  }
  for (const stream of streams) {
    let bytes = 0;
    for await (const chunk of stream) bytes += (chunk as Buffer).length;
    assert.equal(bytes, body.length);
  }
});

test("more bodies than a session of Node holds by itself wait for the server, and all arrive", async (t) => {
  const backend = await http2Backend(t, (stream) => {
    let bytes = 0;
    stream.on("data", (chunk: Buffer) => {
      bytes += chunk.length;
    });
    stream.on("end", () => {
      stream.respond({ ":status": 200 });
      stream.end(String(bytes));
    });
  });
  const gateway = await gatewayFor(t, yamlOf("", `host: "127.0.0.1:${backend.port}", protocol: h2c`));
  const body = Buffer.alloc(60_000, "x");
  const answers = await Promise.all(
    Array.from({ length: 300 }, async () => (await fetch(gateway.url(), { method: "POST", body })).text()),
  );
  assert.deepEqual([...new Set(answers)], ["60000"]);
});

test("a connection that the server closes is opened again", async (t) => {
  const backend = await http2Backend(t, (stream) => {
    stream.respond({ ":status": 200 });
    stream.end("ok");
  });
  const open = new Set<{ close(): void }>();
  backend.server.on("session", (one) => open.add(one));
  const gateway = await gatewayFor(t, yamlOf("", `host: "127.0.0.1:${backend.port}", protocol: h2c`));
  assert.equal(await (await fetch(gateway.url())).text(), "ok");
  for (const one of open) one.close();
  for (let i = 0; i < 5; i++) assert.equal(await (await fetch(gateway.url())).text(), "ok");
});

test("the head of a backend's response over HTTP/2 has a size and a number of fields", async (t) => {
  const backend = await http2Backend(t, (stream, headers) => {
    const [, fields = "", chars = ""] = String(headers[":path"]).split("/");
    const extra = Array.from({ length: Number(fields) }, (_, i) => [`x-${i}`, "x".repeat(Number(chars))]);
    stream.on("error", () => undefined);
    stream.respond({ ":status": 200, ...Object.fromEntries(extra) });
    stream.end("ok");
  });
  const gateway = await gatewayFor(t, yamlOf("", `host: "127.0.0.1:${backend.port}", protocol: h2c`));
  const status = async (path: string): Promise<number> => {
    const client = openRawClient(Number(new URL(gateway.url()).port));
    client.write(`GET ${path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n`);
    return (await client.ended()).status;
  };
  const { maxBytes, maxItems } = peerInput("backend/http2-head");
  assert.equal(await status(`/10/${maxBytes / 10 - 100}`), 200);
  assert.equal(await status(`/10/${maxBytes / 10}`), 502);
  assert.equal(await status(`/${maxItems - 10}/1`), 200);
  assert.equal(await status(`/${maxItems}/1`), 502);
});

const bad: [name: string, backend: string, message: RegExp][] = [
  ["h2 without TLS", `host: "127.0.0.1:1", protocol: h2`, /protocol h2 needs TLS/],
  ["h2c with TLS", `host: "https://127.0.0.1:1", protocol: h2c`, /h2c is HTTP\/2 without TLS/],
  ["a protocol that does not exist", `host: "127.0.0.1:1", protocol: h3`, /protocol/],
  [
    "a protocol of an MCP backend",
    `mcp: { targets: [] }, protocol: h2`,
    /only `host` and `service` backends have a protocol/,
  ],
];
for (const [name, backend, message] of bad) {
  test(`the start is refused with ${name}`, async () => {
    await assert.rejects(startGateway(yamlOf("", backend), { files }), message);
  });
}
