/**
 * Policies at gateway, route and backend scope together: which run, in which order, and on which answers.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { rawRequest, requestText } from "../support/raw-client.ts";
import { backendFor, behindGateway, gatewayFor } from "../support/scenario.ts";

test("header modifiers of all scopes run from the outside in, and back", async (t) => {
  const backend = await backendFor(t, (req, res) => {
    res.setHeader("x-seen", String(req.headers["x-path"]));
    res.setHeader("x-way", "backend");
    res.end();
  });
  const add = (text: string): string =>
    `requestHeaderModifier: { add: { x-path: ${text} } }, responseHeaderModifier: { add: { x-way: ${text} } }`;
  const gateway = await gatewayFor(
    t,
    `gateways: { default: { port: 0, policies: { ${add("gateway")} } } }
routes: [{ policies: { ${add("route")} }, backends: [{ host: "${backend.host}", policies: { ${add("inner")} } }] }]`,
  );
  const response = await fetch(gateway.url());
  assert.equal(response.headers.get("x-seen"), "gateway, route, inner");
  assert.equal(response.headers.get("x-way"), "backend, inner, route, gateway");
});

const ORIGIN = { origin: "https://app.test" };
const answers: [name: string, path: string, status: number][] = [
  ["a backend's answer", "/ok", 200],
  ["a backend that cannot be reached", "/gone", 502],
  ["no backend", "/none", 500],
  ["no route", "/unknown", 404],
];
for (const [name, path, status] of answers) {
  test(`cors headers of the gateway are on ${name}`, async (t) => {
    const backend = await backendFor(t);
    const gateway = await gatewayFor(
      t,
      `gateways: { default: { port: 0, policies: { cors: { allowOrigins: ["https://app.test"] } } } }
routes:
  - { matches: [{ path: { exact: /ok } }], backends: [{ host: "${backend.host}" }] }
  - { matches: [{ path: { exact: /gone } }], backends: [{ host: "127.0.0.1:1" }] }
  - { matches: [{ path: { exact: /none } }] }
`,
    );
    const response = await fetch(gateway.url() + path, { headers: ORIGIN });
    assert.equal(response.status, status);
    assert.equal(response.headers.get("access-control-allow-origin"), "https://app.test");
    const preflight = await fetch(gateway.url() + path, {
      method: "OPTIONS",
      headers: { ...ORIGIN, "access-control-request-method": "POST" },
    });
    assert.equal(preflight.status, 204);
    assert.equal(preflight.headers.get("access-control-allow-origin"), "https://app.test");
    assert.equal(preflight.headers.get("content-length"), null);
    assert.ok(
      backend.received.every(({ method }) => method !== "OPTIONS"),
      "a preflight never reaches a backend",
    );
  });
}

test("a route's own cors replaces the gateway's", async (t) => {
  const { backend } = await behindGateway(t);
  const gateway = await gatewayFor(
    t,
    `gateways: { default: { port: 0, policies: { cors: { allowOrigins: ["https://outer.test"] } } } }
routes: [{ policies: { cors: { allowOrigins: ["https://inner.test"] } }, backends: [{ host: "${backend.host}" }] }]`,
  );
  const allowed = async (origin: string) =>
    (await fetch(gateway.url(), { headers: { origin } })).headers.get("access-control-allow-origin");
  assert.equal(await allowed("https://inner.test"), "https://inner.test");
  assert.equal(await allowed("https://outer.test"), null);
});

test("a preflight belongs to the route of the method that it asks for", async (t) => {
  const gateway = await gatewayFor(
    t,
    `gateways: { default: { port: 0 } }
routes:
  - { matches: [{ method: PUT }], policies: { cors: { allowOrigins: ["*"] }, directResponse: {} } }
  - { matches: [{ method: GET }], policies: { directResponse: {} } }
`,
  );
  const ask = (method: string) =>
    fetch(gateway.url(), { method: "OPTIONS", headers: { ...ORIGIN, "access-control-request-method": method } });
  assert.equal((await ask("PUT")).headers.get("access-control-allow-origin"), "*");
  assert.equal((await ask("GET")).headers.get("access-control-allow-origin"), null);
});

test("transformations read the whole answer, and an answer that breaks off before it was read is a 502", async (t) => {
  let cut = false;
  const { gateway } = await behindGateway(
    t,
    (_req, res) => {
      res.writeHead(200, { "content-length": "7", etag: "x" });
      if (cut) res.write("{", () => res.destroy());
      else res.end('{"a":1}');
    },
    `policies: { transformations: { response: { set: { x-a: "json(response.body).a" }, body: "'a is ' + string(json(response.body).a)" } } }`,
  );
  const response = await fetch(gateway.url());
  assert.equal(response.headers.get("x-a"), "1");
  assert.equal(response.headers.get("etag"), null);
  assert.equal(await response.text(), "a is 1");
  cut = true;
  const broken = await fetch(gateway.url());
  assert.equal(broken.status, 502);
  assert.equal(broken.headers.get("x-gateway-error"), "backend_response_invalid");
});

test("an answer that is too large, encoded or a stream is passed on unread", async (t) => {
  const big = "x".repeat(3 * 1024 * 1024);
  const { gateway } = await behindGateway(
    t,
    (req, res) => {
      if (req.url === "/stream") res.writeHead(200, { "content-type": "text/event-stream" });
      if (req.url === "/encoded") res.writeHead(200, { "content-encoding": "gzip" });
      res.end(req.url === "/big" ? big : "data: 1\n\n");
    },
    `policies: { transformations: { response: { set: { x-size: "size(response.body)" } } } }`,
  );
  const sizes: Record<string, string | null> = {};
  for (const path of ["/small", "/big", "/stream"]) {
    const response = await fetch(gateway.url() + path);
    assert.equal((await response.text()).length, path === "/big" ? big.length : 9);
    sizes[path] = response.headers.get("x-size");
  }
  const encoded = await rawRequest(gateway.port(), requestText("GET /encoded HTTP/1.1"));
  sizes["/encoded"] = /x-size/.test(encoded.text) ? "read" : null;
  assert.deepEqual(sizes, { "/small": "9", "/big": null, "/stream": null, "/encoded": null });
});

test("a request body that an expression reads is limited to 2 MiB", async (t) => {
  const { gateway, backend } = await behindGateway(
    t,
    undefined,
    `policies: { transformations: { request: { set: { x-size: "size(request.body)" } } } }`,
  );
  const fits = await fetch(gateway.url(), { method: "POST", body: "x".repeat(100_000) });
  assert.equal(fits.status, 200);
  assert.equal(backend.received[0]?.headers["x-size"], "100000");
  const chunked = new ReadableStream({
    start(controller) {
      for (let i = 0; i < 48; i++) controller.enqueue(Buffer.alloc(64 * 1024));
      controller.close();
    },
  });
  for (const body of ["x".repeat(3_000_000), chunked]) {
    const response = await fetch(gateway.url(), { method: "POST", body, duplex: "half" } as RequestInit);
    assert.equal(response.status, 413);
    assert.equal(response.headers.get("x-gateway-error"), "body_too_large");
  }
  assert.equal(backend.received.length, 1);
});

test("rewrites go to the backend, the log keeps what the client asked for", async (t) => {
  const { gateway, backend } = await behindGateway(
    t,
    undefined,
    `matches: [{ path: { pathPrefix: /api } }], policies: { urlRewrite: { authority: "inner.test", path: { prefix: /v2 } } }`,
  );
  assert.equal((await fetch(`${gateway.url()}/api/x?y=1`)).status, 200);
  assert.equal(backend.received[0]?.url, "/v2/x?y=1");
  assert.equal(backend.received[0]?.headers.host, "inner.test");
  assert.equal(backend.received[0]?.headers["x-forwarded-host"], `127.0.0.1:${gateway.port()}`);
  assert.match(await gateway.logged("access: request"), /path=\/api\/x /);
});

test("a direct response without content has none", async (t) => {
  const gateway = await gatewayFor(
    t,
    `gateways: { default: { port: 0 } }\nroutes: [{ policies: { directResponse: { status: 204 } } }]`,
  );
  const answer = await rawRequest(gateway.port(), requestText("GET / HTTP/1.1"));
  assert.equal(answer.status, 204);
  assert.doesNotMatch(answer.text, /content-length|transfer-encoding/i);
});
